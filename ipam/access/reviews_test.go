package access_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/access"
)

// authorizer answers as it is told, and counts.
type authorizer struct {
	allowed, away atomic.Bool
	calls         atomic.Int32
}

var errAway = errors.New("the API server cannot be reached")

func (a *authorizer) ask(ctx context.Context, _, _ string) (bool, error) {
	a.calls.Add(1)
	select { // it takes a moment
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if a.away.Load() {
		return false, errAway
	}
	return a.allowed.Load(), nil
}

// reviews runs Reviews on the clock of the test's bubble until the test ends.
func reviews(t *testing.T) (*authorizer, *access.Reviews) {
	a := &authorizer{}
	r := access.NewReviews(time.Now, a.ask)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return a, r
}

func mayUse(t *testing.T, r *access.Reviews, allowed bool, err error) {
	t.Helper()
	got, gotErr := r.MayUse(t.Context(), "ns", "lan")
	if got != allowed || !errors.Is(gotErr, err) {
		t.Errorf("got %t, %v; want %t, %v", got, gotErr, allowed, err)
	}
}

func (a *authorizer) wantCalls(t *testing.T, n int32) {
	t.Helper()
	synctest.Wait()
	if got := a.calls.Load(); got != n {
		t.Errorf("the authorizer was asked %d times; want %d", got, n)
	}
}

func TestAnswersHoldForTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := reviews(t)
		a.allowed.Store(true)
		mayUse(t, r, true, nil)
		time.Sleep(access.Fresh - time.Second)
		mayUse(t, r, true, nil)
		a.wantCalls(t, 1)

		// Used when it is no longer fresh, it is renewed without making anybody wait.
		a.allowed.Store(false)
		time.Sleep(2 * time.Second)
		mayUse(t, r, true, nil)
		time.Sleep(time.Second)
		mayUse(t, r, false, nil)
		a.wantCalls(t, 2)

		// Nobody hears of a binding: what was denied is soon asked for again.
		a.allowed.Store(true)
		time.Sleep(access.HoldDenied)
		mayUse(t, r, true, nil)
		a.wantCalls(t, 3)
	})
}

func TestWhileTheAPIServerIsAwayAnswersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := reviews(t)
		a.allowed.Store(true)
		mayUse(t, r, true, nil)
		a.away.Store(true)
		for range int(access.Hold/time.Minute) - 1 { // every use tries to renew it
			time.Sleep(time.Minute)
			mayUse(t, r, true, nil)
			calls := a.calls.Load()
			mayUse(t, r, true, nil) // and those who come at once do not wait for it again
			if a.calls.Load() > calls+1 {
				t.Errorf("%d calls for one use", a.calls.Load()-calls)
			}
		}
		time.Sleep(time.Minute)
		mayUse(t, r, false, errAway)
		a.away.Store(false)
		mayUse(t, r, true, nil)
	})
}

// What was revoked ends with the first use after two minutes, however long nobody has
// used it.
func TestRevokedWhileNobodyUsedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := reviews(t)
		a.allowed.Store(true)
		mayUse(t, r, true, nil)
		a.allowed.Store(false)
		time.Sleep(access.Stale)
		mayUse(t, r, false, nil)
		a.wantCalls(t, 2)
	})
}

func TestThoseWhoAskTheSameShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := reviews(t)
		a.allowed.Store(true)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { mayUse(t, r, true, nil) })
		}
		all.Wait()
		a.wantCalls(t, 1)
	})
}

// Whoever gives up takes nobody with it.
func TestOneWhoGivesUpFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := reviews(t)
		a.allowed.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := r.MayUse(ctx, "ns", "lan"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v; want it canceled", err)
			}
		})
		synctest.Wait() // it asks
		var second sync.WaitGroup
		second.Go(func() { mayUse(t, r, true, nil) })
		synctest.Wait() // it waits for the first one's answer
		cancel()
		first.Wait()
		second.Wait()
		a.wantCalls(t, 2)
	})
}

// TestACallThatPanics: a panic while the authorizer is asked, which the server of the node's
// socket contains, does not keep later callers waiting.
func TestACallThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := access.NewReviews(time.Now, func(context.Context, string, string) (bool, error) {
			if calls++; calls == 1 {
				panic("a fault")
			}
			return true, nil
		})
		func() {
			defer func() { _ = recover() }()
			_, err := r.MayUse(t.Context(), "shop", "lan")
			t.Errorf("the first call returns %v; want a panic", err)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if allowed, err := r.MayUse(ctx, "shop", "lan"); !allowed || err != nil {
			t.Errorf("the next call returns %v, %v; want the authorizer asked again", allowed, err)
		}
	})
}

// What is kept has a bound, whatever namespaces come and go.
func TestTheOldestAnswerGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 4096
		var calls int
		r := access.NewReviews(time.Now, func(context.Context, string, string) (bool, error) { calls++; return true, nil })
		ask := func(namespace int) {
			if ok, err := r.MayUse(t.Context(), string(rune(namespace)), "lan"); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		for i := range bound + 1 {
			ask(i)
			time.Sleep(time.Millisecond)
		}
		ask(bound) // the last is known
		ask(1)
		if calls != bound+1 {
			t.Errorf("%d calls; want %d", calls, bound+1)
		}
		ask(0) // the first is not any more
		if calls != bound+2 {
			t.Errorf("%d calls; want %d", calls, bound+2)
		}
	})
}
