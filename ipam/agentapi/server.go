package agentapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/ipam/pause"
)

// ErrHungUp is the cause with which a handler's context ends when the client
// hung up before its answer.
var ErrHungUp = errors.New("the caller hung up")

// ErrStopped is the cause with which a handler's context ends when the server
// stops and the time that it leaves to requests under way is over.
var ErrStopped = errors.New("the agent stops")

// A Handler answers requests. Serve may run many times at once. Its context
// ends with the request's deadline, and when the client hangs up: then nobody
// will hear the answer, and what has not been committed must not be. Serve is
// called only with verbs that are [Verb.valid] and are not Ping, and with a
// version that this program knows; the rest is the server's business.
type Handler interface {
	Serve(ctx context.Context, req Request) Response
}

// Limits bound what clients can cost the server.
type Limits struct {
	// UID is the only user that is served. The zero value means root.
	UID uint32

	// Conns is how many connections are served at once. Further ones wait in
	// the socket's queue.
	Conns int

	// Idle is how long a connection may take until a request has arrived
	// whole, from its opening or from the last answer.
	Idle time.Duration

	// Request is the longest that a request is worked on, whatever deadline it
	// brings.
	Request time.Duration

	// Write is how long a client may take to accept an answer.
	Write time.Duration

	// Drain is how long requests under way may go on after the server was told
	// to stop, before their contexts end.
	Drain time.Duration
}

// DefaultLimits returns limits that fit any node: a kubelet starts some dozens
// of pods at once, and runtimes give a CNI call two minutes or more.
func DefaultLimits() Limits {
	return Limits{
		Conns:   512,
		Idle:    10 * time.Second,
		Request: 2 * time.Minute,
		Write:   5 * time.Second,
		Drain:   10 * time.Second,
	}
}

// validate reports every fault of l.
func (l Limits) validate() error {
	var errs []error
	if l.Conns <= 0 {
		errs = append(errs, fmt.Errorf("Conns is %d, must be positive", l.Conns))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Idle", l.Idle}, {"Request", l.Request}, {"Write", l.Write}, {"Drain", l.Drain}} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %v, must be positive", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

// server is the state of one [Serve].
type server struct {
	h     Handler
	lim   Limits
	log   *slog.Logger
	slots chan struct{} // one token per connection being served
	wg    sync.WaitGroup

	mu    sync.Mutex
	conns map[*conn]struct{} // guarded by mu
}

// Serve answers requests on ln with h until ctx ends. Then it closes ln and
// every idle connection, lets requests under way finish within lim.Drain, ends
// the contexts of the others, and returns nil after all of them have returned.
// A listener that fails for good is returned as an error, after the same end.
func Serve(ctx context.Context, ln net.Listener, h Handler, lim Limits, log *slog.Logger) error {
	defer ln.Close()
	if err := lim.validate(); err != nil {
		return fmt.Errorf("limits of the node socket: %w", err)
	}
	s := &server{
		h:     h,
		lim:   lim,
		log:   log,
		slots: make(chan struct{}, lim.Conns),
		conns: map[*conn]struct{}{},
	}
	unhook := context.AfterFunc(ctx, func() { ln.Close() })
	defer unhook()
	err := s.acceptAll(ctx, ln)
	ln.Close() // the hook may not have run yet: nobody is to queue for a server that has ended
	s.stop()
	return err
}

// acceptAll accepts connections until ctx ends, which is no error.
func (s *server) acceptAll(ctx context.Context, ln net.Listener) error {
	// A request under way outlives the order to stop.
	base := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case s.slots <- struct{}{}:
		}
		nc, err := ln.Accept()
		if err == nil {
			s.start(base, nc)
			continue
		}
		<-s.slots
		switch {
		case ctx.Err() != nil: // the listener was closed for that
		case scarce(err):
			s.log.WarnContext(ctx, "node socket does not accept for now", "error", err)
			pause.For(ctx, 50*time.Millisecond)
		default:
			return fmt.Errorf("accept on the node socket: %w", err)
		}
	}
	return nil
}

// scarce reports whether an accept failed for want of something that comes back
// when connections end. The socket's queue keeps the callers meanwhile.
func scarce(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// start serves nc in goroutines of its own, which s.wg counts.
func (s *server) start(ctx context.Context, nc net.Conn) {
	c := &conn{s: s, nc: nc, work: make(chan Request, 1)}
	ctx, c.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	s.wg.Go(func() {
		defer func() { <-s.slots }()
		c.run(ctx)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// stop ends all connections as [Serve] promises, and waits for them.
func (s *server) stop() {
	s.mu.Lock()
	open := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	s.mu.Unlock()
	for _, c := range open {
		c.finish()
	}
	late := time.AfterFunc(s.lim.Drain, func() {
		for _, c := range open {
			c.cancel(ErrStopped)
		}
	})
	defer late.Stop()
	s.wg.Wait()
}
