// Package plugin is the CNI plugin "tenure-attach": the verbs of the delegating
// meta-plugin. It asks the agent what is known of the pod, makes the plan, has it
// carried out, and tells the agent; everything after an ADD goes by the
// journal alone. It knows no Kubernetes.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/attach/cni/delegate"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/lean/cnicall"
)

// What a call waits for, and how long.
const (
	// lockTimeout is for another call for the same container to end.
	lockTimeout = time.Minute
	// readyTimeout is for the default network to become ready, before an ADD;
	// unreadyTimeout before a DEL, which goes on all the same.
	readyTimeout   = 45 * time.Second
	unreadyTimeout = 5 * time.Second
	// askTimeout is for the agent's answer; its own waits are shorter.
	askTimeout = 30 * time.Second
	// reportTimeout is for the agent to accept the call's own report, before the
	// runtime's answer is printed, and for it to accept those of earlier calls, once they
	// have been read from disk.
	reportTimeout = 100 * time.Millisecond
)

// Plugin is what a call needs of its process beside its standard input and its
// environment, which it reads by itself as every CNI plugin does.
type Plugin struct {
	Stdout io.WriteCloser
	Stderr io.Writer
	Now    func() time.Time
	// About is printed to people who run the plugin by hand.
	About string
	// Limit is after how long Change kills a plugin: no runtime waits that would.
	Limit time.Duration
}

// Run serves the one call that the environment describes, and returns the exit
// status. Results and errors go to Stdout, which is closed then; warnings and the
// standard error of delegates go to Stderr.
func (p Plugin) Run(ctx context.Context) int {
	c := &call{Plugin: p}
	verb := func(serve func(context.Context, *cnicall.Args) error) func(*cnicall.Args) error {
		return func(args *cnicall.Args) error { return oneError(serve(ctx, args)) }
	}
	version, e := cnicall.Main(os.Getenv, cnicall.Streams{In: os.Stdin, Out: p.Stdout, Err: p.Stderr}, cnicall.Funcs{
		Add: verb(c.add), Del: verb(c.del), Check: verb(c.check), Status: verb(c.status), GC: verb(c.gc),
	}, p.About)
	code := 0
	if e != nil {
		code = 1
		if err := cnicall.PrintError(p.Stdout, version, e); err != nil {
			c.warn("%v", err)
		}
	}
	if err := p.Stdout.Close(); err != nil {
		c.warn("%v", err)
	}
	c.tell(ctx)
	c.hangUp()
	return code
}

// call is one call of the plugin.
type call struct {
	Plugin
	socket string            // the agent's, once it is known
	conn   *agentapi.Conn    // to the agent, once it was asked
	sent   *agentapi.Request // what the agent was asked ahead
	state  journal.Dir
	// previous is the result of the plugins that the runtime has called before, in an ADD.
	previous *types100.Result
	news     []news // what the agent is to be told: the call's own report, then others'
	// searched says that news has what earlier calls could not send.
	searched bool
}

// configure reads the configuration, as far as verbs other than ADD need it: a fault
// in it must not keep a DEL from its journal.
func (c *call) configure(args *cnicall.Args) (*plan.Config, error) {
	conf, err := plan.ParseConfig(args.StdinData)
	if err != nil {
		code := types.ErrInvalidNetworkConfig
		if errors.Is(err, plan.ErrUnsupported) {
			code = types.ErrUnsupportedField
		}
		err = &types.Error{Code: code, Msg: strings.ReplaceAll(err.Error(), "\n", " | ")}
	}
	c.socket, c.state = conf.Socket, journal.Dir{Path: conf.StateDir}
	return conf, err
}

// runner returns what carries out plans as the configuration says.
func (c *call) runner(conf *plan.Config, args *cnicall.Args) *delegate.Runner {
	return &delegate.Runner{State: c.state, Path: pluginPath(args.Path, conf.BinDir), Stderr: c.Stderr, CIDRs: conf.StatusCIDRs, Boot: bootID()}
}

// begin reads the configuration, and returns it with what carries out plans by it.
func (c *call) begin(args *cnicall.Args) (*plan.Config, *delegate.Runner, error) {
	conf, err := c.configure(args)
	return conf, c.runner(conf, args), err
}

// pluginPath returns where delegates are looked up: in the runtime's directories, then in the
// configuration's.
func pluginPath(cniPath, binDir string) (dirs []string) {
	for _, dir := range append(filepath.SplitList(cniPath), binDir) {
		if dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// bootID names this boot. It is empty where the kernel does not tell: then every
// step of a journal counts as begun.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func keyOf(conf *plan.Config, args *cnicall.Args) journal.Key {
	return journal.Key{ContainerID: args.ContainerID, Network: conf.Name, IfName: args.IfName}
}

// lock takes the container's lock for r.
func (c *call) lock(ctx context.Context, r *delegate.Runner, containerID string) error {
	// Most often nobody holds it. Where the context is over, Lock tries once and does not wait.
	now, cancel := context.WithCancel(ctx)
	cancel()
	var err error
	if r.Lock, err = c.state.Lock(now, containerID); errors.Is(err, journal.ErrBusy) {
		c.hangUp() // the answer to what was asked ahead will be old
		ctx, cancel := context.WithTimeout(ctx, lockTimeout)
		defer cancel()
		r.Lock, err = c.state.Lock(ctx, containerID)
	}
	return busy(err)
}

// busy gives the error of a lock that somebody else holds the code by which a
// runtime tries again.
func busy(err error) error {
	if errors.Is(err, journal.ErrBusy) {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "another call for the container, or a plugin that it started, has not ended, "+
			"and is waited for: what it does late would be undone by nobody; where it hangs, end the process that holds the lock")
	}
	return err
}

