package agentapi

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOnceCarriesWhatCallCarries(t *testing.T) {
	sent := Request{Verb: Add, ContainerID: "c1", Netns: "/run/netns/x", IfName: "net1", Args: strings.Repeat("x", MaxFrame-1000)}
	var got Request
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response {
		got = req
		return Fail(CodeTryAgainLater, "%s", strings.Repeat("y", MaxFrame-1000))
	})
	ctx := t.Context()
	resp, err := Once(ctx, time.Minute, r.socket, sent)
	if err != nil {
		t.Fatal(err)
	}
	if got.Args != sent.Args || got.ContainerID != sent.ContainerID || got.Version != Version || got.DeadlineMillis < 1 || got.DeadlineMillis > time.Minute.Milliseconds() {
		t.Errorf("request: %.200q of container %s, deadline %d ms", got.Args, got.ContainerID, got.DeadlineMillis)
	}
	if resp.Error == nil || len(resp.Error.Msg) != MaxFrame-1000 || resp.Version != Version {
		t.Errorf("answer: %.200v", resp.Error)
	}
	sent.Args += strings.Repeat("x", 1000)
	if _, err := Once(ctx, time.Minute, r.socket, sent); !strings.Contains(err.Error(), "exceeds the limit") {
		t.Errorf("a request that does not fit: %v", err)
	}
}

// TestConnGoesOnMeanwhile: between Send and Receive the agent works, and calls may
// follow.
func TestConnGoesOnMeanwhile(t *testing.T) {
	entered := make(chan string)
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response {
		entered <- req.ContainerID
		return Fail(CodeTryAgainLater, "%s", req.ContainerID)
	})
	c, err := Connect(t.Context(), time.Minute, r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, id := range []string{"c1", "c2"} {
		if err := c.Send(t.Context(), time.Minute, Request{Verb: Add, ContainerID: id}); err != nil {
			t.Fatal(err)
		}
		if got := <-entered; got != id { // before Receive
			t.Errorf("the agent has been asked about %s; want %s", got, id)
		}
		if resp, err := c.Receive(t.Context()); err != nil || resp.Error == nil || resp.Error.Msg != id {
			t.Errorf("got %+v, %v; want the answer about %s", resp.Error, err, id)
		}
	}
}

// TestConnIsPatientForEachCall: a call has its own time, not the connection's.
func TestConnIsPatientForEachCall(t *testing.T) {
	over := make(chan struct{})
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response {
		if req.ContainerID == "slow" {
			<-over
		}
		return Response{}
	})
	c, err := Connect(t.Context(), time.Minute, r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Call(t.Context(), time.Minute, Request{Verb: Add}); err != nil {
		t.Errorf("a call that is answered: %v", err)
	}
	_, err = c.Call(t.Context(), 100*time.Millisecond, Request{Verb: Add, ContainerID: "slow"})
	close(over)
	if !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that is not: %v; want ErrNoAnswer at its deadline", err)
	}
}

// TestConnTakesWhatHasCome: what its caller did meanwhile may have taken all the time.
func TestConnTakesWhatHasCome(t *testing.T) {
	over := make(chan struct{})
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response {
		if req.ContainerID == "slow" {
			<-over
		}
		return Fail(CodeTryAgainLater, "here")
	})
	c, err := Connect(t.Context(), time.Minute, r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	late := func(id string, ready func()) (Response, error) {
		if err := c.Send(t.Context(), time.Minute, Request{Verb: Add, ContainerID: id}); err != nil {
			t.Fatal(err)
		}
		ready()
		c.line.deadline = time.Now().Add(-time.Second)
		return c.Receive(t.Context())
	}
	resp, err := late("quick", func() {
		fds := []unix.PollFd{{Fd: int32(c.line.fd), Events: unix.POLLIN}}
		for n := 0; n == 0; {
			if n, err = unix.Poll(fds, -1); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		}
	})
	if err != nil || resp.Error == nil || resp.Error.Msg != "here" {
		t.Errorf("an answer that has come: %+v, %v; want it", resp.Error, err)
	}
	_, err = late("slow", func() {})
	close(over)
	if !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that has not: %v; want ErrNoAnswer at its deadline", err)
	}
}

func TestOnceWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	dead, file := filepath.Join(dir, "dead"), filepath.Join(dir, "file")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := errors.Join(ln.Close(), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]string{
		"no such socket": filepath.Join(dir, "none"), "socket of a dead agent": dead, "a file": file, "below a file": filepath.Join(file, "s"),
		"no such directory": filepath.Join(dir, "no", "s"), "a path that is too long": filepath.Join(dir, strings.Repeat("x", 200)),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Once(t.Context(), time.Minute, socket, Request{Verb: Add}); !errors.Is(err, ErrNoAgent) || !strings.Contains(err.Error(), socket) {
				t.Errorf("got %v; want ErrNoAgent with the path", err)
			}
		})
	}
}

