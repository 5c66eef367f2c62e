package sched

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Group is routines that are waited for together. Make one with [NewGroup].
type Group struct {
	s      Scheduler
	cancel context.CancelCauseFunc
	wait   func(ended <-chan struct{})

	mu      sync.Mutex
	running int           // guarded by mu
	err     error         // guarded by mu; the first
	ended   chan struct{} // guarded by mu; closed when none runs any more; nil while nobody waits
}

// NewGroup returns a group, and a context for its tasks that ends when one of them returns an
// error, or when all have returned and were waited for.
func NewGroup(ctx context.Context, s Scheduler) (*Group, context.Context) {
	unending := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{s: s, cancel: cancel, wait: func(ended <-chan struct{}) { s.Wait(unending, Forever, ended) }}, ctx
}

// Go starts task. A task may start others.
func (g *Group) Go(task func() error) {
	g.mu.Lock()
	g.running++
	g.mu.Unlock()
	g.s.Go(func() { g.end(task()) })
}

func (g *Group) end(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && g.err == nil {
		g.err = err
		g.cancel(err)
	}
	if g.running--; g.running == 0 && g.ended != nil {
		close(g.ended)
		g.ended = nil
	}
}

// Wait waits until every task has returned, and returns the first error of one. One caller may
// wait at a time.
func (g *Group) Wait() error {
	g.mu.Lock()
	if g.running > 0 {
		ended := make(chan struct{})
		g.ended = ended
		g.mu.Unlock()
		g.wait(ended)
		g.mu.Lock()
	}
	defer g.mu.Unlock()
	g.cancel(g.err)
	return g.err
}

// Each calls do for each of items, for at most n of them at once, and returns when all calls
// have. It does not look at ctx.
func Each[T any](ctx context.Context, s Scheduler, n int, items []T, do func(T)) {
	if len(items) == 1 {
		do(items[0])
		return
	}
	g, _ := NewGroup(ctx, s)
	var begun atomic.Int64
	for range min(n, len(items)) {
		g.Go(func() error {
			for i := begun.Add(1) - 1; i < int64(len(items)); i = begun.Add(1) - 1 {
				do(items[i])
			}
			return nil
		})
	}
	_ = g.Wait() // no task returns an error
}
