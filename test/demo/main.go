// Command demo shows Tenure at work: two nodes, their pods and their claims on
// this machine, scene by scene, each claim about Tenure verified as it is made.
// `make demo` builds what it needs and runs it.
//
// Everything it starts and makes is in a sandbox: however it ends, nothing of it
// is left.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tenure-ipam/tenure/test/sandbox"
)

const usage = `demo shows Tenure at work on this machine, in about half a minute: two nodes,
their pods and their claims. "make demo" builds what it needs and runs it.

Real are etcd, kube-apiserver and kube-controller-manager, Tenure's programs with
the rights that deploy/rbac gives them, network namespaces, the bridge, macvlan
and host-local plugins and libcni. The demo itself plays the kubelets, the
container runtimes and KubeVirt.

Everything runs in namespaces of its own that end with the program, also on
Ctrl-C or when it is killed. It needs root.

Flags:
`

// options are the flags.
type options struct {
	keep  bool
	pace  bool
	enter bool
}

// exitInterrupted is what shells make of a program that SIGINT ended.
const exitInterrupted = 128 + int(syscall.SIGINT)

// main runs three times, as test/sandbox explains: outside, as the sandbox's
// init, and inside.
func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil && o.enter {
		err = enter()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	outside := !sandbox.Inside()
	if outside {
		if err := os.Setenv(envMark, strconv.Itoa(os.Getpid())); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			os.Exit(1)
		}
	}
	code := sandbox.Main(sandbox.Options{}, func() int { return inside(o) })
	if outside {
		code = max(code, farewell(newScreen(os.Stdout, os.Getenv)))
	}
	os.Exit(code)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage, flags.FlagUsages()) }
	flags.BoolVar(&o.keep, "keep", false, "before the clean-up, wait, and say how to look around")
	flags.BoolVar(&o.pace, "pace", false, "wait for Enter before each scene (without a terminal: for 5 seconds)")
	flags.BoolVar(&o.enter, "enter", false, "open a shell in the sandbox of the demo that runs")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("%w: see make demo ARGS=--help", err)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: see make demo ARGS=--help", flags.Arg(0))
	}
	return o, nil
}

// inside plays the demo in the sandbox and returns the exit code.
func inside(o options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once

	s := newScreen(os.Stdout, os.Getenv)
	d := &demo{options: o, screen: s}
	err := d.play(ctx)
	switch {
	case err == nil:
		s.summary(len(scenes))
		return 0
	case ctx.Err() != nil:
		s.interrupted()
		d.close()
		return exitInterrupted
	default:
		s.failed(err)
		d.showLogs()
		d.close()
		return 1
	}
}
