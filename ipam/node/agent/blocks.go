package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
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

// obtain has a block leased for a slot for which nothing leased has an address. It begins an
// acquire, unless enough are under way, and waits until one ends, whoever began it. It does not
// wait if one has ended since the caller looked for room: finished is how many had ended then. In a
// pool of which nothing can be leased now it waits for news of the pool.
//
// If it returns nil the caller looks for room again. The error is that of the acquire that it
// began. unmet says why only the cluster can help: at once where the pool is exhausted.
func (bs *blocks) obtain(ctx context.Context, p *pool, slot assign.Slot, finished uint64) (unmet, err error) {
	_, _, changed := p.now()
	if unmet := bs.unmetNow(p, slot); unmet != nil {
		return unmet, nil
	}
	_, waited, err := p.until(ctx, bs.sched, func(known *knownPool, absent bool) string { return bs.pools.unleasable(p.name, known, absent) })
	if waited || err != nil {
		return nil, err // a pool that has opened may be another one: all is read anew
	}
	unmet, err = bs.lease(ctx, p, slot, finished)
	if e, ok := errors.AsType[*notReadyError](err); ok && e.News {
		return nil, p.awaitNews(ctx, bs.sched, changed, e.Why)
	}
	return unmet, err
}

// unmetNow returns why no block for a slot need be tried: its pool is exhausted, or none could be
// had a moment ago.
func (bs *blocks) unmetNow(p *pool, slot assign.Slot) error {
	if known, _, _ := p.now(); known != nil && known.Pressure == allocator.PressureExhausted {
		return &ExhaustedError{Pool: p.name, Family: slot.Family, View: slot.View, Exact: slot.Exact, Message: known.Exhausted}
	}
	if slot.Exact.IsValid() {
		return nil
	}
	return p.acquires.unmet(slot, bs.sched.Now())
}

// lease leases a block for a slot, or waits for one that others lease. The caller has checked that
// the pool is open.
func (bs *blocks) lease(ctx context.Context, p *pool, slot assign.Slot, finished uint64) (unmet, err error) {
	if slot.Exact.IsValid() { // only that block will do: nobody else's acquire helps
		return bs.obtainExact(ctx, p, slot)
	}
	own, ended := bs.join(p, slot, finished)
	if ended == nil {
		return nil, nil
	}
	defer p.acquires.leave(slot)
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
func (bs *blocks) join(p *pool, slot assign.Slot, finished uint64) (own *acquiring, ended <-chan struct{}) {
	aq := &p.acquires
	aq.mu.Lock()
	defer aq.mu.Unlock()
	if bs.finished.Load() != finished {
		return nil, nil
	}
	q, under := aq.change(slot, 0, 1), aq.running()
	if aq.ended == nil {
		aq.ended = make(chan struct{})
	}
	if size := blockSize(p, slot); under >= bs.cfg.Parallel || q.running >= (q.waiting+size-1)/size {
		return nil, aq.ended
	}
	aq.change(slot, 1, 0)
	own = &acquiring{ended: make(chan struct{})}
	bs.background(func(ctx context.Context) {
		own.unmet, own.err = bs.acquire(ctx, p, slot)
		close(own.ended)
		bs.land(aq, slot, own.unmet)
	})
	return own, aq.ended
}

// awaitAcquire waits until an acquire that is at a block of p has ended.
func (bs *blocks) awaitAcquire(ctx context.Context, p *pool) error {
	if ended := p.acquires.underWay(); ended != nil && bs.sched.Wait(ctx, sched.Forever, ended) != 0 {
		return &notReadyError{Pool: p.name, Why: "has no block for this node yet: " + context.Cause(ctx).Error()}
	}
	return nil
}

// land ends an acquire for a slot, and wakes whoever waits. unmet, if it is not nil, says why there
// is no block for the slot.
func (bs *blocks) land(aq *acquires, slot assign.Slot, unmet error) {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	aq.change(slot, -1, 0)
	if unmet != nil {
		if aq.unmetLately == nil {
			aq.unmetLately = map[slotKey]unmetLately{}
		}
		aq.unmetLately[keyOf(slot)] = unmetLately{bs.sched.Now(), unmet}
	}
	bs.finished.Add(1)
	aq.wake()
}

// obtainExact leases the block of one address that was asked for by name.
func (bs *blocks) obtainExact(ctx context.Context, p *pool, slot assign.Slot) (unmet, err error) {
	known, absent, _ := p.now()
	if why := bs.pools.unleasable(p.name, known, absent); why != "" {
		return nil, &notReadyError{Pool: p.name, Why: why, News: true}
	}
	block := known.shape.Block(slot.Exact, known.bits(slot.Family))
	var release func()
	if known.Text.PerNode != nil {
		// The node may have a subnet in a moment, and has one only.
		if release = p.acquires.claimAlone(block); release == nil {
			return nil, bs.awaitAcquire(ctx, p)
		}
		if err := bs.notThisNodes(known, slot.Exact, block); err != nil {
			release()
			return nil, err
		}
	}
	r, res, err := bs.rights.settleForADD(ctx, leaseRight(known.Pool, block), bs.rights.beginWith(protocol.Event{Kind: protocol.EventWant}), release)
	switch {
	case err != nil:
		return nil, notSettled(p, block, err)
	case res.Verdict == protocol.VerdictUsable && !slices.Contains(r.Ceded, slot.Exact):
		return nil, nil
	case res.Verdict == protocol.VerdictUsable:
		if ok, err := bs.takeBack(ctx, p, known, slot); ok || err != nil {
			return nil, err
		}
		return &HeldError{Addr: slot.Exact, Pool: p.name, Holder: protocol.Holder{Cluster: true}}, nil
	case res.Verdict != protocol.VerdictTaken:
		return nil, noLease(p, block, res)
	}
	held := &HeldError{Addr: slot.Exact, Pool: p.name}
	if l, out, _ := bs.cl.Leases.ReadLease(ctx, r.Name); out == protocol.Done { // for people
		held.Holder = l.Holder
		if g, ok := l.GrantOf(slot.Exact); ok {
			held.To = g.To.String()
		}
	}
	return held, nil
}
