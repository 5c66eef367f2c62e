package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// Attach carries out the plan of h. It returns the default network's result, in the version of its
// configuration, and what the agent is to be told; the journal has both when it returns. If a
// plugin is missing, nothing is begun. If a step fails, no later one is begun, and the steps that
// were done are undone in reverse order. What cannot be undone stays in the journal.
func (r *Runner) Attach(ctx context.Context, h journal.Head) (types.Result, facts.Report, error) {
	lists, err := r.chains(h.Plan)
	if err != nil {
		return nil, facts.Report{}, err
	}
	a := &attaching{Runner: r, Head: h, lists: lists, done: make([]step, len(h.Plan.Steps))}
	of := plan.DefaultStep(h.Plan.Steps)
	if of < 0 {
		return nil, facts.Report{}, errors.New("the plan has no default network")
	}
	a.Head.Boot = r.Boot
	log, err := r.State.Create(a.Head)
	if err != nil {
		return nil, facts.Report{}, err
	}
	a.log = log
	var report facts.Report
	if err = a.syncJournal(); err == nil {
		report, err = a.run(ctx)
	}
	err = errors.Join(err, log.Close())
	if err == nil {
		return a.done[of].result, report, nil
	}
	// A caller that has gone does not take with it what is to be undone.
	if left := r.Detach(context.WithoutCancel(ctx), h.Key, h.Netns); left != nil {
		err = &types.Error{Code: codeOf(err), Msg: fmt.Sprintf("%s; and undoing it failed, the next DEL tries again: %s", oneLine(err), oneLine(left))}
	}
	return nil, facts.Report{}, err
}

func codeOf(err error) uint {
	if e, ok := errors.AsType[*types.Error](err); ok && e.Code != 0 {
		return e.Code
	}
	return types.ErrInternal
}

// attaching is a plan being carried out.
type attaching struct {
	*Runner
	journal.Head
	lists []*chain // of the plan's steps
	log   *journal.Log
	first *waiting // the first plugin, if it was started ahead

	left   func() error // what is to be done yet for the last step that was done
	unkept error        // why that has failed
	done   []step
}

// A step is one that has been carried out.
type step struct {
	result types.Result     // in the version of its configuration
	full   *types100.Result // the same, in the newest
	device json.RawMessage  // what its device information file said
}

// syncJournal writes the journal to disk, as must be done before the first plugin is called.
// Meanwhile it starts that plugin's process, which gets its configuration only when it is called:
// a plugin without one does nothing. If it does something all the same, and this process ends
// here, then the journal says that its step has begun. If the machine ends here, no plugin had
// been called.
func (a *attaching) syncJournal() error {
	s := a.Plan.Steps[0]
	if s.Device == nil && a.log.Began(0) == nil { // if not, run says why
		a.first = a.addAhead(a.lists[0], callOf(a.ContainerID, a.Netns, s))
	}
	if err := a.log.Sync(); err != nil {
		return errors.Join(err, a.first.end()) // it is undone: what asks for no configuration may have begun
	}
	return nil
}

func (a *attaching) run(ctx context.Context) (facts.Report, error) {
	for i, s := range a.Plan.Steps {
		if i > 0 || a.first == nil {
			if err := a.log.Began(i); err != nil {
				return facts.Report{}, err
			}
		}
		if err := a.add(ctx, i, s); err != nil {
			err = stepError(s, "ADD", err)
			if a.lacksIPAM(a.lists[i], err) {
				err = errors.Join(err, a.abandon(context.WithoutCancel(ctx), i, s))
			}
			return facts.Report{}, err
		}
	}
	if a.keepLeft(); a.unkept != nil {
		return facts.Report{}, a.unkept
	}
	if err := a.moveDefaultRoutes(); err != nil {
		return facts.Report{}, err
	}
	if err := a.findStrangers(ctx); err != nil {
		return facts.Report{}, err
	}
	announced := a.announce()
	defer announced()
	report, err := a.report()
	if err != nil {
		return report, err
	}
	return report, a.log.Answer(report)
}

// lacksIPAM reports whether err is that of a plugin which has not found its IPAM plugin, as
// indeed it is not there.
func (r *Runner) lacksIPAM(list *chain, err error) bool {
	return slices.ContainsFunc(list.plugins, func(p plugin) bool {
		if p.ipam == "" || !strings.Contains(err.Error(), fmt.Sprintf("failed to find plugin %q", p.ipam)) {
			return false
		}
		_, missing := r.find(p.ipam)
		return missing != nil
	})
}

