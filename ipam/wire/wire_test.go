package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// handlerFunc makes a function a Handler.
type handlerFunc func(context.Context, Request) Response

func (f handlerFunc) Serve(ctx context.Context, req Request) Response { return f(ctx, req) }

func testLimits() Limits {
	l := DefaultLimits()
	l.UID = uint32(os.Getuid())
	return l
}

// rig is a server under test.
type rig struct {
	socket string
	stop   context.CancelFunc
	done   chan error // Serve's result, once
}

// serve starts a server that is stopped, and seen to end, with the test.
func serve(tb testing.TB, lim Limits, h handlerFunc) *rig {
	tb.Helper()
	r := &rig{socket: filepath.Join(tb.TempDir(), "s"), done: make(chan error, 1)}
	ln, err := net.Listen("unix", r.socket)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- Serve(ctx, ln, h, lim, slog.New(slog.DiscardHandler))
	}()
	tb.Cleanup(func() { stop(); <-ended })
	return r
}

func (r *rig) dial(tb testing.TB) *Conn {
	tb.Helper()
	c, err := Dial(context.Background(), r.socket)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// raw connects without a client, to send what no client sends.
func (r *rig) raw(t *testing.T) net.Conn {
	t.Helper()
	nc, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func mustFrame(t *testing.T, v any) []byte {
	t.Helper()
	b, err := appendFrame(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCallCarriesEverything(t *testing.T) {
	table, scope := 0, 253
	want := Response{Version: Version, Result: &Result{
		IPs: []IP{
			{Address: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Address: netip.MustParsePrefix("fd00::5/64")},
		},
		Routes: []Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.0.0.1"), MTU: 1400, AdvMSS: 1360, Priority: 5, Table: &table, Scope: &scope},
			{Dst: netip.MustParsePrefix("::/0")},
		},
		DNS: DNS{Nameservers: []string{"10.0.0.2"}, Domain: "d", Search: []string{"s"}, Options: []string{"o"}},
	}}
	sent := Request{
		Verb: Add, ContainerID: "c1", Netns: "/run/netns/x", NetnsID: "4:4026532281", IfName: "net1",
		Args: "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n", Config: json.RawMessage(`{"name":"net","ipam":{"type":"tenure"}}`),
	}
	var got Request
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response { got = req; return want })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := Call(ctx, r.socket, sent)
	if err != nil {
		t.Fatal(err)
	}
	cmpAddrs := cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	if d := cmp.Diff(want, resp, cmpAddrs); d != "" {
		t.Errorf("response (-want +got):\n%s", d)
	}
	sent.Version = Version
	if got.DeadlineMillis < 1 || got.DeadlineMillis > time.Minute.Milliseconds() {
		t.Errorf("deadline of the request is %d ms; want at most a minute", got.DeadlineMillis)
	}
	sent.DeadlineMillis = got.DeadlineMillis
	if d := cmp.Diff(sent, got); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
}

func TestSeveralCallsOnOneConnection(t *testing.T) {
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response {
		return Fail(CodeTryAgainLater, "for %s", req.ContainerID)
	})
	c := r.dial(t)
	for i := range 100 {
		resp, err := c.Call(context.Background(), Request{Verb: Del, ContainerID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("for %d", i); resp.Error == nil || resp.Error.Msg != want {
			t.Fatalf("call %d: got %+v; want error %q", i, resp.Error, want)
		}
	}
}

func TestPingNeedsNoHandler(t *testing.T) {
	r := serve(t, testLimits(), func(context.Context, Request) Response { panic("not for the handler") })
	resp, err := Call(context.Background(), r.socket, Request{Verb: Ping})
	if err != nil || resp.Error != nil || resp.Version != Version {
		t.Errorf("got %+v, %v; want an empty answer of version %d", resp, err, Version)
	}
}

func TestRefusedByTheServerItself(t *testing.T) {
	r := serve(t, testLimits(), func(context.Context, Request) Response { panic("not for the handler") })
	for _, tt := range []struct {
		name string
		req  Request
		code Code
		msg  string
	}{
		{"newer version", Request{Version: Version + 1, Verb: Add}, CodeTryAgainLater, "upgrade the agent first"},
		{"no version", Request{Verb: Add}, CodeTryAgainLater, "not 0"},
		{"unknown verb", Request{Version: Version, Verb: "EAT"}, CodeDecoding, `"EAT"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := r.raw(t)
			if _, err := nc.Write(mustFrame(t, tt.req)); err != nil {
				t.Fatal(err)
			}
			var resp Response
			if err := readFrame(nc, &resp); err != nil {
				t.Fatal(err)
			}
			if resp.Error == nil || resp.Error.Code != tt.code || !strings.Contains(resp.Error.Msg, tt.msg) {
				t.Errorf("got %+v; want code %d with %q", resp.Error, tt.code, tt.msg)
			}
		})
	}
}

func TestNoAgent(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]string{
		"no such socket": filepath.Join(dir, "none"), "socket of a dead agent": dead,
		"no such directory": filepath.Join(dir, "no", "s"), "a file": file, "below a file": filepath.Join(file, "s"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Call(context.Background(), socket, Request{Verb: Add}); !errors.Is(err, ErrNoAgent) {
				t.Errorf("got %v; want ErrNoAgent", err)
			}
		})
	}
}

func TestNoAnswerWhenTheAgentDies(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if nc, err := ln.Accept(); err == nil {
			var req Request
			_ = readFrame(nc, &req)
			nc.Close()
		}
	}()
	_, err = Call(context.Background(), socket, Request{Verb: Add})
	if !errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrNoAgent) {
		t.Errorf("got %v; want ErrNoAnswer", err)
	}
}

func TestHangUpEndsTheHandler(t *testing.T) {
	entered, cause := make(chan struct{}), make(chan error, 1)
	r := serve(t, testLimits(), func(ctx context.Context, _ Request) Response {
		close(entered)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return Response{}
	})
	ctx, cancel := context.WithCancel(context.Background())
	called := make(chan error, 1)
	go func() {
		_, err := Call(ctx, r.socket, Request{Verb: Add})
		called <- err
	}()
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
	resp, err := c.Call(context.Background(), Request{Verb: Add})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Error == nil || resp.Error.Code != CodeInternal || !strings.Contains(resp.Error.Msg, "bad day") {
		t.Errorf("got %+v; want code %d naming the panic", resp.Error, CodeInternal)
	}
	panics.Store(false)
	if resp, err := c.Call(context.Background(), Request{Verb: Add}); err != nil || resp.Error != nil {
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
	if _, err := Call(context.Background(), r.socket, Request{Verb: Ping}); err != nil {
		t.Fatal(err) // accepted after idle: idle is being served too
	}
	answer := make(chan error, 1)
	busy := r.dial(t)
	go func() {
		resp, err := busy.Call(context.Background(), Request{Verb: Add})
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
	if _, err := Dial(context.Background(), r.socket); !errors.Is(err, ErrNoAgent) {
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
	resp, err := c.Call(context.Background(), Request{Verb: Add})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Error == nil || resp.Error.Msg != ErrStopped.Error() {
		t.Errorf("got %+v; want %q", resp.Error, ErrStopped)
	}
}

func TestOnlyOneUserIsServed(t *testing.T) {
	lim := testLimits()
	lim.UID++
	r := serve(t, lim, func(context.Context, Request) Response { panic("served a stranger") })
	nc := r.raw(t)
	var resp Response
	if err := readFrame(nc, &resp); err != nil {
		t.Fatal(err)
	}
	if resp.Error == nil || !strings.Contains(resp.Error.Msg, fmt.Sprintf("user %d may not", os.Getuid())) {
		t.Errorf("got %+v; want a refusal that names the user", resp.Error)
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
			_, err := Call(context.Background(), r.socket, Request{Verb: Add})
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
	if err := DefaultLimits().Validate(); err != nil {
		t.Errorf("DefaultLimits: %v", err)
	}
	err := Limits{}.Validate()
	for _, field := range []string{"Conns", "Idle", "Request", "Write", "Drain"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Limits{}: got %v; want %s named", err, field)
		}
	}
}

// TestBadPeers sends what no client sends. The server must answer or hang up,
// must not call the handler, and must go on serving others.
func TestBadPeers(t *testing.T) {
	lim := testLimits()
	lim.Idle = 50 * time.Millisecond
	r := serve(t, lim, func(_ context.Context, req Request) Response {
		if req.ContainerID != "good" {
			panic("a bad request reached the handler")
		}
		return Response{}
	})
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for _, tt := range []struct {
		name  string
		send  []byte
		close bool   // hang up the sending side after it
		want  string // part of the error answered; empty: hung up without a word
	}{
		{"nothing", nil, false, ""},
		{"hang up at once", nil, true, ""},
		{"half a length", []byte{0, 0}, true, "inside a frame's length"},
		{"half a length and silence", []byte{0, 0}, false, ""},
		{"length zero", length(0), false, "0 bytes"},
		{"length too great", length(MaxFrame + 1), false, "1048577 bytes"},
		{"length of a gigabyte", length(1 << 30), false, "bytes"},
		{"half a body", append(length(100), "{"...), true, "inside a frame of 100"},
		{"half a body and silence", append(length(100), "{"...), false, ""},
		{"not JSON", append(length(4), "what"...), false, "not a message"},
		{"wrong type", append(length(9), `{"v":"1"}`...), false, "not a message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := r.raw(t)
			if _, err := nc.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			if tt.close {
				if err := nc.(*net.UnixConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			var resp Response
			err := readFrame(nc, &resp)
			switch {
			case tt.want == "" && err != io.EOF:
				t.Errorf("got %+v, %v; want the server to hang up", resp, err)
			case tt.want != "" && (err != nil || resp.Error == nil || !strings.Contains(resp.Error.Msg, tt.want)):
				t.Errorf("got %+v, %v; want an error with %q", resp.Error, err, tt.want)
			}
			if resp, err := Call(context.Background(), r.socket, Request{Verb: Add, ContainerID: "good"}); err != nil || resp.Error != nil {
				t.Errorf("another caller afterwards: %+v, %v; want success", resp, err)
			}
		})
	}
}

func TestRequestSentAheadEndsTheConnection(t *testing.T) {
	cause := make(chan error, 1)
	r := serve(t, testLimits(), func(ctx context.Context, _ Request) Response {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return Response{}
	})
	nc := r.raw(t)
	frame := mustFrame(t, Request{Version: Version, Verb: Add})
	if _, err := nc.Write(append(frame, frame...)); err != nil {
		t.Fatal(err)
	}
	if err := <-cause; !errors.Is(err, ErrHungUp) {
		t.Errorf("the handler's context ended with %v; want ErrHungUp", err)
	}
	if _, err := io.ReadAll(nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v; want the server to hang up", err)
	}
}

func TestMessagesThatDoNotFit(t *testing.T) {
	r := serve(t, testLimits(), func(context.Context, Request) Response {
		return Fail(CodeInternal, "%s", strings.Repeat("x", MaxFrame))
	})
	_, err := Call(context.Background(), r.socket, Request{Verb: GC, Args: strings.Repeat("x", MaxFrame)})
	if _, bad := errors.AsType[*FrameError](err); !bad {
		t.Errorf("request: got %v; want a FrameError before anything is sent", err)
	}
	resp, err := Call(context.Background(), r.socket, Request{Verb: GC, Args: strings.Repeat("x", MaxFrame-1000)})
	if err != nil || resp.Error == nil || !strings.Contains(resp.Error.Msg, "cannot be sent") {
		t.Errorf("answer: got %+v, %v; want an error in its place", resp.Error, err)
	}
}
