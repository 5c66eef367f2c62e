package agentapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// A Conn is a client's connection to the agent. It serves one call at a time.
type Conn struct {
	line   line
	r      *bufio.Reader
	socket string
}

// A line is what a [Conn] talks over.
type line interface {
	io.ReadWriteCloser
	// hangUp hangs up, from any goroutine: it ends a read or a write that is under way.
	hangUp()
}

// netLine is a line of package net, on which a goroutine waits.
type netLine struct{ net.Conn }

func (l netLine) hangUp() { l.Close() }

// Dial connects to the agent's socket. Its error wraps [ErrNoAgent] where
// nobody listens there.
func Dial(ctx context.Context, socket string) (*Conn, error) {
	var d net.Dialer
	for {
		nc, err := d.DialContext(ctx, "unix", socket)
		if err == nil {
			return &Conn{line: netLine{nc}, r: bufio.NewReader(nc), socket: socket}, nil
		}
		if err = awaitAgent(ctx, socket, err); err != nil {
			return nil, err
		}
	}
}

// Close hangs up. A request that is being served learns of it.
func (c *Conn) Close() error { return c.line.Close() }

// Call sends req and waits for its answer until ctx ends. An error means that
// there is no answer, and wraps [ErrNoAnswer] where the request may have been
// served all the same; c is of no further use. A failure that the agent answers
// is no error of Call: it is in the Response.
func (c *Conn) Call(ctx context.Context, req Request) (Response, error) {
	if deadline, ok := ctx.Deadline(); ok {
		req.DeadlineMillis = max(1, time.Until(deadline).Milliseconds())
	}
	if err := c.send(ctx, req); err != nil {
		return Response{}, err
	}
	return c.receive(ctx)
}

// send sends a request.
func (c *Conn) send(ctx context.Context, req Request) error {
	req.Version = Version
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

// receive returns the answer to what was sent.
func (c *Conn) receive(ctx context.Context) (resp Response, err error) {
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

// Call connects to socket, makes one call, and hangs up, for programs that make many at
// once: unlike [Once] it blocks no thread. Its errors are those of [Dial] and [Conn.Call].
func Call(ctx context.Context, socket string, req Request) (Response, error) {
	c, err := Dial(ctx, socket)
	if err != nil {
		return Response{}, err
	}
	defer c.Close()
	return c.Call(ctx, req)
}
