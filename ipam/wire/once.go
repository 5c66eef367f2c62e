package wire

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

	"github.com/tenure-ipam/tenure/ipam/pause"
)

// Once is [Call] for a program that lives for it, as a plugin does, and waits so long for
// the answer. It blocks a thread in the kernel: there is nothing else to run, and the
// runtime's poller, by which package net and every context with a deadline wait, takes a
// dozen system calls and another thread for the first and only answer.
func Once(ctx context.Context, patience time.Duration, socket string, req Request) (Response, error) {
	l, err := connect(ctx, time.Now().Add(patience), socket)
	if err != nil {
		return Response{}, err
	}
	c := &Conn{line: l, r: bufio.NewReader(l), socket: socket}
	defer c.Close()
	req.DeadlineMillis = max(1, time.Until(l.deadline).Milliseconds()) // connecting may have taken a while
	return c.Call(ctx, req)
}

// threadLine is a connected socket on which reads and writes block a thread until a
// deadline.
type threadLine struct {
	fd       int
	deadline time.Time

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
		if err = noAgentUntil(ctx, deadline, socket, os.NewSyscallError("connect", err)); err != nil {
			_ = syscall.Close(fd) // nothing was done with it
			return nil, err
		}
	}
}

// noAgentUntil is noAgent with a deadline.
func noAgentUntil(ctx context.Context, deadline time.Time, socket string, err error) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return noAgent(ctx, socket, err)
}

// noAgent returns why there is no connection to the agent, after an attempt that failed
// with err. It returns nil if another attempt may succeed, for which it has waited.
func noAgent(ctx context.Context, socket string, err error) error {
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
		if err := l.bound(syscall.SO_RCVTIMEO); err != nil {
			return 0, err
		}
		n, err := syscall.Read(l.fd, p)
		switch {
		case err == syscall.EINTR, err == syscall.EAGAIN: // the time may be over
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
		if err := l.bound(syscall.SO_SNDTIMEO); err != nil {
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

// bound lets the next read, or the next write, block until l's deadline.
func (l *threadLine) bound(option int) error {
	left := time.Until(l.deadline)
	if left <= 0 {
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
