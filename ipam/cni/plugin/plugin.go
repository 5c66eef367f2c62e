// Package plugin is the CNI plugin "tenure": the verbs of an IPAM plugin. It is
// thin. In cluster mode it passes each call on to the node's agent and journals
// the DELs that find none; in local mode it serves the call itself. It knows no
// Kubernetes and runs for milliseconds, so nothing in it is prepared that a call
// may not need.
package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/cni/local"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
	"github.com/tenure-ipam/tenure/ipam/lean/cnicall"
	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// callTimeout is how long a call waits for the agent's answer, or in local mode for
// other processes. The agent's own waits are far shorter, and runtimes wait
// longer.
const callTimeout = 30 * time.Second

// Plugin is what a call needs of its process beside its standard input and its
// environment, which it reads by itself as every CNI plugin does.
type Plugin struct {
	Stdout, Stderr io.Writer
	Now            func() time.Time
	// About is printed to people who run the plugin by hand.
	About string
}

// Run serves the one call that the environment describes, and returns the exit
// status. Results and errors go to Stdout, warnings to Stderr.
func (p Plugin) Run(ctx context.Context) int {
	c := &call{Plugin: p}
	verb := func(serve func(context.Context, *cnicall.Args) error) func(*cnicall.Args) error {
		return func(args *cnicall.Args) error { return serve(ctx, args) }
	}
	version, e := cnicall.Main(os.Getenv, cnicall.Streams{In: os.Stdin, Out: p.Stdout, Err: p.Stderr}, cnicall.Funcs{
		Add: verb(c.add), Del: verb(c.del), Check: verb(c.check), Status: verb(c.status), GC: verb(c.gc),
	}, p.About)
	if e == nil {
		return 0
	}
	if err := cnicall.PrintError(p.Stdout, version, e); err != nil {
		c.warn(err.Error())
	}
	return 1
}

// call is one call of the plugin.
type call struct{ Plugin }

func (c *call) add(ctx context.Context, args *cnicall.Args) error {
	conf, err := poolspec.ParseConfig(args.StdinData, args.Args)
	if err != nil {
		return cniError(err)
	}
	dns, replace, err := resolvConf(conf)
	if err != nil {
		return cniError(err)
	}
	resp, err := c.ask(ctx, agentapi.Add, args, conf)
	if err != nil {
		return cniError(err)
	}
	if resp.Result == nil {
		return types.NewError(types.ErrInternal, "the agent answered ADD without a result", "")
	}
	if replace {
		resp.Result.DNS = agentapi.DNS(dns)
	}
	return c.printResult(*resp.Result, args.Version)
}

// resolvConf returns what the host's file says that conf names; ok is false if it
// names none. The agent may not see the host's files.
func resolvConf(conf *poolspec.Config) (dns poolspec.DNS, ok bool, err error) {
	if conf.ResolvConf == "" {
		return poolspec.DNS{}, false, nil
	}
	text, err := os.ReadFile(conf.ResolvConf)
	if err != nil {
		return poolspec.DNS{}, false, &agentapi.Error{Code: agentapi.CodeIO, Msg: fmt.Sprintf("ipam.resolvConf: %v", err)}
	}
	return poolspec.ParseResolvConf(text), true, nil
}

// del never fails for want of an agent: the DEL is journalled, and the agent
// applies it when it is back. That holds, too, where the agent could not carry
// it out; it has said so in its log. Where not even the journal can be written,
// the agent's own collection of garbage frees the addresses, since a DEL that
// fails would keep the pod, and with it the node, from going on.
func (c *call) del(ctx context.Context, args *cnicall.Args) error {
	conf, err := poolspec.ParseRelease(args.StdinData)
	if err != nil {
		return cniError(err)
	}
	_, err = c.ask(ctx, agentapi.Del, args, conf)
	if err == nil || conf.Mode == poolspec.ModeLocal {
		return cniError(err)
	}
	c.warn(fmt.Sprintf("DEL is journalled in %s for the agent: %v", conf.JournalDir, err))
	_, err = delqueue.Write(conf.JournalDir, delqueue.Entry{
		Network: conf.Name, ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns, Time: c.Now(),
	})
	if err != nil {
		c.warn(fmt.Sprintf("DEL is lost, the agent frees the addresses when it finds the sandbox gone: %v", err))
	}
	return nil
}

func (c *call) check(ctx context.Context, args *cnicall.Args) error {
	conf, err := poolspec.ParseConfig(args.StdinData, args.Args)
	if err == nil && conf.PrevResult == nil {
		err = &agentapi.Error{Code: agentapi.CodeInvalidConfig, Msg: "prevResult is missing: CHECK compares with the result of ADD"}
	}
	if err == nil {
		_, err = c.ask(ctx, agentapi.Check, args, conf)
	}
	return cniError(err)
}

func (c *call) status(ctx context.Context, args *cnicall.Args) error {
	conf, err := poolspec.ParseConfig(args.StdinData, "")
	if err == nil {
		_, err = c.ask(ctx, agentapi.Status, args, conf)
	}
	if noAnswer(err) {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "is the node's agent (tenured) running?")
	}
	return cniError(err)
}

func (c *call) gc(ctx context.Context, args *cnicall.Args) error {
	conf, err := poolspec.ParseRelease(args.StdinData)
	if err == nil && !conf.HasValidAttachments {
		err = &agentapi.Error{Code: agentapi.CodeInvalidConfig,
			Msg: "cni.dev/valid-attachments is missing: without it, GC cannot tell what to keep and frees nothing"}
	}
	if err == nil {
		_, err = c.ask(ctx, agentapi.GC, args, conf)
	}
	return cniError(err)
}

// ask has the call served, by the agent or in local mode here. An error that was
// answered is a *agentapi.Error; others mean that there is no answer.
func (c *call) ask(ctx context.Context, verb agentapi.Verb, args *cnicall.Args, conf *poolspec.Config) (agentapi.Response, error) {
	req := agentapi.Request{
		Verb: verb, ContainerID: args.ContainerID, Netns: args.Netns, NetnsID: netns.ID(args.Netns),
		IfName: args.IfName, Args: args.Args, Config: args.StdinData,
	}
	var resp agentapi.Response
	if conf.Mode == poolspec.ModeLocal {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		resp = local.Serve(ctx, req, c.Now())
	} else {
		var err error
		if resp, err = agentapi.Once(ctx, callTimeout, conf.Socket, req); err != nil {
			return resp, err
		}
	}
	for _, w := range resp.Warnings {
		c.warn(w)
	}
	if resp.Error != nil {
		return resp, resp.Error
	}
	return resp, nil
}

// warn tells whoever reads the runtime's log.
func (c *call) warn(text string) { fmt.Fprintln(c.Stderr, "tenure:", text) }