// release gives r's lock back. That it fails changes nothing: the kernel does it
// when the process ends.
func (c *call) release(r *delegate.Runner) {
	if err := r.Lock.Release(); err != nil {
		c.warn("%v", err)
	}
}

func (c *call) del(ctx context.Context, args *cnicall.Args) error {
	conf, r, err := c.begin(args)
	if err != nil && conf.Name == "" {
		return err
	}
	_ = ready(ctx, conf.ReadinessFile, unreadyTimeout)
	if err := c.lock(ctx, r, args.ContainerID); err != nil {
		if c.nothingToLock(err, keyOf(conf, args)) {
			return r.Detach(ctx, keyOf(conf, args), args.Netns)
		}
		return err
	}
	if err := r.Detach(ctx, keyOf(conf, args), args.Netns); err != nil {
		c.release(r)
		return err
	}
	if err := r.Lock.Forget(); err != nil {
		c.warn("%v", err)
	}
	return nil
}

// nothingToLock reports whether the lock was not to be had because the disk takes no new file,
// and there is no journal either. Then nobody is at work on the container, which has been
// detached before.
func (c *call) nothingToLock(err error, k journal.Key) bool {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) && !errors.Is(err, syscall.EROFS) {
		return false
	}
	_, err = c.state.Read(k)
	return errors.Is(err, fs.ErrNotExist)
}

func (c *call) check(ctx context.Context, args *cnicall.Args) error {
	conf, r, err := c.begin(args)
	if err != nil {
		return err
	}
	if err := c.lock(ctx, r, args.ContainerID); err != nil {
		return err
	}
	defer c.release(r)
	return r.Check(ctx, keyOf(conf, args), args.Netns)
}

// status answers for the default network alone: what is wrong with another one must
// not make a node unready. Nor does it ask the agent, which is away for moments
// while it is upgraded: what that has to say is in a file.
func (c *call) status(ctx context.Context, args *cnicall.Args) error {
	conf, r, err := c.begin(args)
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if err := ready(ctx, conf.ReadinessFile, 0); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	why, err := c.state.Unready()
	switch {
	case err != nil:
		c.warn("STATUS does not know what the agent said: %v", err)
	case why != "":
		return types.NewError(types.ErrPluginNotAvailable, why, "")
	}
	list, old, err := c.defaultList(conf)
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if list == nil {
		return nil // a definition that no pod of this node has been attached to yet
	}
	err = r.Status(ctx, list)
	if err != nil && old {
		// The definition may have been mended since. A node that is not ready gets no pods,
		// and so no ADD that would tell.
		c.warn("STATUS, by the configuration that the last ADD had: %v; whether that is still so is not known", err)
		return nil
	}
	return err
}

// gc undoes the attachments for which no DEL came, as far as this configuration knows of them.
func (c *call) gc(ctx context.Context, args *cnicall.Args) error {
	conf, r, err := c.begin(args)
	if err != nil {
		return err
	}
	valid, err := validAttachments(args.StdinData)
	if err != nil {
		return err
	}
	waits, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if r.Lock, err = c.state.LockAll(waits); err != nil {
		return busy(err)
	}
	defer c.release(r)
	var extra []json.RawMessage
	if list, _, err := c.defaultList(conf); err == nil && list != nil {
		extra = append(extra, list)
	}
	return r.GC(ctx, conf.Name, valid, extra, c.Now())
}

// validAttachments reads what GC is to keep. That the key is missing is not the same
// as an empty list. A list with an incomplete item is refused: what the item was meant to keep
// would be undone.
func validAttachments(stdin []byte) ([]types.GCAttachment, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(stdin, &members); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	const key = "cni.dev/valid-attachments"
	raw, ok := members[key]
	if !ok {
		raw, ok = members["cni.dev/attachments"] // what older CNI libraries call it
	}
	if !ok {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, key+" is missing: without it, GC cannot tell what to keep and removes nothing", "")
	}
	var valid []types.GCAttachment
	if err := json.Unmarshal(raw, &valid); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, key+" is no list of attachments: "+err.Error(), "")
	}
	for i, a := range valid {
		if a.ContainerID == "" || a.IfName == "" {
			return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("%s[%d] is null, or lacks containerID or ifname: nothing is removed", key, i),
				"the runtime must name the container and the interface of each attachment, so that none is taken for gone")
		}
	}
	return valid, nil
}

// oneError makes one CNI error of all that went wrong, with the code of the first
// that has one: of errors that are joined, the CNI library answers the first alone.
func oneError(err error) error {
	if err == nil {
		return nil
	}
	e := &types.Error{Code: types.ErrInternal, Msg: strings.ReplaceAll(err.Error(), "\n", "; ")}
	if first, ok := errors.AsType[*types.Error](err); ok {
		if first.Error() == err.Error() {
			return first
		}
		if first.Code != 0 {
			e.Code = first.Code
		}
	}
	return e
}

// warn tells whoever reads the runtime's log.
func (c *call) warn(format string, args ...any) {
	fmt.Fprintf(c.Stderr, "tenure-attach: "+format+"\n", args...)
}
