package main

import (
	"context"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// Sizes of the measurement of writes.
const (
	writesBurst  = 250              // pods, with four interfaces each
	writesInA24  = 200              // ADDs in the smallest pool, which has 254 addresses
	writesSlow   = 60               // ADDs, one after the other
	slowInterval = time.Second      // between two of them
	writesSettle = 35 * time.Second // the agent writes a lease's status every 30 s at most
)

// writePools are the pools whose writes are counted. Their blocks are as large as the
// pools' sizes make them.
var writePools = []struct{ title, name, cidr string }{
	{"a /24", "writes-24", "10.72.0.0/24"}, {"a /20", "writes-20", "10.73.0.0/20"}, {"a /16", "writes-16", "10.74.0.0/16"},
}

// perAdd are the writes for each ADD in one pool.
type perAdd struct{ cold, warm, slow float64 }

// writes counts the API writes for each ADD: of a burst on a node without leases, of
// the same burst again, and at one ADD a second.
func (b *bench) writes(ctx context.Context) {
	count, stop := b.node.countWrites(ctx)
	defer stop()
	w := writing{bench: b, count: count, all: make([][]asks, len(writePools))}
	for i, p := range writePools {
		b.node.open(ctx, p.name, v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: p.cidr}}})
		w.all[i] = b.asksOf(ctx, max(callers, b.samples(writesBurst)), p.name)
	}
	w.all[0] = w.all[0][:min(len(w.all[0]), writesInA24)]
	got := make([]perAdd, len(writePools))
	for _, phase := range []struct {
		adds func(context.Context) (made []int)
		note func(p *perAdd, each float64)
	}{
		{w.burst, func(p *perAdd, each float64) { p.cold = each }},
		{w.burst, func(p *perAdd, each float64) { p.warm = each }},
		{w.slowly, func(p *perAdd, each float64) { p.slow = each }},
	} {
		each := w.measure(ctx, phase.adds)
		for i := range got {
			phase.note(&got[i], each[i])
		}
	}
	b.report.writes(got)
}

// writing is the measurement of writes.
type writing struct {
	*bench

	count *counter
	all   [][]asks // by pool
}

// measure makes ADDs in all pools and returns the writes for each, by pool. What the
// DELs cause, which follow, is not among them.
func (w *writing) measure(ctx context.Context, adds func(context.Context) (made []int)) []float64 {
	before := w.count.now()
	made := adds(ctx)
	w.wait(ctx, writesSettle)
	after := w.count.now()
	each := make([]float64, len(w.all))
	for i, p := range writePools {
		each[i] = float64(after[p.name]-before[p.name]) / float64(made[i])
		w.storm(ctx, w.all[i][:made[i]], func(a asks) []byte { return a.del })
	}
	w.wait(ctx, writesSettle)
	return each
}

// burst makes all ADDs of a pool at once, one pool after the other.
func (w *writing) burst(ctx context.Context) (made []int) {
	for _, all := range w.all {
		w.storm(ctx, all, func(a asks) []byte { return a.add })
		made = append(made, len(all))
	}
	return made
}

// storm sends one frame of each of all. An agent closes connections on which nothing is
// asked for some time, so these are new ones.
func (w *writing) storm(ctx context.Context, all []asks, pick func(asks) []byte) {
	conns, hangUp, err := dialAll(ctx, w.node.socket(), callers)
	w.Must(err)
	defer hangUp()
	_, _, err = storm(ctx, conns, all, pick)
	w.Must(err)
}

// slowly makes one ADD a second in every pool.
func (w *writing) slowly(ctx context.Context) []int {
	conns, hangUp, err := dialAll(ctx, w.node.socket(), len(w.all))
	w.Must(err)
	defer hangUp()
	made := make([]int, len(w.all))
	tick := time.NewTicker(slowInterval)
	defer tick.Stop()
	for n := range min(len(w.all[0]), w.samples(writesSlow)) {
		for i, all := range w.all {
			if _, err := conns[i].call(all[n].add); err != nil {
				w.Fail("ADD: %w", err)
			}
			made[i]++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Must(context.Cause(ctx))
		}
	}
	return made
}

// A counter counts the writes of leases, by pool: each is an event of a watch.
type counter struct {
	mu     sync.Mutex
	writes map[string]int // guarded by mu
}

func (c *counter) now() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.writes)
}

// countWrites counts from now on until stop is called. The watch must not be closed by
// the API server before, which it does after half an hour at the earliest.
func (n *node) countWrites(ctx context.Context) (c *counter, stop func()) {
	leases := &v1alpha1.IPLeaseList{}
	n.Must(n.Client.List(ctx, leases))
	w, err := n.Client.Watch(ctx, &v1alpha1.IPLeaseList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: leases.ResourceVersion}})
	n.Must(err)
	c = &counter{writes: map[string]int{}}
	go func() {
		for e := range w.ResultChan() {
			if l, ok := e.Object.(*v1alpha1.IPLease); ok {
				c.mu.Lock()
				c.writes[l.Spec.Pool]++
				c.mu.Unlock()
			}
		}
	}()
	return c, w.Stop
}