// abandon undoes a step whose ADD has failed because its IPAM plugin is missing, so that the step
// leaves nothing behind. The DEL fails for the same reason. If the name is misspelt, it would
// fail for good, and leave a journal for each sandbox that the kubelet tries.
func (a *attaching) abandon(ctx context.Context, i int, s plan.Step) error {
	if err := a.delChain(ctx, a.lists[i], callOf(a.ContainerID, a.Netns, s), nil); err != nil && !a.lacksIPAM(a.lists[i], err) {
		return nil // the undoing that follows has it once more, and says so
	}
	return errors.Join(a.removeDevice(s.Device), a.log.Undone(i))
}

// chains reads the configuration lists of a plan, and finds the programs of all their
// plugins: a list that lacks one, as its name is misspelt, could not be undone either, and
// would stay in the journal for good. So it is with the IPAM plugins that they run. That of
// the default network is not looked for: configurations of nodes' networks name some there
// that are no programs, as azure-vnet's does with azure-cns.
func (r *Runner) chains(p plan.Plan) ([]*chain, error) {
	lists := make([]*chain, len(p.Steps))
	for i, s := range p.Steps {
		list, err := parse(s.List)
		if err != nil {
			return nil, stepError(s, "ADD", err)
		}
		for _, plugin := range list.plugins {
			_, err := r.find(plugin.kind)
			if err == nil && plugin.ipam != "" && !s.Default {
				if _, err = r.find(plugin.ipam); err != nil {
					err = fmt.Errorf("ipam.type of plugin %s: %w", plugin.kind, err)
				}
			}
			if err != nil {
				return nil, stepError(s, "ADD", fmt.Errorf("%w: install it on the node, or correct its name in the network's configuration", err))
			}
		}
		lists[i] = list
	}
	return lists, nil
}

// add runs a step's plugins and notes their result, if it is what was asked for. While they
// run, it does what is left of the step before.
func (a *attaching) add(ctx context.Context, i int, s plan.Step) error {
	list := a.lists[i]
	if err := prepareDevice(s.Device); err != nil {
		return err
	}
	var first *waiting
	a.meanwhile = a.keepLeft
	if i == 0 {
		first, a.meanwhile = a.first, a.rehearse
	}
	c := callOf(a.ContainerID, a.Netns, s)
	result, text, err := a.addChain(ctx, list, c, first)
	a.meanwhile = nil
	if err != nil {
		return err
	}
	full, err := fullOf(result)
	if err != nil {
		return err
	}
	if err := verify(s, full, a.Netns); err != nil {
		return err
	}
	device, err := readDevice(s.Device)
	if err != nil {
		return err
	}
	a.done[i] = step{result: result, full: full, device: device}
	a.left = func() error { return a.keep(a.Key, c.record(list, text)) }
	return cmp.Or(a.log.Done(i, text), a.unkept)
}

// keepLeft has the cache of results keep that of the step before, which the journal has.
func (a *attaching) keepLeft() {
	if err := a.left(); err != nil {
		a.unkept = fmt.Errorf("keep the result: %w", err)
	}
}

// rehearse processes an empty result as the plugins' results are processed later. Code that runs
// for the first time is loaded page by page: this way it is loaded while the first plugin runs.
func (a *attaching) rehearse() {
	s := plan.Step{IfName: a.IfName}
	list := &chain{name: "rehearsal", version: a.lists[0].version}
	result, err := resultOf(list.version, []byte(`{"cniVersion":"`+list.version+`","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/none"}],`+
		`"ips":[{"interface":0,"address":"192.0.2.2/24","gateway":"192.0.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"nameservers":["192.0.2.3"]}}`))
	if err != nil {
		return // as in versions that have other results
	}
	text, err := json.Marshal(result)
	if err != nil {
		return
	}
	full, err := fullOf(result)
	if err != nil || verify(s, full, "") != nil {
		return
	}
	record := callOf(a.ContainerID, a.Netns, s).record(list, text)
	_, _ = record.Line()
	b := attaching{Runner: a.Runner, Head: journal.Head{Plan: plan.Plan{Steps: []plan.Step{s}}}, done: []step{{full: full}}}
	report, err := b.report()
	if err == nil {
		_ = report.AppendTo(nil)
	}
}
