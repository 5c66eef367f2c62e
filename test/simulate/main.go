// Command simulate plays the simulation of test/simulation: many seeds until one
// fails, or one seed with its trace. `make simulate` and `make replay` run it;
// docs/contributing/simulation.md explains what it prints.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/simulation"
)

// options are the flags.
type options struct {
	seeds, from uint64
	replay      bool
	seed        uint64
	schedule    string
	fault       simulation.Fault
	all         bool
	every       time.Duration
	overlay     string
}

func main() {
	var o options
	flags := flag.NewFlagSet("simulate", flag.ExitOnError) // what is played has flags of its own among the process's
	flags.Uint64Var(&o.seeds, "seeds", 100_000, "how many seeds to play")
	flags.Uint64Var(&o.from, "from", 0, "the first of them")
	flags.BoolVar(&o.replay, "replay", false, "play one run and print its trace")
	flags.Uint64Var(&o.seed, "seed", 0, "the seed to replay")
	flags.StringVar(&o.schedule, "schedule", "", "the schedule to replay instead of a seed's, as a shrunk failure prints it")
	fault := flags.String("fault", "", "the deliberate fault to switch on, for example M7")
	flags.BoolVar(&o.all, "all", false, "go on after a failure, and only list what fails")
	flags.StringVar(&o.overlay, "overlay", "", "write the product with its mutants into this folder, and print what go build -overlay takes")
	flags.DurationVar(&o.every, "every", 5*time.Second, "how often to say how far it is")
	_ = flags.Parse(os.Args[1:]) // it ends the program where they are wrong
	debug.SetGCPercent(400)      // worlds are small and short-lived
	o.fault = simulation.Fault(*fault)
	failed, err := run(o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func run(o options, out io.Writer) (failed bool, err error) {
	if o.fault != simulation.NoFault && !slices.ContainsFunc(simulation.Bugs(), func(b simulation.Bug) bool { return b.Fault == o.fault }) {
		return false, fmt.Errorf("fault %q: there is no such fault; docs/contributing/simulation.md lists them", o.fault)
	}
	if o.overlay != "" {
		return false, writeOverlay(o.overlay, out)
	}
	if err := simulation.SwitchOn(o.fault); err != nil {
		return false, err
	}
	switch {
	case o.schedule != "":
		s, err := simulation.ParseSchedule(o.schedule)
		if err != nil {
			return false, err
		}
		return tell(out, "the schedule", simulation.PlayTrace(s, o.fault)), nil
	case o.replay:
		return replay(o, out), nil
	}
	return simulate(o, out), nil
}

// writeOverlay writes the mutants of the repository that stands here.
func writeOverlay(dir string, out io.Writer) error {
	root, err := programs.Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path, err := simulation.WriteOverlay(root, dir)
	if err == nil {
		fmt.Fprintln(out, path)
	}
	return err
}

// replay plays one seed, and if it fails shrinks it.
func replay(o options, out io.Writer) (failed bool) {
	long := simulation.Trace(o.seed, o.fault)
	tell(out, fmt.Sprintf("seed %d", o.seed), long)
	if long.Failure == nil {
		return false
	}
	shrink(o, out, long)
	return true
}

func tell(out io.Writer, what string, o simulation.Outcome) (failed bool) {
	for _, line := range o.Trace {
		fmt.Fprintln(out, line)
	}
	if o.Failure == nil {
		fmt.Fprintf(out, "%s, %d acts: every invariant held\n", what, o.Acts)
		return false
	}
	fmt.Fprintf(out, "%s, %d acts: breaks %v\n", what, o.Acts, o.Failure)
	return true
}

// shrink prints the shortest run it finds that breaks what long breaks.
func shrink(o options, out io.Writer, long simulation.Outcome) {
	fmt.Fprintf(out, "\nshrinking %d acts ...\n", long.Acts)
	short, tries := simulation.Shrink(long.Schedule, o.fault)
	fmt.Fprintf(out, "%d acts are left after %d runs:\n\n", short.Acts, tries)
	tell(out, "shrunk", simulation.PlayTrace(short, o.fault))
	fmt.Fprintf(out, "\nschedule: %v\n", short)
}

// simulate plays seeds on every processor until one fails.
func simulate(o options, out io.Writer) (failed bool) {
	var (
		mu       sync.Mutex
		next     = o.from
		done     uint64
		failures uint64 // of -all
		first    *uint64
		stats    = map[string]int{}
		begun    = time.Now()
		said     = begun
		worker   sync.WaitGroup
	)
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if next >= o.from+o.seeds || first != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	finish := func(seed uint64, got simulation.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		done++
		for what, n := range got.Stats {
			stats[what] += n
		}
		if got.Failure != nil && o.all {
			failures++
			fmt.Fprintf(out, "seed %d breaks %v\n", seed, got.Failure)
		} else if got.Failure != nil && (first == nil || seed < *first) {
			first = &seed
		}
		if time.Since(said) >= o.every {
			said = time.Now()
			fmt.Fprintf(out, "%d of %d seeds, %.0f seeds/s\n", done, o.seeds, float64(done)/time.Since(begun).Seconds())
		}
	}
	for range runtime.GOMAXPROCS(0) {
		worker.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				finish(seed, simulation.Run(seed, o.fault))
			}
		})
	}
	worker.Wait()
	if first != nil {
		long := simulation.Trace(*first, o.fault)
		fmt.Fprintf(out, "seed %d breaks %v\n", *first, long.Failure)
		shrink(o, out, long)
		return true
	}
	if failures > 0 {
		fmt.Fprintf(out, "%d of %d seeds fail\n", failures, done)
		return true
	}
	fmt.Fprintf(out, "%d seeds, %.0f seeds/s: every invariant held\n", done, float64(done)/time.Since(begun).Seconds())
	for _, what := range slices.Sorted(maps.Keys(stats)) {
		fmt.Fprintf(out, "  %-20s %8.2f a seed\n", what, float64(stats[what])/float64(done))
	}
	return false
}
