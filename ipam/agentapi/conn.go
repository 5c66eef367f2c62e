package agentapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// conn is the server's side of a connection. Two goroutines serve it: one
// reads, always, so that a client that hangs up is noticed; the other runs the
// handler and writes.
type conn struct {
	s      *server
	nc     net.Conn
	cancel context.CancelCauseFunc // ends the context of the handler
	work   chan Request            // has room for the one that may be under way

	// mu is held while an answer is written, so that whoever holds it sees
	// either a request that has no answer yet or an answer that is out.
	mu        sync.Mutex
	busy      bool   // guarded by mu; a request has no answer yet
	finishing bool   // guarded by mu; the answer under way is the last
	out       []byte // the last frame written, for its memory; of whoever writes
}

// finish closes c once no request is under way.
func (c *conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishing = true
	if !c.busy {
		c.nc.Close()
	}
}

// run serves c to its end. ctx is that of its handlers, which c.cancel ends.
func (c *conn) run(ctx context.Context) {
	defer c.nc.Close()
	defer c.cancel(ErrHungUp)
	if err := c.checkPeer(); err != nil {
		c.s.log.WarnContext(ctx, "caller refused on the node socket", "error", err)
		c.write(Fail(CodeInternal, "%v", err))
		return
	}
	var worker sync.WaitGroup
	// Not before there is work: each goroutine wakes a thread to see whether it can help.
	start := sync.OnceFunc(func() {
		worker.Go(func() {
			for req := range c.work {
				c.serve(ctx, req)
			}
		})
	})
	err := c.readAll(start)
	c.cancel(ErrHungUp)
	close(c.work)
	worker.Wait()

	if _, bad := errors.AsType[*FrameError](err); bad {
		c.s.log.WarnContext(ctx, "caller does not keep to the node socket's format", "error", err)
		c.write(Fail(CodeDecoding, "%v", err))
	}
}

// checkPeer reports a peer that is not the one user who is served.
func (c *conn) checkPeer() error {
	sc, ok := c.nc.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T has no peer credentials", c.nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return fmt.Errorf("peer credentials: %w", err)
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("peer credentials: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("peer credentials: %w", credErr)
	}
	if cred.Uid != c.s.lim.UID {
		return fmt.Errorf("user %d may not use the node socket: run as user %d", cred.Uid, c.s.lim.UID)
	}
	return nil
}

// readAll hands requests to the worker, which start starts, until the peer hangs up (nil), is too
// slow, or breaks the format.
func (c *conn) readAll(start func()) error {
	r := bufio.NewReader(c.nc)
	c.setReadDeadline(c.s.lim.Idle)
	for {
		var req Request
		if err := readFrame(r, &req); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
		c.mu.Lock()
		switch {
		case c.busy:
			c.mu.Unlock()
			return &FrameError{"a request arrived before the last one was answered"}
		case c.finishing:
			c.mu.Unlock()
			return nil
		}
		c.busy = true
		c.setReadDeadline(0)
		c.mu.Unlock()
		c.work <- req
		start()
	}
}

// setReadDeadline sets the deadline to d from now; 0 means none. An error says
// that the connection is closed, which the next read says too.
func (c *conn) setReadDeadline(d time.Duration) {
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	_ = c.nc.SetReadDeadline(t)
}

// serve answers req.
func (c *conn) serve(ctx context.Context, req Request) {
	resp := c.answer(ctx, req)
	c.reply(resp)
	if resp.After != nil {
		defer func() {
			if p := recover(); p != nil {
				c.logPanic(ctx, req, p)
			}
		}()
		resp.After()
	}
}

// reply sends the answer to the request under way.
func (c *conn) reply(resp Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(resp)
	c.setReadDeadline(c.s.lim.Idle) // mu keeps the next request from being read meanwhile
	c.busy = false
	if c.finishing {
		c.nc.Close()
	}
}

// logPanic logs a panic of the handler.
func (c *conn) logPanic(ctx context.Context, req Request, p any) {
	c.s.log.ErrorContext(ctx, "panic while a request was served", "verb", string(req.Verb),
		"sandbox", req.ContainerID, "interface", req.IfName, "error", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// write sends resp. Where the peer does not take it, c is closed: a part of an
// answer must not be followed by another.
func (c *conn) write(resp Response) {
	resp.Version = Version
	frame, err := appendFrame(c.out[:0], resp)
	if err != nil {
		frame, _ = appendFrame(nil, Fail(CodeInternal, "the answer cannot be sent: %v", err)) // a short text
	}
	c.out = frame
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.lim.Write))
	if _, err := c.nc.Write(frame); err != nil {
		c.nc.Close()
	}
}

// answer runs the handler on req, contains its panics, and answers by itself
// what no handler needs to see.
func (c *conn) answer(ctx context.Context, req Request) (resp Response) {
	switch {
	case req.Version < 1 || req.Version > Version:
		return Fail(CodeTryAgainLater, "the agent speaks versions 1 to %d of the node socket, not %d: upgrade the agent first",
			Version, req.Version)
	case !req.Verb.valid():
		return Fail(CodeDecoding, "unknown verb %q", req.Verb)
	case req.Verb == Ping:
		return Response{}
	}
	limit := c.s.lim.Request
	if d := time.Duration(req.DeadlineMillis) * time.Millisecond; req.DeadlineMillis > 0 && req.DeadlineMillis < limit.Milliseconds() {
		limit = d
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(ctx, req, p)
			resp = Fail(CodeInternal, "the agent cannot answer: a fault of its own (%v), see its log", p)
		}
	}()
	return c.s.h.Serve(ctx, req)
}
