package agentapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestHangUpEndsTheHandler(t *testing.T) {
	entered, cause := make(chan struct{}), make(chan error, 1)
	r := serve(t, testLimits(), func(ctx context.Context, _ Request) Response {
		close(entered)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return Response{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() { _, err := Once(ctx, time.Minute, r.socket, Request{Verb: Add}); called <- err }()
	<-entered
	cancel()
	if err := <-cause; !errors.Is(err, ErrHungUp) {
		t.Errorf("the handler's context ended with %v; want ErrHungUp", err)
	}
	if err := <-called; !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v; want ErrNoAnswer and Canceled", err)
	}
}

func TestHandlerDeadline(t *testing.T) {
	left := make(chan time.Duration, 1)
	lim := testLimits()
	lim.Request = time.Minute
	r := serve(t, lim, func(ctx context.Context, _ Request) Response {
		d, _ := ctx.Deadline()
		left <- time.Until(d)
		return Response{}
	})
	for _, tt := range []struct {
		millis int64
		most   time.Duration
	}{{0, time.Minute}, {5000, 5 * time.Second}, {1 << 62, time.Minute}, {-1, time.Minute}} {
		nc := r.raw(t)
		if _, err := nc.Write(mustFrame(t, Request{Version: Version, Verb: Add, DeadlineMillis: tt.millis})); err != nil {
			t.Fatal(err)
		}
		if got := <-left; got > tt.most || got < tt.most/2 {
			t.Errorf("deadlineMillis %d: the handler has %v; want about %v", tt.millis, got, tt.most)
		}
	}
}

// TestAfter: what a handler leaves until its answer is out waits for that, and its panic
// ends neither the server nor the connection.
func TestAfter(t *testing.T) {
	answered, left := make(chan struct{}), make(chan struct{}, 2)
	r := serve(t, testLimits(), func(context.Context, Request) Response {
		return Response{After: func() {
			<-answered
			left <- struct{}{}
			panic("bad day")
		}}
	})
	c := r.dial(t)
	for i := range 2 {
		if _, err := c.Call(context.Background(), time.Minute, Request{Verb: Add}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			close(answered)
		}
		<-left
	}
}

func TestPanicIsContained(t *testing.T) {
	var panics atomic.Bool
	panics.Store(true)
	r := serve(t, testLimits(), func(context.Context, Request) Response {
		if panics.Load() {
			panic("bad day")
		}
		return Response{}
	})
	c := r.dial(t)
	resp, err := c.Call(context.Background(), time.Minute, Request{Verb: Add})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Error == nil || resp.Error.Code != CodeInternal || !strings.Contains(resp.Error.Msg, "bad day") {
		t.Errorf("got %+v; want code %d naming the panic", resp.Error, CodeInternal)
	}
	panics.Store(false)
	if resp, err := c.Call(context.Background(), time.Minute, Request{Verb: Add}); err != nil || resp.Error != nil {
		t.Errorf("after a panic: got %+v, %v; want success", resp, err)
	}
}

func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	r := serve(t, testLimits(), func(ctx context.Context, _ Request) Response {
		close(entered)
		<-leave
		if ctx.Err() != nil {
			return Fail(CodeInternal, "context ended: %v", context.Cause(ctx))
		}
		return Response{}
	})
	idle := r.raw(t)
	if _, err := Once(context.Background(), time.Minute, r.socket, Request{Verb: Ping}); err != nil {
		t.Fatal(err) // accepted after idle: idle is being served too
	}
	answer := make(chan error, 1)
	busy := r.dial(t)
	go func() {
		resp, err := busy.Call(context.Background(), time.Minute, Request{Verb: Add})
		if err == nil && resp.Error != nil {
			err = resp.Error
		}
		answer <- err
	}()
	<-entered
	r.stop()
	if _, err := io.ReadAll(idle); err != nil {
		t.Errorf("idle connection: %v; want EOF", err)
	}
	if _, err := Connect(context.Background(), time.Minute, r.socket); !errors.Is(err, ErrNoAgent) {
		t.Errorf("a new connection while stopping: %v; want ErrNoAgent", err)
	}
	close(leave)
	if err := <-answer; err != nil {
		t.Errorf("request under way while the server stopped: %v; want success", err)
	}
	if err := <-r.done; err != nil {
		t.Errorf("Serve returned %v; want nil", err)
	}
}

// hookless is a context whose hooks run too late to be seen.
type hookless struct{ context.Context }

func (hookless) AfterFunc(func()) (stop func() bool) { return func() bool { return true } }

// Value hides what context would hook on to instead.
func (hookless) Value(any) any { return nil }

// TestStopClosesTheListenerFirst: whoever sees its idle connection closed finds no server
// any more, although the accepting has ended by the context and not by the listener.
func TestStopClosesTheListenerFirst(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	lim := testLimits()
	lim.Conns = 2 // with both in use nothing is accepted
	ctx, stop := context.WithCancel(t.Context())
	entered, leave, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	h := handlerFunc(func(context.Context, Request) Response { close(entered); <-leave; return Response{} })
	go func() { ended <- Serve(hookless{ctx}, ln, h, lim, slog.New(slog.DiscardHandler)) }()
	r := &rig{socket: socket}
	idle := r.raw(t)
	busy := r.dial(t)
	answer := make(chan error, 1)
	go func() { _, err := busy.Call(context.Background(), time.Minute, Request{Verb: Add}); answer <- err }()
	<-entered // accepted after idle: idle is being served too
	stop()
	if _, err := io.ReadAll(idle); err != nil {
		t.Errorf("idle connection: %v; want EOF", err)
	}
	if _, err := Connect(context.Background(), time.Minute, socket); !errors.Is(err, ErrNoAgent) {
		t.Errorf("a new connection while stopping: %v; want ErrNoAgent", err)
	}
	close(leave)
	if err := errors.Join(<-answer, <-ended); err != nil {
		t.Errorf("the request under way, and Serve: %v", err)
	}
}

func TestStopEndsContextsAfterDrain(t *testing.T) {
	entered := make(chan struct{})
	lim := testLimits()
	lim.Drain = time.Millisecond
	r := serve(t, lim, func(ctx context.Context, _ Request) Response {
		close(entered)
		<-ctx.Done()
		return Fail(CodeTryAgainLater, "%v", context.Cause(ctx))
	})
	c := r.dial(t)
	go func() { <-entered; r.stop() }()
	resp, err := c.Call(context.Background(), time.Minute, Request{Verb: Add})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Error == nil || resp.Error.Msg != ErrStopped.Error() {
		t.Errorf("got %+v; want %q", resp.Error, ErrStopped)
	}
}

func TestConnectionLimit(t *testing.T) {
	lim := testLimits()
	lim.Conns = 2
	entered, leave := make(chan struct{}), make(chan struct{})
	r := serve(t, lim, func(context.Context, Request) Response {
		entered <- struct{}{}
		<-leave
		return Response{}
	})
	done := make(chan error)
	for range 3 {
		go func() {
			_, err := Once(context.Background(), time.Minute, r.socket, Request{Verb: Add})
			done <- err
		}()
	}
	<-entered
	<-entered
	select {
	case <-entered:
		t.Error("a third connection is served; want 2 at most")
	case <-time.After(20 * time.Millisecond):
	}
	leave <- struct{}{}
	<-entered
	close(leave)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestLimitsValidate(t *testing.T) {
	if err := DefaultLimits().validate(); err != nil {
		t.Errorf("DefaultLimits: %v", err)
	}
	err := Limits{}.validate()
	for _, field := range []string{"Conns", "Idle", "Request", "Write", "Drain"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Limits{}: got %v; want %s named", err, field)
		}
	}
}
