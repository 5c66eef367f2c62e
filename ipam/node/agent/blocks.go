package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// blocks are what this node leases, and gives back or cedes to the cluster.
type blocks struct {
	*base
	reg      *registration
	pools    *pools
	rights   *rights
	ceding   cessions
	recalls  recalls
	finished atomic.Uint64 // how many acquires have ended
}

// An addressDemand is one address that nothing leased can give.
type addressDemand struct {
	family allocator.Family
	view   allocator.View
	exact  netip.Addr // the one address that will do; zero: any of view
}

// met reports whether x would do for n.
func (n addressDemand) met(shape *allocator.Shape, x netip.Addr) bool {
	if n.exact.IsValid() {
		return x == n.exact
	}
	return allocator.FamilyOf(x) == n.family && n.view.Contains(x) && shape.Ordinary(x)
}

// An ExhaustedError says that a pool has no block left for this node.
type ExhaustedError struct {
	Pool    protocol.PoolName
	Family  allocator.Family
	View    allocator.View
	Exact   netip.Addr // the one address that was wanted; zero: any
	Message string     // what the pool's condition says, if it says that
}

func (e *ExhaustedError) Error() string {
	switch {
	case e.Exact.IsValid():
		return fmt.Sprintf("pool %s has no block for this node that may give %v", e.Pool, e.Exact)
	case e.Message != "":
		return e.Message
	case e.View.IsAll():
		return fmt.Sprintf("pool %s is exhausted: no %v block is free", e.Pool, e.Family)
	}
	return fmt.Sprintf("pool %s is exhausted within %v: no %v block is free", e.Pool, e.View, e.Family)
}

// A HeldError says that a requested address lies in a block that another holds.
type HeldError struct {
	Addr   netip.Addr
	Pool   protocol.PoolName
	Holder protocol.Holder
	To     string // to whom it is granted, if it is
}

func (e *HeldError) Error() string {
	if e.To != "" {
		return fmt.Sprintf("address %v of pool %s belongs to %s", e.Addr, e.Pool, e.To)
	}
	return fmt.Sprintf("address %v of pool %s is in a block that %v holds", e.Addr, e.Pool, e.Holder)
}

// obtain has a block leased for n. It begins an acquire, unless enough are under way, and waits
// until one ends, whoever began it. It does not wait if one has ended since the caller looked for
// room: finished is how many had ended then. In a pool of which nothing can be leased now it waits
// for news of the pool.
//
// If it returns nil the caller looks for room again. The error is that of the acquire that it
// began. unmet says why only the cluster can help: at once where the pool is exhausted.
func (bs *blocks) obtain(ctx context.Context, p *pool, n addressDemand, finished uint64) (unmet, err error) {
	_, _, changed := p.now()
	if unmet := bs.unmetNow(p, n); unmet != nil {
		return unmet, nil
	}
	_, waited, err := p.until(ctx, bs.sched, func(known *knownPool, absent bool) string { return bs.pools.unleasable(p.name, known, absent) })
	if waited || err != nil {
		return nil, err // a pool that has opened may be another one: all is read anew
	}
	unmet, err = bs.lease(ctx, p, n, finished)
	if e, ok := errors.AsType[*notReadyError](err); ok && e.News {
		return nil, p.awaitNews(ctx, bs.sched, changed, e.Why)
	}
	return unmet, err
}

// unmetNow returns why n need not be tried: its pool is exhausted, or it could not be
// met a moment ago.
func (bs *blocks) unmetNow(p *pool, n addressDemand) error {
	if known, _, _ := p.now(); known != nil && known.Pressure == allocator.PressureExhausted {
		return &ExhaustedError{Pool: p.name, Family: n.family, View: n.view, Exact: n.exact, Message: known.Exhausted}
	}
	if n.exact.IsValid() {
		return nil
	}
	return p.demands.unmet(n, bs.sched.Now())
}

// lease leases a block for n, or waits for one that others lease. The caller has checked that the
// pool is open.
func (bs *blocks) lease(ctx context.Context, p *pool, n addressDemand, finished uint64) (unmet, err error) {
	if n.exact.IsValid() { // only that block will do: nobody else's acquire helps
		return bs.obtainExact(ctx, p, n)
	}
	own, ended := bs.join(p, n, finished)
	if ended == nil {
		return nil, nil
	}
	defer p.demands.leave(n)
	var done <-chan struct{}
	if own != nil {
		done = own.ended
	}
	switch bs.sched.Wait(ctx, sched.Forever, done, ended) {
	case 0:
		return own.unmet, own.err
	case 1:
		return nil, nil
	}
	return nil, &notReadyError{Pool: p.name, Why: "has no block for this node yet: " + context.Cause(ctx).Error()}
}

