package agentapi

import (
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

// line is a connected socket on which reads and writes block a thread until a
// deadline.
type line struct {
	fd       int
	deadline time.Time
	untried  bool // the next read is tried also when the deadline is over

	mu     sync.Mutex
	closed bool // guarded by mu
}

// connect connects to the agent's socket. Its errors are those of [Connect].
func connect(ctx context.Context, deadline time.Time, socket string) (*line, error) {
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
			return &line{fd: fd, deadline: deadline}, nil
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
func (l *line) Read(p []byte) (int, error) {
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
func (l *line) Write(p []byte) (int, error) {
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
func (l *line) bound(option int, try bool) error {
	left := time.Until(l.deadline)
	if left <= 0 && !try {
		return context.DeadlineExceeded
	}
	t := syscall.NsecToTimeval(max(left, time.Millisecond).Nanoseconds()) // 0 would be for ever
	return os.NewSyscallError("setsockopt", syscall.SetsockoptTimeval(l.fd, syscall.SOL_SOCKET, option, &t))
}

// hangUp hangs up, from any goroutine: it ends a read or a write that is under way.
func (l *line) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed { // else the descriptor may be another file's
		_ = syscall.Shutdown(l.fd, syscall.SHUT_RDWR) // it fails where the peer has hung up
	}
}

// Close implements [io.Closer]. No read or write may be under way.
func (l *line) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return syscall.Close(l.fd)
}
