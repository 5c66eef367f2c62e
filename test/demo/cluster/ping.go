package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/process"
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
	d.During("pings", func() error {
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
	*process.Task
	answers int           // of its goroutine, until the task has ended
	silence time.Duration // likewise
}

// pingEvery is how long a watch rests between an answer and the next request.
const pingEvery = 10 * time.Millisecond

// newWatch begins to watch to from a pod.
func newWatch(ctx context.Context, from *pod, to netip.Addr) *watch {
	w := &watch{}
	w.Task = process.Go(ctx, func(ctx context.Context) error {
		last := time.Now()
		for {
			if err := ping(ctx, from, to); err != nil {
				return err
			}
			w.answers++
			w.silence = max(w.silence, time.Since(last))
			last = time.Now()
			_ = show.Sleep(ctx, pingEvery) // the next ping sees that ctx has ended
		}
	})
	return w
}

// end ends a watch and returns how many answers came and how long the longest wait for
// one was.
func (d *demo) end(w *watch) (answers int, silence time.Duration) {
	if err := w.Stop(); !errors.Is(err, context.Canceled) {
		d.Must(err)
	}
	if w.answers == 0 {
		d.Fail("no ping was answered")
	}
	return w.answers, w.silence
}
