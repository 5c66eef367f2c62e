package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/cni/delegate"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/lean/cnicall"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

func (c *call) add(ctx context.Context, args *cnicall.Args) error {
	conf, err := c.configure(args)
	if err != nil {
		return err
	}
	cniArgs, pod, err := readArgs(args.Args)
	if err != nil {
		return err
	}
	if c.previous, err = delegate.ReadPrevious(args.Version, conf.PrevResult); err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "the runtime must pass what the plugin before has answered")
	}
	if err := ready(ctx, conf.ReadinessFile, readyTimeout); err != nil {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	}
	about := question(conf.Question(pod))
	c.announce(ctx, askTimeout, about) // to have the answer when the lock is taken
	r := c.runner(conf, args)
	r.Unproved = c.unproved(args.ContainerID)
	if err := c.lock(ctx, r, args.ContainerID); err != nil {
		return err
	}
	defer c.release(r)
	if err := c.clearWay(ctx, r, keyOf(conf, args), args.Netns); err != nil {
		return err
	}
	disk := plan.ReadAhead(conf, c.disk(conf)) // while the agent answers
	answer, err := c.ask(ctx, about)
	if err != nil {
		return err
	}
	p, err := plan.Make(conf, plan.Call{
		ContainerID: args.ContainerID, Netns: args.Netns, IfName: args.IfName, Args: cniArgs, Runtime: conf.Runtime,
	}, answer, disk)
	if err != nil {
		c.queueNews(journal.Key{}, facts.Report{Pod: pod, ContainerID: args.ContainerID, Warnings: p.Warnings})
		code := types.ErrInvalidNetworkConfig
		if plan.MayPass(err) {
			code = types.ErrTryAgainLater
		}
		return types.NewError(code, strings.ReplaceAll(err.Error(), "\n", " | "), "")
	}
	return c.attach(ctx, args.Version, conf, r, journal.Head{Key: keyOf(conf, args), Netns: args.Netns, Plan: p}, answer)
}

// attach carries the plan out and answers the default network's result, behind that of the plugins
// before, in a version of CNI.
func (c *call) attach(ctx context.Context, version string, conf *plan.Config, r *delegate.Runner, h journal.Head, answer facts.Answer) error {
	result, report, err := r.Attach(ctx, h)
	if err != nil {
		c.queueNews(journal.Key{}, facts.Report{Pod: h.Plan.Pod, ContainerID: h.ContainerID, Warnings: h.Plan.Warnings})
		c.tellStrangers(ctx, h, err)
		return err
	}
	result, err = delegate.After(c.previous, result)
	var versioned types.Result
	if err == nil {
		versioned, err = result.GetAsVersion(version)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the default network's result in CNI %s: %w", version, err), r.Detach(ctx, h.Key, h.Netns))
	}
	c.queueNews(h.Key, report)
	if c.conn != nil { // else the answer would wait for a connection
		c.announceNews(ctx) // the agent works on it meanwhile
	}
	if answer.Pod.Annotations[npwg.AnnotationDefaultNetwork] == "" {
		c.keepDefault(conf, h.Plan, answer)
	}
	c.search()
	if err := c.settleNews(ctx); err != nil {
		return errors.Join(err, r.Detach(ctx, h.Key, h.Netns))
	}
	return versioned.PrintTo(c.Stdout)
}

// clearWay undoes what a call left that was killed, and refuses to attach twice.
func (c *call) clearWay(ctx context.Context, r *delegate.Runner, k journal.Key, netns string) error {
	e, err := c.state.Read(k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && e.Answered {
		return types.NewError(types.ErrInvalidEnvironmentVariables,
			fmt.Sprintf("container %s, interface %s (CNI_CONTAINERID, CNI_IFNAME) is attached already: DEL has to come first", k.ContainerID, k.IfName), "")
	}
	c.hangUp() // the answer to what was asked ahead will be old
	if err := r.Detach(ctx, k, netns); err != nil {
		return fmt.Errorf("undo an earlier ADD of container %s that was interrupted: %w", k.ContainerID, err)
	}
	return nil
}

// readArgs reads CNI_ARGS: "KEY=value;KEY=value". A value may have further equals
// signs.
func readArgs(text string) (args []plan.Arg, pod facts.PodRef, err error) {
	for pair := range strings.SplitSeq(text, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, pod, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_ARGS: %q is not KEY=value", pair), "")
		}
		args = append(args, plan.Arg{Key: key, Value: value})
		switch key {
		case "K8S_POD_NAMESPACE":
			pod.Namespace = value
		case "K8S_POD_NAME":
			pod.Name = value
		case "K8S_POD_UID":
			pod.UID = value
		}
	}
	if pod.Namespace == "" || pod.Name == "" {
		return nil, pod, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME: whose networks are these?", "")
	}
	return args, pod, nil
}

// ready waits until the file exists that tells that the default network is ready.
// No file is always ready.
func ready(ctx context.Context, file string, timeout time.Duration) error {
	if file == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		_, err := os.Stat(file)
		if err == nil {
			return nil
		}
		if !pause.For(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the default network is not ready (readinessindicatorfile): %w", err)
		}
	}
}

// disk is the host's configuration files.
func (c *call) disk(conf *plan.Config) plan.Disk {
	return plan.Files{Root: os.DirFS("/"), ConfDir: conf.ConfDir}
}

// keepDefault keeps the default network for STATUS if it is in a definition. If it is in a file,
// STATUS can read that.
func (c *call) keepDefault(conf *plan.Config, p plan.Plan, answer facts.Answer) {
	ref, ok := conf.DefaultDefinition()
	if !ok {
		return
	}
	var err error
	if plan.HasConfig(answer.Networks, ref) {
		err = c.state.KeepDefault(ref.String(), p.Steps[plan.DefaultStep(p.Steps)].List)
	} else {
		err = c.state.DropDefault()
	}
	if err != nil {
		c.warn("STATUS will not know the default network: %v", err)
	}
}

// defaultList returns the default network's configuration, for a call without a pod. It takes it
// from the configuration or from disk, else as the last ADD had it: then old is true, for it may
// have changed since. It is nil if there is neither.
func (c *call) defaultList(conf *plan.Config) (list json.RawMessage, old bool, err error) {
	ref, inDefinition := conf.DefaultDefinition()
	if inDefinition {
		if list, err := c.state.Default(ref.String()); err == nil && list != nil {
			return list, true, nil
		}
	}
	step, err := plan.DefaultNetwork(conf, nil, c.disk(conf))
	if inDefinition { // that no ADD has asked about yet
		return step.List, false, nil
	}
	return step.List, false, err
}
