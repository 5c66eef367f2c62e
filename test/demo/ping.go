package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// pingTimeout is how long an answer may take: on a busy machine the first packets
// between two neighbours take a while.
const pingTimeout = 10 * time.Second

var errNoPing = fmt.Errorf("no answer for %v", pingTimeout)

func ping(ctx context.Context, from *pod, to netip.Addr) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, errNoPing)
	defer cancel()
	return from.ns.Ping(ctx, to)
}

// pingAll pings every address of each of to from each of from that has an address
// of its family.
func (d *demo) pingAll(ctx context.Context, from, to []*pod) (pings int) {
	d.during("pings", func() error {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(8)
		for _, f := range from {
			for _, t := range to {
				for _, a := range t.addrs {
					if f == t || !f.speaks(a.Addr()) {
						continue
					}
					pings++
					g.Go(func() error { return ping(ctx, f, a.Addr()) })
				}
			}
		}
		return g.Wait()
	})
	return pings
}

// speaks reports whether p has an address of the family of to.
func (p *pod) speaks(to netip.Addr) bool {
	return slices.ContainsFunc(p.addrs, func(own netip.Prefix) bool { return own.Addr().Is4() == to.Is4() })
}

// A watch pings one address again and again, and knows the longest time without
// an answer.
type watch struct {
	stop func()
	done chan struct{}

	// Of the watch's goroutine, until done is closed.
	answers int
	silence time.Duration
	err     error
}

// pingEvery is how long a watch rests between an answer and the next request.
const pingEvery = 10 * time.Millisecond

// newWatch begins to watch to from a pod.
func newWatch(ctx context.Context, from *pod, to netip.Addr) *watch {
	ctx, stop := context.WithCancel(ctx)
	w := &watch{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.run(ctx, from, to)
	}()
	return w
}

func (w *watch) run(ctx context.Context, from *pod, to netip.Addr) {
	last := time.Now()
	for {
		err := ping(ctx, from, to)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.err = err
			return
		}
		w.answers++
		w.silence = max(w.silence, time.Since(last))
		last = time.Now()
		if sleep(ctx, pingEvery) != nil {
			return
		}
	}
}

// end ends the watch and returns how many answers came and how long the longest
// wait for one was.
func (w *watch) end() (answers int, silence time.Duration, err error) {
	w.stop()
	<-w.done
	if w.err == nil && w.answers == 0 {
		return 0, 0, errors.New("no ping was answered")
	}
	return w.answers, w.silence, w.err
}
