package show

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/stage"
)

// Dir is where the demo keeps what it makes, on the sandbox's tmpfs.
const Dir = "/run/demo"

// Kubeconfig is the person's own for the demo's cluster.
const Kubeconfig = Dir + "/kubeconfig"

// ExitInterrupted is what shells make of a program that SIGINT ended.
const ExitInterrupted = 128 + int(syscall.SIGINT)

// Options say how a demo is shown, and what of it has been shown before by another program.
type Options struct {
	Keep, Pace    bool
	Scenes, Facts int           // shown before
	Elapsed       time.Duration // and how long that took
}

// Flags adds the flags to flags that a person gives.
func (o *Options) Flags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.Keep, "keep", false, "before the clean-up, wait, and say how to look around")
	flags.BoolVar(&o.Pace, "pace", false, "wait for Enter before each scene (without a terminal: for 5 seconds)")
}

// Onward adds to flags what one program of the demo tells the next one.
func (o *Options) Onward(flags *pflag.FlagSet) {
	flags.IntVar(&o.Scenes, "scenes", 0, "how many scenes have been shown before")
	flags.IntVar(&o.Facts, "facts", 0, "how many facts have been verified before")
	flags.DurationVar(&o.Elapsed, "took", 0, "how long that took")
}

// Args returns the arguments that say o.
func (o Options) Args() []string {
	return []string{
		fmt.Sprintf("--keep=%t", o.Keep), fmt.Sprintf("--pace=%t", o.Pace),
		fmt.Sprintf("--scenes=%d", o.Scenes), fmt.Sprintf("--facts=%d", o.Facts), fmt.Sprintf("--took=%v", o.Elapsed),
	}
}

// A Scene is one thing to see, played by a D. It fails as package stage says.
type Scene[D any] struct {
	Title, Why string
	Play       func(D, context.Context)
}

// A Show is one performance.
type Show struct {
	Options
	stage.Stage
	*Screen

	began  time.Time
	number int // of the scene
}

// New returns a show that begins now, on standard output.
func New(o Options) *Show {
	s := &Show{Options: o, Screen: NewScreen(), began: time.Now().Add(-o.Elapsed), number: o.Scenes}
	s.facts = o.Facts
	return s
}

// Perform calls play, and returns what it has failed with. When it returns nil everything that was
// shown has been verified.
func (s *Show) Perform(play func()) error {
	err := s.Run(play)
	if err != nil && s.number > s.Scenes {
		return fmt.Errorf("scene %d: %w", s.number, err)
	}
	return err
}

// Play plays a scene of s, by the D that is on it.
func Play[D any](ctx context.Context, s *Show, d D, sc Scene[D]) {
	s.number++
	s.Title(fmt.Sprintf("%d. %s", s.number, sc.Title))
	s.Say(sc.Why)
	s.Gap()
	sc.Play(d, ctx)
}

// Shown returns the options of the program that goes on from here.
func (s *Show) Shown() Options {
	return Options{Keep: s.Keep, Pace: s.Pace, Scenes: s.number, Facts: s.facts, Elapsed: time.Since(s.began)}
}

// End says how the show has ended, with err or well, and returns the exit code. It is interrupted
// if ctx has ended.
func (s *Show) End(ctx context.Context, err error) int {
	switch {
	case err == nil:
		s.Title(fmt.Sprintf("%d scenes, %d facts verified, in %s.", s.number, s.facts, seconds(time.Since(s.began))))
		return 0
	case ctx.Err() != nil:
		s.Title("Interrupted: what runs is stopped.")
		return ExitInterrupted
	default:
		s.Gap()
		s.Wrong(err)
		s.Title("The demo has failed.")
		return 1
	}
}

// During shows that work goes on, and returns how long it took.
func (s *Show) During(label string, work func() error) time.Duration {
	took, err := s.While(label, func(func(string)) error { return work() })
	if err != nil {
		s.Fail("%s: %w", label, err)
	}
	return took
}

// Step is During, and a line that stays when work has succeeded.
func (s *Show) Step(label string, work func() error) {
	s.OK("%s %s", label, s.Took(s.During(label, work)))
}

// Await waits until look finds nothing wrong, and shows meanwhile what is. It returns how
// long that took.
func (s *Show) Await(ctx context.Context, label string, look func(context.Context) error) time.Duration {
	return s.awaitFor(ctx, process.Patience, label, look)
}

// awaitFor is Await of what may take as long as limit.
func (s *Show) awaitFor(ctx context.Context, limit time.Duration, label string, look func(context.Context) error) time.Duration {
	took, err := s.While(label, func(report func(string)) error {
		return process.Await(ctx, limit, func(ctx context.Context) error {
			err := look(ctx)
			if err != nil {
				report(err.Error())
			}
			return err
		})
	})
	if err != nil {
		s.Fail("%s: %w", label, err)
	}
	return took
}

// Pause gives the person time to read, if asked to.
func (s *Show) Pause(ctx context.Context) {
	if !s.Pace {
		return
	}
	if !s.terminal {
		s.Must(Sleep(ctx, 5*time.Second))
		return
	}
	fmt.Fprintf(s.out, "\n%s", s.in(dim, margin+"Enter goes on … "))
	s.Must(s.ReadLine(ctx))
}

// ReadLine waits for Enter, or where standard input has ended for the end of ctx.
func (s *Show) ReadLine(ctx context.Context) error {
	entered := make(chan struct{})
	go func() {
		one := make([]byte, 1)
		for {
			n, err := os.Stdin.Read(one)
			if err != nil {
				return
			}
			if n == 1 && one[0] == '\n' {
				close(entered)
				return
			}
		}
	}()
	select {
	case <-entered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Sleep waits for d, or for the end of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
