package sched_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// bubble is the clock of a synctest bubble.
type bubble struct{}

func (bubble) Now() protocol.Instant                  { return protocol.Instant{Wall: time.Now()} }
func (bubble) After(d time.Duration) <-chan time.Time { return time.After(d) }

// TestWait: Wait says what has come, and no event that is nil comes.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sched.Goroutines(bubble{})
		come, token := make(chan struct{}), make(chan struct{}, 1)
		close(come)
		token <- struct{}{}
		ended, cancel := s.WithTimeout(t.Context(), time.Second, errors.ErrUnsupported)
		defer cancel()
		for what, is := range map[string]struct{ got, want int }{
			"the first":            {s.Wait(t.Context(), sched.Forever, come), 0},
			"the second":           {s.Wait(t.Context(), time.Hour, nil, token), 1},
			"a token that is gone": {s.Wait(t.Context(), time.Hour, nil, token), sched.Passed},
			"the context":          {s.Wait(ended, sched.Forever, nil), sched.Ended},
		} {
			if is.got != is.want {
				t.Errorf("%s: Wait = %d; want %d", what, is.got, is.want)
			}
		}
		if cause := context.Cause(ended); !errors.Is(cause, errors.ErrUnsupported) {
			t.Errorf("the context's cause is %v", cause)
		}
		if sched.Pause(ended, s, time.Hour) || !sched.Pause(t.Context(), s, time.Hour) {
			t.Error("Pause does not say which has come")
		}
	})
}

// TestLocks: a key is given to those who wait in their order, and one whose context ends is
// passed over.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sched.Goroutines(bubble{})
		var locks sched.Locks[string]
		release, err := locks.Lock(t.Context(), s, "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := locks.Lock(t.Context(), s, "b")
		if err != nil {
			t.Fatal("another key waits")
		}
		other()
		var mu sync.Mutex
		var had []int
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				ctx := t.Context()
				if i == 1 {
					var cancel context.CancelFunc
					ctx, cancel = s.WithTimeout(ctx, time.Second, errors.ErrUnsupported)
					defer cancel()
				}
				release, err := locks.Lock(ctx, s, "a")
				if (err != nil) != (i == 1) {
					t.Errorf("%d: %v", i, err)
				}
				if err != nil {
					return
				}
				mu.Lock()
				had = append(had, i)
				mu.Unlock()
				time.Sleep(time.Second)
				release()
			})
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		release()
		all.Wait()
		if !slices.Equal(had, []int{0, 2, 3}) {
			t.Errorf("had by %v; want 0, 2, 3", had)
		}
		if release, err = locks.Lock(t.Context(), s, "a"); err != nil {
			t.Errorf("the key stays locked: %v", err)
		}
		release()
	})
}

// TestLocksHammered: one at a time has a key, whoever gives up meanwhile.
func TestLocksHammered(t *testing.T) {
	s := sched.Goroutines(bubble{})
	var locks sched.Locks[int]
	var has atomic.Int32
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for range 50 {
				ctx, cancel := s.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond, errors.ErrUnsupported)
				release, err := locks.Lock(ctx, s, 0)
				if err == nil {
					if n := has.Add(1); n != 1 {
						t.Errorf("%d have the key", n)
					}
					has.Add(-1)
					release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	ctx, cancel := s.WithTimeout(t.Context(), time.Minute, errors.ErrUnsupported)
	defer cancel()
	if _, err := locks.Lock(ctx, s, 0); err != nil {
		t.Error("the key is lost")
	}
}

// TestGroup: Wait returns the first error once all have ended, also those that tasks have
// started; the error ends the context.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sched.Goroutines(bubble{})
		g, ctx := sched.NewGroup(t.Context(), s)
		var ended atomic.Int32
		g.Go(func() error {
			g.Go(func() error { sched.Pause(context.Background(), s, time.Hour); ended.Add(1); return nil })
			return errors.ErrUnsupported
		})
		g.Go(func() error { s.Wait(ctx, sched.Forever); ended.Add(1); return errors.New("a later one") })
		if err := g.Wait(); !errors.Is(err, errors.ErrUnsupported) || ended.Load() != 2 {
			t.Errorf("Wait = %v with %d ended", err, ended.Load())
		}
		if g, _ := sched.NewGroup(t.Context(), s); g.Wait() != nil {
			t.Error("an empty group has an error")
		}
	})
}

// TestEach: every item is done once, so many at a time.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sched.Goroutines(bubble{})
		began := time.Now()
		var done [10]atomic.Int32
		items := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
		sched.Each(t.Context(), s, 3, items, func(i int) { done[i].Add(1); time.Sleep(time.Second) })
		for i := range done {
			if n := done[i].Load(); n != 1 {
				t.Errorf("item %d was done %d times", i, n)
			}
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("ten seconds of work, three at a time, took %v", took)
		}
		sched.Each(t.Context(), s, 3, items[:0], func(int) { t.Error("nothing was done") })
	})
}
