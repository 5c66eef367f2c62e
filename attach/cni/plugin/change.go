package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/attach/cni/delegate"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// Change gives a running pod the networks that it selects now, as conf is installed for the
// runtime, which looks for plugins in path first. k is the journal of its attachment. If there is
// none, or its ADD has not ended, there is nothing to do: an ADD goes by what is selected then.
//
// What cannot be done is told to the pod's user. again says that a later call may do it; err is for
// the log.
func (p Plugin) Change(ctx context.Context, conf *plan.Config, path []string, k journal.Key) (again bool, err error) {
	c := &call{Plugin: p, socket: conf.Socket, state: journal.Dir{Path: conf.StateDir}}
	defer c.hangUp()
	r := &delegate.Runner{
		State: c.state, Path: pluginPath(strings.Join(path, string(filepath.ListSeparator)), conf.BinDir), Stderr: p.Stderr, CIDRs: conf.StatusCIDRs,
		Boot: bootID(), Unproved: c.unproved(k.ContainerID), Limit: p.Limit,
	}
	if err := c.lock(ctx, r, k.ContainerID); err != nil {
		return true, err
	}
	e, err := c.state.Read(k)
	if errors.Is(err, fs.ErrNotExist) {
		return false, r.Lock.Forget()
	}
	defer c.release(r)
	switch {
	case err != nil:
		return false, err
	case !e.Answered || e.Boot != r.Boot || !exists(e.Netns):
		return false, nil // its DEL is to come, or a garbage collection
	case e.Lost != "":
		return false, fmt.Errorf("journal of container %s: %s does not read: the pod is left as it is, and its DEL undoes all", k.ContainerID, e.Lost)
	}
	return c.change(ctx, conf, r, e)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// change carries out what is to be changed.
func (c *call) change(ctx context.Context, conf *plan.Config, r *delegate.Runner, e *journal.Entry) (again bool, err error) {
	whole, part := e.Live()
	attached := make([]plan.Step, len(whole))
	for n, i := range whole {
		attached[n] = e.Plan.Steps[i]
	}
	now, change, refused, err := c.difference(ctx, conf, e, attached)
	if err != nil {
		return true, err
	}
	warnings := now.Warnings
	if refused != nil {
		change = plan.Unchanged(attached)
		warnings = []facts.Warning{{Reason: delegate.ReasonNotChanged, Message: facts.Cut(strings.ReplaceAll(refused.Error(), "\n", " | "))}}
	}
	if change.None() && len(part) == 0 && told(e.Report, warnings, refused != nil) {
		return refused != nil, nil
	}
	e.Plan.Moving = now.Moving
	out, err := r.Change(ctx, e, change, warnings)
	if err != nil {
		return true, err
	}
	c.queueNews(e.Key, out.Report)
	for _, failed := range out.Failed {
		c.tellStrangers(ctx, e.Head, failed)
	}
	err = c.settleNews(ctx)
	c.tell(ctx)
	return out.Again || refused != nil, errors.Join(append(out.Failed, refused, err)...)
}

// difference asks the agent what the pod selects, and returns the plan for that, and how the pod
// comes to have it, or why it cannot. Where that ends an attachment, the pod is read live: the
// watch of an agent that has just started may show what was selected before.
func (c *call) difference(ctx context.Context, conf *plan.Config, e *journal.Entry, attached []plan.Step) (now plan.Plan, change plan.Change, refused, err error) {
	q := conf.Question(e.Plan.Pod)
	for {
		answer, err := c.ask(ctx, question(q))
		if err != nil {
			return now, change, nil, err
		}
		if now, refused = plan.Make(conf, callAgain(e, attached), answer, c.disk(conf)); refused == nil {
			change, refused = plan.Difference(attached, now)
		}
		if refused != nil || q.Live || !change.Ends() {
			return now, change, refused, nil
		}
		q.Live = true
	}
}

// callAgain returns the call by which the pod of e was attached, as far as networks that come and
// go are made by it.
func callAgain(e *journal.Entry, attached []plan.Step) plan.Call {
	call := plan.Call{ContainerID: e.ContainerID, Netns: e.Netns, IfName: e.IfName, Running: true}
	if i := plan.DefaultStep(attached); i >= 0 {
		call.Args, call.Runtime = attached[i].Args, attached[i].Capabilities
	}
	return call
}

// told reports whether the last report has said already what there is to say of a pod that stays as
// it is: why it cannot be changed, or nothing of that kind.
func told(last *facts.Report, warnings []facts.Warning, refused bool) bool {
	if last == nil {
		return !refused
	}
	if refused {
		return slices.Contains(last.Warnings, warnings[0])
	}
	return !slices.ContainsFunc(last.Warnings, func(w facts.Warning) bool {
		return slices.Contains([]string{delegate.ReasonNotChanged, delegate.ReasonNotAttached, delegate.ReasonNotDetached}, w.Reason)
	})
}