func TestOnceNoAnswerWhenTheAgentDies(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			var req Request
			_ = readFrame(nc, &req)
			nc.Close()
		}
	}()
	for _, req := range []Request{{Verb: Add}, {Verb: GC, Args: strings.Repeat("x", MaxFrame-1000)}} {
		if _, err := Once(t.Context(), time.Minute, socket, req); !errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrNoAgent) {
			t.Errorf("got %v; want ErrNoAnswer", err)
		}
	}
}

// fullQueue listens on a socket whose queue has room for one, and is full.
func fullQueue(t *testing.T) (fd int, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := connect(t.Context(), time.Now().Add(time.Minute), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	return fd, socket
}

// accept is syscall.Accept that goes on after a signal: Go's runtime sends them to
// preempt, and a socket with a time limit is not accepted from again by itself.
func accept(t *testing.T, fd int) int {
	t.Helper()
	for {
		accepted, _, err := syscall.Accept(fd)
		if err == nil {
			return accepted
		}
		if err != syscall.EINTR {
			t.Fatal(err)
		}
	}
}

func TestOnceWaitsWhileTheQueueIsFull(t *testing.T) {
	fd, socket := fullQueue(t)
	if _, err := connect(t.Context(), time.Now().Add(50*time.Millisecond), socket); !errors.Is(err, ErrNoAgent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the queue is full: %v; want ErrNoAgent at the deadline", err)
	}
	connected := make(chan error, 1)
	go func() {
		second, err := connect(context.Background(), time.Now().Add(time.Minute), socket)
		if err == nil {
			err = second.Close()
		}
		connected <- err
	}()
	accepted := accept(t, fd)
	defer syscall.Close(accepted)
	if err := <-connected; err != nil {
		t.Errorf("when the queue has room: %v", err)
	}
}

// TestOnceIsPatient for as long as it is told.
func TestOnceIsPatient(t *testing.T) {
	over, cause := make(chan struct{}), make(chan error, 1)
	r := serve(t, testLimits(), func(ctx context.Context, _ Request) Response {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-over
		return Response{}
	})
	const timeout = 2 * time.Second // enough to ask in, also on a busy machine
	began := time.Now()
	_, err := Once(t.Context(), timeout, r.socket, Request{Verb: Add})
	close(over)
	if took := time.Since(began); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) || took < timeout {
		t.Errorf("the call ended with %v after %v; want ErrNoAnswer after %v", err, took, timeout)
	}
	select {
	case err := <-cause:
		if !errors.Is(err, ErrHungUp) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the handler's context ended with %v; want that it does", err)
		}
	case <-time.After(time.Minute):
		t.Error("the handler was not called, or its context did not end")
	}
}

// TestOnceSaysHowLongItStillWaits: the time that it takes to connect is gone.
func TestOnceSaysHowLongItStillWaits(t *testing.T) {
	fd, socket := fullQueue(t)
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = Once(context.Background(), 2*time.Second, socket, Request{Verb: Add}) // nobody answers
		ended <- time.Now()
	}()
	time.Sleep(300 * time.Millisecond)
	room := time.Now()
	limit := syscall.NsecToTimeval(int64(time.Minute))
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	var accepted [2]int // the one that filled the queue, and Once's
	for i := range accepted {
		accepted[i] = accept(t, fd)
		t.Cleanup(func() { _ = syscall.Close(accepted[i]) })
	}
	var req Request
	if err := readFrame(&line{fd: accepted[1], deadline: time.Now().Add(time.Minute)}, &req); err != nil {
		t.Fatal(err)
	}
	if left := (<-ended).Sub(room); req.DeadlineMillis < 1 || req.DeadlineMillis > left.Milliseconds() {
		t.Errorf("it says that it waits for %d ms, and has hung up %v after there was room in the queue", req.DeadlineMillis, left)
	}
}

// TestOnceIsPatientWhileItAsks: it does not wait longer for an agent that does not read.
func TestOnceIsPatientWhileItAsks(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if nc, err := ln.Accept(); err == nil {
			accepted <- nc // to keep it open
		}
	}()
	_, err = Once(t.Context(), 200*time.Millisecond, socket, Request{Verb: Add, Args: strings.Repeat("x", MaxFrame-1000)})
	if !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v; want ErrNoAnswer at the deadline", err)
	}
	(<-accepted).Close()
}
