package agentapi

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	c, err := Connect(context.Background(), time.Minute, r.socket)
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

func mustFrame(t *testing.T, v message) []byte {
	t.Helper()
	b, err := appendFrame(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
