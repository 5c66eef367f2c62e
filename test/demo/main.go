// Command demo shows Tenure at work, scene by scene, each claim about Tenure verified as it is
// made: first what needs no cluster, then a cluster of two nodes on this machine. `make demo`
// builds what it needs and runs it.
//
// The first scenes need little that has to be built. What the others need is built meanwhile, by
// the command in the arguments.
//
// All that the scenes start and make is in a sandbox: however the demo ends, nothing of it is left.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

const usage = `demo shows Tenure at work on this machine, in about a minute: containers without a
cluster, then two nodes, their pods and their claims. "make demo" builds what it needs
and runs it; the first time, the first scenes are shown while the rest is built.

Real are etcd, kube-apiserver and kube-controller-manager, Tenure's programs with
the rights that deploy/rbac gives them, network namespaces, the bridge, macvlan
and host-local plugins and libcni. The demo itself plays the kubelets, the
container runtimes and KubeVirt.

All scenes run in namespaces of their own that end with the program, also on
Ctrl-C or when it is killed. It needs root.

Flags:
`

// options are the arguments.
type options struct {
	show.Options
	enter bool
	rest  []string // the command that builds what the scenes on a cluster need
}

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
	bin, err := binDir()
	if err == nil && !sandbox.Inside() {
		os.Exit(outside(o, bin))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	os.Exit(sandbox.Main(sandbox.Options{}, func() int { return inside(o, bin) }))
}

// binDir returns bin of the repository, where programs are built.
func binDir() (string, error) {
	root, err := programs.Root()
	return filepath.Join(root, "bin"), err
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage, flags.FlagUsages()) }
	o.Flags(flags)
	flags.BoolVar(&o.enter, "enter", false, "open a shell in the sandbox of the demo that runs")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("%w: see make demo ARGS=--help", err)
	}
	if n := flags.ArgsLenAtDash(); n > 0 || n < 0 && flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: see make demo ARGS=--help", flags.Arg(0))
	}
	o.rest = flags.Args()
	return o, nil
}

// outside begins to build the rest, runs the demo in a sandbox, and returns the exit code.
func outside(o options, bin string) int {
	if err := os.Setenv(envMark, strconv.Itoa(os.Getpid())); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	b, err := startBuild(bin, o.rest)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	code := sandbox.Main(sandbox.Options{}, nil)
	if err := b.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = max(code, 1)
	}
	return max(code, farewell(show.NewScreen()))
}

// inside plays the first scenes in the sandbox, and hands over to the program of the others
// when that is built. It returns the exit code.
func inside(o options, bin string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once

	l := &local{Show: show.New(o.Options), bin: bin}
	built := whileBuilt(ctx, bin)
	err := l.Perform(func() { l.perform(built) })
	shown := l.Shown()
	if err == nil {
		_, err = l.While("building what the scenes on a cluster need", func(report func(string)) error { return awaitBuild(ctx, bin, report) })
	}
	if cause := context.Cause(built); errors.Is(cause, errBuild) {
		err = cause
	}
	if err == nil {
		next := filepath.Join(bin, "demo-cluster")
		err = syscall.Exec(next, append([]string{next}, shown.Args()...), os.Environ())
	}
	code := l.End(ctx, err)
	if errors.Is(err, errBuild) {
		l.Title("The end of " + buildLog(bin))
		l.Line(process.Tail(buildLog(bin)))
	}
	return code
}
