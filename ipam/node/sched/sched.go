// Package sched starts what an agent does at the same time, has it wait, and gives it the
// time and chance. All of that goes through a [Scheduler], and nothing else of the agent
// starts a goroutine, selects, reads a clock or draws a number: so a simulation can decide
// who goes on when, and one seed be one run.
package sched

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Scheduler runs routines. All methods may be called at once.
type Scheduler interface {
	// Now returns the time by the machine's clocks.
	Now() protocol.Instant
	// Go starts f beside its caller.
	Go(f func())
	// Wait waits until one of events can be received from, which it receives, until d has
	// passed, or until ctx ends. It returns the index of the event, [Passed] or [Ended];
	// of several any. An event that is nil does not come. There are two events at most.
	Wait(ctx context.Context, d time.Duration, events ...<-chan struct{}) int
	// WithTimeout returns a context that ends with cause once d has passed. The caller
	// calls cancel when it needs the context no more.
	WithTimeout(ctx context.Context, d time.Duration, cause error) (_ context.Context, cancel context.CancelFunc)
	// Uint64N returns a random number in [0, n); n is positive.
	Uint64N(n uint64) uint64
}

// What [Scheduler.Wait] returns where no event has come.
const (
	Passed = -1 // the duration has passed
	Ended  = -2 // the context has ended
)

// Forever is how long [Scheduler.Wait] waits that ends by an event or its context alone.
const Forever time.Duration = math.MaxInt64

// Pause waits until d has passed or ctx ends. It reports whether it was the former.
func Pause(ctx context.Context, s Scheduler, d time.Duration) bool { return s.Wait(ctx, d) == Passed }

// N returns a random duration in [0, d); of a d that is not positive 0.
func N(s Scheduler, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(s.Uint64N(uint64(d)))
}

// Signal puts an event into c, which has room for one, unless one is there.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// EndsWithin reports whether ctx has ended, or has a deadline that is d away at most.
func EndsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= d
}

// A Clock tells the time and waits.
type Clock interface {
	Now() protocol.Instant
	After(d time.Duration) <-chan time.Time
}

// Goroutines returns the Scheduler of a process: goroutines that wait by clock.
func Goroutines(clock Clock) Scheduler { return goroutines{clock} }

type goroutines struct{ Clock }

func (goroutines) Go(f func()) { go f() }

func (g goroutines) Wait(ctx context.Context, d time.Duration, events ...<-chan struct{}) int {
	var event [2]<-chan struct{}
	if copy(event[:], events) < len(events) {
		panic("sched: more events than two")
	}
	var passed <-chan time.Time
	if d < Forever {
		passed = g.After(d)
	}
	select {
	case <-event[0]:
		return 0
	case <-event[1]:
		return 1
	case <-passed:
		return Passed
	case <-ctx.Done():
		return Ended
	}
}

func (goroutines) WithTimeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, cause)
}

func (goroutines) Uint64N(n uint64) uint64 { return rand.Uint64N(n) }
