package agentapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Outcomes of a call that a caller is expected to tell apart.
var (
	// ErrNoAgent is returned when nobody listens on the socket: the request
	// has reached nobody.
	ErrNoAgent = errors.New("no agent listens")

	// ErrNoAnswer is returned when the agent hung up, or the context ended,
	// after the request may have been sent: it may or may not have been served.
	ErrNoAnswer = errors.New("no answer from the agent")
)

// A Conn is a client's connection to the agent, of a program that lives for a few calls, as a
// plugin does. It blocks a thread in the kernel: there is nothing else to run, and the runtime's
// poller, by which package net and every context with a deadline wait, takes a dozen system calls
// and another thread for the first answer. It serves one call at a time.
type Conn struct {
	line   *line
	r      *bufio.Reader
	socket string
}

// Connect connects to the agent's socket, within timeout. Its error wraps [ErrNoAgent] where
// nobody listens there.
func Connect(ctx context.Context, timeout time.Duration, socket string) (*Conn, error) {
	l, err := connect(ctx, time.Now().Add(timeout), socket)
	if err != nil {
		return nil, err
	}
	return &Conn{line: l, r: bufio.NewReader(l), socket: socket}, nil
}

// Call sends req and waits for its answer until ctx ends, and no longer than timeout. An error
// means that there is no answer, and wraps [ErrNoAnswer] where the request may have been served
// all the same; c is of no further use. A failure that the agent answers is no error of Call: it
// is in the Response.
func (c *Conn) Call(ctx context.Context, timeout time.Duration, req Request) (Response, error) {
	if err := c.Send(ctx, timeout, req); err != nil {
		return Response{}, err
	}
	return c.Receive(ctx)
}

// Send is the first half of Call: it sends the request. The program can do something else until
// [Conn.Receive] returns the answer. Its errors are those of Call.
func (c *Conn) Send(ctx context.Context, timeout time.Duration, req Request) error {
	c.line.deadline = time.Now().Add(timeout)
	req.Version, req.DeadlineMillis = Version, max(1, timeout.Milliseconds())
	frame, err := appendFrame(make([]byte, 0, 1024), req)
	if err != nil {
		return err
	}
	stop := c.hangUpAfter(ctx)
	defer stop()
	if _, err = c.line.Write(frame); err != nil {
		return c.noAnswer(ctx, err)
	}
	return nil
}

// Receive is the second half of Call: it returns the answer. It waits as long as the timeout
// that Send was given. If that is over already, it still returns an answer of up to 4 KiB that
// has come.
func (c *Conn) Receive(ctx context.Context) (resp Response, err error) {
	c.line.untried = true
	stop := c.hangUpAfter(ctx)
	defer stop()
	if err := readFrame(c.r, &resp); err != nil {
		return Response{}, c.noAnswer(ctx, err)
	}
	if resp.Version < 1 {
		return Response{}, &FrameError{fmt.Sprintf("%s: an answer of version %d; want 1 or more", c.socket, resp.Version)}
	}
	return resp, nil
}

// Close hangs up. A request that is being served learns of it.
func (c *Conn) Close() error { return c.line.Close() }

// hangUpAfter hangs up when ctx ends, unless it is stopped: it is the one way to wake a
// read that is under way, and it is what tells the agent that nobody waits any longer.
func (c *Conn) hangUpAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, c.line.hangUp)
}

func (c *Conn) noAnswer(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, io.EOF):
		err = errors.New("it hung up")
	}
	return fmt.Errorf("%s: %w: %w", c.socket, ErrNoAnswer, err)
}

// Once makes one call by a [Conn], within timeout.
func Once(ctx context.Context, timeout time.Duration, socket string, req Request) (Response, error) {
	deadline := time.Now().Add(timeout)
	c, err := Connect(ctx, timeout, socket)
	if err != nil {
		return Response{}, err
	}
	defer c.Close()
	return c.Call(ctx, time.Until(deadline), req) // connecting may have taken a while
}