// join adds an ADD to those that wait for blocks of p. It begins an acquire, unless enough are
// under way: own is that. ended closes when any acquire ends. Finished is how many had ended when
// the ADD looked for room. If one has ended since, ended is nil: the ADD looks for room again.
func (bs *blocks) join(p *pool, n addressDemand, finished uint64) (own *acquiring, ended <-chan struct{}) {
	d := &p.demands
	d.mu.Lock()
	defer d.mu.Unlock()
	if bs.finished.Load() != finished {
		return nil, nil
	}
	q, under := d.change(n, 0, 1), d.acquires()
	if d.ended == nil {
		d.ended = make(chan struct{})
	}
	if size := blockSize(p, n); under >= bs.cfg.Parallel || q.running >= (q.waiting+size-1)/size {
		return nil, d.ended
	}
	d.change(n, 1, 0)
	own = &acquiring{ended: make(chan struct{})}
	bs.background(func(ctx context.Context) {
		own.unmet, own.err = bs.acquire(ctx, p, n)
		close(own.ended)
		bs.land(d, n, own.unmet)
	})
	return own, d.ended
}

// awaitAcquire waits until an acquire that is at a block of p has ended.
func (bs *blocks) awaitAcquire(ctx context.Context, p *pool) error {
	if ended := p.demands.underWay(); ended != nil && bs.sched.Wait(ctx, sched.Forever, ended) != 0 {
		return &notReadyError{Pool: p.name, Why: "has no block for this node yet: " + context.Cause(ctx).Error()}
	}
	return nil
}

// land ends an acquire for n, which was met unless unmet says why not, and wakes whoever waits.
func (bs *blocks) land(d *demands, n addressDemand, unmet error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.change(n, -1, 0)
	if unmet != nil {
		if d.unmetLately == nil {
			d.unmetLately = map[demandKey]unmetLately{}
		}
		d.unmetLately[n.key()] = unmetLately{bs.sched.Now(), unmet}
	}
	bs.finished.Add(1)
	d.wake()
}

// obtainExact leases the block of one address that was asked for by name.
func (bs *blocks) obtainExact(ctx context.Context, p *pool, n addressDemand) (unmet, err error) {
	known, absent, _ := p.now()
	if why := bs.pools.unleasable(p.name, known, absent); why != "" {
		return nil, &notReadyError{Pool: p.name, Why: why, News: true}
	}
	block := known.shape.Block(n.exact, known.bits(n.family))
	var release func()
	if known.Text.PerNode != nil {
		// The node may have a subnet in a moment, and has one only.
		if release = p.demands.claimAlone(block); release == nil {
			return nil, bs.awaitAcquire(ctx, p)
		}
		if err := bs.notThisNodes(known, n.exact, block); err != nil {
			release()
			return nil, err
		}
	}
	r, res, err := bs.rights.settleForADD(ctx, leaseRight(known.Pool, block), bs.rights.beginWith(protocol.Event{Kind: protocol.EventWant}), release)
	switch {
	case err != nil:
		return nil, notSettled(p, block, err)
	case res.Verdict == protocol.VerdictUsable && !slices.Contains(r.Ceded, n.exact):
		return nil, nil
	case res.Verdict == protocol.VerdictUsable:
		if ok, err := bs.takeBack(ctx, p, known, n); ok || err != nil {
			return nil, err
		}
		return &HeldError{Addr: n.exact, Pool: p.name, Holder: protocol.Holder{Cluster: true}}, nil
	case res.Verdict != protocol.VerdictTaken:
		return nil, noLease(p, block, res)
	}
	held := &HeldError{Addr: n.exact, Pool: p.name}
	if l, out, _ := bs.cl.Leases.ReadLease(ctx, r.Name); out == protocol.Done { // for people
		held.Holder = l.Holder
		if g, ok := l.GrantOf(n.exact); ok {
			held.To = g.To.String()
		}
	}
	return held, nil
}
