package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollEvery is how far apart the looks of Await are.
const pollEvery = 20 * time.Millisecond

// final is an error that waiting does not mend.
type final struct{ error }

// Final returns err as one that ends an [Await].
func Final(err error) error { return final{err} }

// Await calls look until it finds nothing wrong, or something [Final], or limit or ctx
// ends; then it returns what was wrong last.
func Await(ctx context.Context, limit time.Duration, look func(context.Context) error) error {
	deadline, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		err := look(deadline)
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[final](err); ok {
			return f.error
		}
		if deadline.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-deadline.Done():
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
		case deadline.Err() != nil:
			return fmt.Errorf("not within %v: %w", limit, last)
		}
	}
}

// A Task is something that goes on beside its caller.
type Task struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when it has ended
	err    error         // how it has
}

// Go begins work, whose context lasts until Stop whatever becomes of ctx.
func Go(ctx context.Context, work func(context.Context) error) *Task {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return newTask(cancel, func() error { return work(ctx) })
}

func newTask(cancel context.CancelFunc, work func() error) *Task {
	t := &Task{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		t.err = work()
	}()
	return t
}

// Running reports whether the task has not ended.
func (t *Task) Running() bool {
	select {
	case <-t.ended:
		return false
	default:
		return true
	}
}

// Stop ends the task's context, waits for its end, and returns how it has ended. It can
// be called again.
func (t *Task) Stop() error {
	t.cancel()
	<-t.ended
	return t.err
}
