package agentapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/ipam/lean/quiet"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// A ThreadConn is a connection to the agent of a program that lives for a few calls, as
// a plugin does. It blocks a thread in the kernel: there is nothing else to run, and the
// runtime's poller, by which package net and every context with a deadline wait, takes a
// dozen system calls and another thread for the first answer. It serves one call at a
// time.
type ThreadConn struct {
	conn Conn
	line *threadLine
}

// Connect connects to the agent's socket, within patience. Its errors are those of
// [Dial].
func Connect(ctx context.Context, patience time.Duration, socket string) (*ThreadConn, error) {
	l, err := connect(ctx, time.Now().Add(patience), socket)
	if err != nil {
		return nil, err
	}
	return &ThreadConn{conn: Conn{line: l, r: bufio.NewReader(l), socket: socket}, line: l}, nil
}

// Call does what [Conn.Call] does. It waits for the answer until ctx ends, and no longer than
// patience.
func (c *ThreadConn) Call(ctx context.Context, patience time.Duration, req Request) (Response, error) {
	if err := c.Send(ctx, patience, req); err != nil {
		return Response{}, err
	}
	return c.Receive(ctx)
}

// Send is the first half of Call: it sends the request. The program can do something else until
// [ThreadConn.Receive] returns the answer. Its errors are those of Call.
func (c *ThreadConn) Send(ctx context.Context, patience time.Duration, req Request) error {
	c.line.deadline = time.Now().Add(patience)
	req.DeadlineMillis = max(1, patience.Milliseconds())
	return c.conn.send(ctx, req)
}

// Receive is the second half of Call: it returns the answer. It waits as long as the patience
// that Send was given. If that is over already, it still returns an answer of up to 4 KiB that
// has come.
func (c *ThreadConn) Receive(ctx context.Context) (Response, error) {
	c.line.untried = true
	return c.conn.receive(ctx)
}

// Close hangs up. A request that is being served learns of it.
func (c *ThreadConn) Close() error { return c.conn.Close() }

// Once makes one call by a [ThreadConn], as [Call] does, within patience.
func Once(ctx context.Context, patience time.Duration, socket string, req Request) (Response, error) {
	deadline := time.Now().Add(patience)
	c, err := Connect(ctx, patience, socket)
	if err != nil {
		return Response{}, err
	}
	defer c.Close()
	return c.Call(ctx, time.Until(deadline), req) // connecting may have taken a while
}

// threadLine is a connected socket on which reads and writes block a thread until a
// deadline.
type threadLine struct {
	fd       int
	deadline time.Time
	untried  bool // the next read is tried also when the deadline is over

	mu     sync.Mutex
	closed bool // guarded by mu
}

// connect connects to the agent's socket. Its errors are those of [Dial].
func connect(ctx context.Context, deadline time.Time, socket string) (*threadLine, error) {
	// Until it is connected it does not block, so that it can be given up.
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", socket, ErrNoAgent, os.NewSyscallError("socket", err))
	}
	for {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
		if err == nil {
			err = syscall.SetNonblock(fd, false)
		}
		if err == nil {
			return &threadLine{fd: fd, deadline: deadline}, nil
		}
		if err = awaitAgentUntil(ctx, deadline, socket, os.NewSyscallError("connect", err)); err != nil {
			_ = syscall.Close(fd) // nothing was done with it
			return nil, err
		}
	}
}

// awaitAgentUntil does what awaitAgent does, until a deadline.
func awaitAgentUntil(ctx context.Context, deadline time.Time, socket string, err error) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return awaitAgent(ctx, socket, err)
}

// awaitAgent waits until it is worth connecting to the agent again, after an attempt that failed
// with err. Where no attempt can succeed it returns why.
func awaitAgent(ctx context.Context, socket string, err error) error {
	switch {
	case errors.Is(err, syscall.EINTR):
		return nil
	case errors.Is(err, syscall.EAGAIN):
		// The queue of the socket is full: the agent is busy, not gone.
		if pause.For(ctx, 5*time.Millisecond) {
			return nil
		}
		return fmt.Errorf("%s: %w: its queue is full: %w", socket, ErrNoAgent, context.Cause(ctx))
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %w", socket, ErrNoAgent)
	default:
		return fmt.Errorf("%s: %w: %w", socket, ErrNoAgent, err)
	}
}

// Read implements [io.Reader].
func (l *threadLine) Read(p []byte) (int, error) {
	for {
		if err := l.bound(syscall.SO_RCVTIMEO, l.untried); err != nil {
			return 0, err
		}
		l.untried = false
		n, err := quiet.Read(l.fd, p)
		switch {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN): // the time may be over
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements [io.Writer].
func (l *threadLine) Write(p []byte) (int, error) {
	for written := 0; ; {
		if err := l.bound(syscall.SO_SNDTIMEO, false); err != nil {
			return written, err
		}
		n, err := syscall.Write(l.fd, p[written:])
		if err != nil && err != syscall.EINTR && err != syscall.EAGAIN {
			return written, os.NewSyscallError("write", err)
		}
		if written += max(n, 0); written == len(p) {
			return written, nil
		}
	}
}

// bound lets the next read, or the next write, block until l's deadline. When that is over
// it is an error, or one that must be tried is given a millisecond.
func (l *threadLine) bound(option int, try bool) error {
	left := time.Until(l.deadline)
	if left <= 0 && !try {
		return context.DeadlineExceeded
	}
	t := syscall.NsecToTimeval(max(left, time.Millisecond).Nanoseconds()) // 0 would be for ever
	return os.NewSyscallError("setsockopt", syscall.SetsockoptTimeval(l.fd, syscall.SOL_SOCKET, option, &t))
}

// hangUp implements [line].
func (l *threadLine) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed { // else the descriptor may be another file's
		_ = syscall.Shutdown(l.fd, syscall.SHUT_RDWR) // it fails where the peer has hung up
	}
}

// Close implements [io.Closer]. No read or write may be under way.
func (l *threadLine) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return syscall.Close(l.fd)
}
