// Command bench measures Tenure on this machine, beside the reference plugins
// host-local and static, and says which of its aims are met. `make bench` builds
// what it needs and runs it; docs/operations/performance.md explains the figures.
//
// Control plane, agent and stores are in a sandbox, on a real disk with every
// fsync, and are gone when it ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
	"github.com/tenure-ipam/tenure/test/stage"
)

const usage = `bench measures Tenure on this machine, in about twenty minutes. "make bench"
builds what it needs and runs it. It needs root.

It prints tables, and writes every figure as a line of JSON beside them. An aim
that is not met is reported and is no failure. Figures that are not what the last
run has written to the same file are shown beside what they were.

Flags:
`

// options are the flags.
type options struct {
	quick  bool
	only   []string
	json   string
	others []ipamPlugin // measured beside Tenure's
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	os.Exit(sandbox.Main(sandbox.Options{Disk: true}, func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
		if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	}))
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage, flags.FlagUsages()) }
	flags.BoolVar(&o.quick, "quick", false, "a tenth of the samples: to see that it works, not for figures")
	flags.StringSliceVar(&o.only, "only", nil, "measure these alone: "+strings.Join(names, ", "))
	flags.StringVar(&o.json, "json", "", "file for the figures as lines of JSON (default: bin/bench.json of a whole run, else none)")
	with := flags.StringArray("with", nil, "NAME=PROGRAM,FILE: measure this IPAM plugin too, where single and 16 ADDs are; FILE has its \"ipam\" section")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("%w: see bench --help", err)
	}
	for _, text := range *with {
		p, err := parsePlugin(text)
		if err != nil {
			return o, err
		}
		o.others = append(o.others, p)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: see bench --help", flags.Arg(0))
	}
	if o.json == "" && !o.quick && len(o.only) == 0 {
		o.json = "bin/bench.json"
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("--only %s: there is %s", name, strings.Join(names, ", "))
		}
	}
	return o, nil
}

// A part is one kind of measurement.
type part struct {
	name    string
	doing   string // shown meanwhile
	cluster bool   // it needs a node in a cluster
	measure func(*bench, context.Context)
}

// parts are run in this order: the agent's memory before it has worked, and the
// allocator, which needs the processors for itself, when the rest has ended.
var parts = []part{
	{"size", "sizes of the programs", false, (*bench).size},
	{"rss", "memory of an idle agent", true, (*bench).rss},
	{"one", "one ADD and one DEL at a time", true, (*bench).one},
	{"sixteen", "16 ADDs and DELs at once", true, (*bench).sixteen},
	{"socket", "64 callers on the node socket", true, (*bench).socket},
	{"reboot", "a thousand ADDs at once", true, (*bench).reboot},
	{"kinds", "claims, static addresses and a full pool on two nodes", true, (*bench).adds},
	{"writes", "writes to the API server (six minutes, mostly waiting)", true, (*bench).writes},
	{"claims", "claims at once", true, (*bench).claims},
	{"pods", "an agent's memory per pod", true, (*bench).podMemory},
	{"controller", "a controller with 100,000 claims (some ten minutes)", true, (*bench).controller},
	{"attach", "the meta-plugin with do-nothing delegates", false, (*bench).attach},
	{"allocator", "the allocator alone", false, (*bench).allocator},
}

// bench is one run of the program.
type bench struct {
	options
	stage.Stage
	dir    string // on a real disk; has the plugins
	root   string // of the repository
	node   *node  // while a part needs one
	report report
	// generation counts the sets of sandboxes, whose IDs differ by it.
	generation int
}

func newBench(o options) (*bench, error) {
	root, err := programs.Root()
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, dir: sandbox.Disk(), root: root}
	return b, b.install()
}

// run measures what o asks for and reports it.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	b, err := newBench(o)
	if err != nil {
		return err
	}
	b.report.order = []name{viaAgent, static, inLocal, hostLocal}
	for _, p := range o.others {
		b.report.order = append(b.report.order, p.name)
	}
	if err := b.report.describe(b); err != nil {
		return err
	}
	for _, p := range parts {
		if len(o.only) > 0 && !slices.Contains(o.only, p.name) {
			continue
		}
		err := b.Run(func() {
			b.prepare(ctx, p, progress)
			fmt.Fprintf(progress, "bench: %s\n", p.doing)
			p.measure(b, ctx)
		})
		if err != nil {
			b.report.print(out) // what was measured before
			return errors.Join(fmt.Errorf("%s: %w", p.name, err), b.node.failed())
		}
	}
	if err := b.node.stop(); err != nil {
		return err
	}
	if o.json == "" {
		b.report.print(out)
		return nil
	}
	before, err := readEarlier(o.json)
	if err != nil {
		return err
	}
	b.report.tables = append(b.report.tables, before.changed(b.report.figures))
	b.report.print(out)
	return b.report.writeJSON(o.json)
}

// prepare starts the node before the first part that needs it, and stops it before
// the first that does not.
func (b *bench) prepare(ctx context.Context, p part, progress io.Writer) {
	switch {
	case !p.cluster:
		b.Must(b.node.stop())
		b.node = nil
	case b.node == nil:
		fmt.Fprintln(progress, "bench: start of a control plane and a node")
		b.node = &node{Stage: &b.Stage, dir: filepath.Join(b.dir, "node")}
		b.node.start(ctx, b.root)
	}
}

// samples is n, or a tenth of it with --quick.
func (b *bench) samples(n int) int {
	if b.quick {
		return max(1, n/10)
	}
	return n
}
