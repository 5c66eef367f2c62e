package simulation

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simTimer ends a context.
type simTimer struct {
	at  time.Duration
	end func()
}

func (a *simAgent) Now() protocol.Instant { return a.n.now() }

func (a *simAgent) Uint64N(n uint64) uint64 { return a.n.w.rng.uint64N(n) }

func (a *simAgent) Go(f func()) {
	w := a.n.w
	a.routines = append(a.routines, &routine{ready: func() bool { return true }, on: w.coroutine(f, func(why any) {
		a.dead = true
		if _, ended := why.(processEnd); !ended { // it may have left locks behind
			w.logf("%s", debug.Stack())
			w.fail(I1, "%s panics: %v", a.n.machine, why)
		}
	})})
}

func (a *simAgent) Wait(ctx context.Context, d time.Duration, events ...<-chan struct{}) int {
	w := a.n.w
	deadline := w.now + d
	if d > sched.Forever-w.now {
		deadline = sched.Forever
	}
	for {
		for i, e := range events {
			select {
			case <-e:
				return i
			default:
			}
		}
		switch {
		case ctx.Err() != nil:
			return sched.Ended
		case w.now >= deadline:
			return sched.Passed
		}
		a.pause(func() bool { return w.now >= deadline || ctx.Err() != nil || slices.ContainsFunc(events, come) })
	}
}

// come reports whether c can be received from. Nobody waits to send on it.
func come(c <-chan struct{}) bool {
	if len(c) > 0 {
		return true
	}
	select {
	case <-c: // it is closed
		return true
	default:
		return false
	}
}

func (a *simAgent) WithTimeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &simTimer{at: a.n.w.now + d, end: func() { cancel(cause) }}
	a.timers = append(a.timers, t)
	return ctx, func() {
		a.timers = slices.DeleteFunc(a.timers, func(o *simTimer) bool { return o == t })
		cancel(context.Canceled)
	}
}

// resume has r go on, and then the node see what has become of its disk.
func (a *simAgent) resume(r *routine) {
	a.crew.resume(a.n.w, r)
	if a.dead && a.n.agent == a {
		if a.n.failing {
			a.n.failing = false
			a.n.powerOff()
		} else {
			a.n.crash()
		}
		return
	}
	a.n.refresh()
}

// goOn resumes the routines that are ready, each once; some wait for the next time.
func (a *simAgent) goOn() (any bool) {
	w := a.n.w
	for i := 0; i < len(a.timers); {
		if t := a.timers[i]; t.at <= w.now {
			a.timers = slices.Delete(a.timers, i, i+1)
			t.end()
			continue
		}
		i++
	}
	ready := slices.DeleteFunc(slices.Clone(a.routines), func(r *routine) bool { return r.ready == nil || !r.ready() })
	for len(ready) > 0 && a.n.agent == a && w.failure == nil {
		i := w.rng.IntN(len(ready))
		r := ready[i]
		ready = slices.Delete(ready, i, i+1)
		if !w.calm && w.one(12) || !slices.Contains(a.routines, r) || r.ready == nil || !r.ready() {
			continue
		}
		any = true
		a.resume(r)
	}
	return any
}

// mayDie is a moment between what was committed and what follows of it.
func (a *simAgent) mayDie() {
	if !a.untold {
		return
	}
	a.untold = false
	w := a.n.w
	if w.calm {
		return
	}
	switch fate := w.rng.IntN(150); {
	case fate == 149:
		w.logf("%s: power fails after a commit", a.n.machine)
		a.n.failing = true
		panic(processEnd{})
	case fate >= 146:
		w.logf("%s: dies after a commit", a.n.machine)
		panic(processEnd{})
	}
}
