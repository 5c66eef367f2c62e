package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An addressDemand is one address that nothing leased can give.
type addressDemand struct {
	family allocator.Family
	view   allocator.View
	exact  netip.Addr // the one address that will do; zero: any of view
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

// obtain sees to it that enough acquires are under way and waits until one has
// ended, whoever began it: also if one has since finished acquires had ended, before
// the caller looked for room. In a pool of which nothing can be leased now it waits for
// news of that. It returns nil if it is worth looking again, and the
// error of the acquire that it began itself. A [*unmetError] says that only the
// cluster can help: at once where the pool is exhausted.
func (a *Agent) obtain(ctx context.Context, p *pool, n addressDemand, finished uint64) error {
	_, _, changed := p.now()
	if unmet := a.unmetNow(p, n); unmet != nil {
		return unmet
	}
	_, waited, err := p.until(ctx, a.sched, func(known *knownPool, absent bool) string { return a.unleasable(p.name, known, absent) })
	if waited || err != nil {
		return err // a pool that has opened may be another one: all is looked for anew
	}
	err = a.lease(ctx, p, n, finished)
	if e, ok := errors.AsType[*notReadyError](err); ok && e.News {
		return p.awaitNews(ctx, a.sched, changed, e.Why)
	}
	return err
}

// lease is obtain where nothing is known against leasing a block.
func (a *Agent) lease(ctx context.Context, p *pool, n addressDemand, finished uint64) error {
	if n.exact.IsValid() { // only that block will do: nobody else's acquire helps
		return a.obtainExact(ctx, p, n)
	}
	own, ended := a.join(p, n, finished)
	if ended == nil {
		return nil
	}
	defer p.demands.leave(n)
	var done <-chan struct{}
	if own != nil {
		done = own.ended
	}
	switch a.sched.Wait(ctx, sched.Forever, done, ended) {
	case 0:
		return own.err
	case 1:
		return nil
	}
	return noBlockYet(ctx, p)
}

// unmetNow returns why n need not be tried: its pool is exhausted, or it could not be
// met a moment ago.
func (a *Agent) unmetNow(p *pool, n addressDemand) error {
	if known, _, _ := p.now(); known != nil && known.Pressure == allocator.PressureExhausted {
		return &unmetError{Cause: &ExhaustedError{Pool: p.name, Family: n.family, View: n.view, Exact: n.exact, Message: known.Exhausted}}
	}
	if n.exact.IsValid() {
		return nil
	}
	if unmet := p.demands.unmet(n, a.sched.Now()); unmet != nil {
		return unmet
	}
	return nil
}

func noBlockYet(ctx context.Context, p *pool) error {
	return &notReadyError{Pool: p.name, Why: "has no block for this node yet: " + context.Cause(ctx).Error()}
}

// acquire leases one more block that meets n: one of this node's own that is in
// doubt or being given back, else the next that nobody seems to hold.
func (a *Agent) acquire(ctx context.Context, p *pool, n addressDemand) error {
	known, absent, _ := p.now()
	if why := a.unleasable(p.name, known, absent); why != "" {
		return &notReadyError{Pool: p.name, Why: why, News: true}
	}
	if ok, why := a.serving(); !ok {
		return &notServingError{Why: why}
	}
	own, err := a.unsettled(p, known, n)
	if err != nil {
		return err
	}
	if own.IsValid() {
		if done, err := a.tryBlock(ctx, p, known, own); done {
			return err
		}
	}
	if ok, err := a.takeBack(ctx, p, known, n); ok || err != nil {
		return err
	}
	return a.probe(ctx, p, known, n)
}

// errOthers says that every block that was probed is another's.
var errOthers = errors.New("others were faster at every block that was tried")

// probe tries blocks that are not this node's, a few of them: then the pool is nearly
// full, or this node unlucky, and the controller knows better.
func (a *Agent) probe(ctx context.Context, p *pool, known *knownPool, n addressDemand) error {
	tried := map[netip.Prefix]bool{}
	for range a.cfg.Probes {
		block, ok, trying, err := a.candidate(p, known, n, tried)
		if err != nil {
			return err
		}
		if !ok && trying { // this node is at the rest itself: what comes of that, it looks again
			if ended := p.demands.underWay(); ended != nil {
				a.sched.Wait(ctx, sched.Forever, ended)
			}
			return nil
		}
		if !ok {
			return &unmetError{Cause: &ExhaustedError{Pool: p.name, Family: n.family, View: n.view}}
		}
		if done, err := a.tryBlock(ctx, p, known, block); done {
			return err
		}
		tried[block] = true
	}
	return &unmetError{Cause: fmt.Errorf("pool %s is contended: %w", p.name, errOthers)}
}

// tryBlock tries to lease a block, which the caller has claimed. done says that there
// is no use in trying another: it worked, or nothing will now.
func (a *Agent) tryBlock(ctx context.Context, p *pool, known *knownPool, block netip.Prefix) (done bool, err error) {
	defer p.demands.unclaim(block)
	_, res, err := a.drive(ctx, leaseRight(known.Pool, block), a.beginWith(protocol.Event{Kind: protocol.EventWant}))
	if err != nil {
		return true, undriven(p, block, err)
	}
	switch res.Verdict {
	case protocol.VerdictServes:
		a.log.InfoContext(ctx, "block leased", "pool", known.Name, "block", block)
		return true, nil
	case protocol.VerdictTaken, protocol.VerdictGone:
		return false, nil
	case protocol.VerdictLater:
		if a.registered() { // this one cannot be settled now: another may
			return false, nil
		}
	case protocol.VerdictRefused, protocol.VerdictDenied, protocol.VerdictNone:
	}
	return true, noLease(p, block, res)
}

// undriven says why a drive for a lease of block has come to no end. Where news of the
// pool are due, they will tell.
func undriven(p *pool, block netip.Prefix, err error) error {
	return &notReadyError{Pool: p.name, Why: fmt.Sprintf("gave no lease of %v: %v", block, err), News: is[*poolWaitsError](err)}
}

// noLease says why a drive has ended without a lease of block. Where that was refused,
// the pool as read live was not as heard: the watch will say so, too. Where the API
// server has denied the create, by a rule of its own, nothing will say when it does not
// any more: that is not waited for.
func noLease(p *pool, block netip.Prefix, res protocol.Result) error {
	return &notReadyError{Pool: p.name, Why: fmt.Sprintf("gave no lease of %v: %s", block, res.Why), News: res.Verdict == protocol.VerdictRefused}
}

// candidate returns the next block to try for n, claimed: one that this node has no
// record of and that is not in tried. It goes round the pool from where the last search
// ended, at first from a point of this node's own, so that nodes do not meet. Where it has
// met others it goes on anywhere: who goes on where others do meets them again at every
// block. ok is false if there is none; trying says then whether an acquire is at one that
// would do.
func (a *Agent) candidate(p *pool, known *knownPool, n addressDemand, tried map[netip.Prefix]bool) (block netip.Prefix, ok, trying bool, err error) {
	d := &p.demands
	d.mu.Lock()
	defer d.mu.Unlock()
	if known.bits(n.family) == 0 {
		return netip.Prefix{}, false, false, nil
	}
	from, begun := d.cursor[n.family]
	switch {
	case len(tried) > 0:
		from = known.shape.Spread(n.family, a.sched.Uint64N(math.MaxUint64))
	case !begun:
		from = known.shape.Spread(n.family, hashOf(a.cfg.Node))
	}
	// d.mu is held, which every ADD needs that waits for a block: a disk that hangs must
	// not keep it. What is found here the Update that notes a block looks at again.
	err = a.st.Peek(func(tx *store.Tx) error {
		for block = range known.around(n, from) {
			trying = trying || d.trying[block]
			if tried[block] || d.trying[block] {
				continue
			}
			_, mine, err := tx.Right(protocol.LeaseName(p.name, block))
			if err != nil || !mine {
				ok = err == nil
				return err
			}
		}
		return nil
	})
	if err != nil || !ok {
		return netip.Prefix{}, false, trying, err
	}
	d.claimLocked(block)
	if d.cursor == nil {
		d.cursor = map[allocator.Family]netip.Addr{}
	}
	d.cursor[n.family] = netipx.PrefixLastIP(block).Next() // behind the last address of all: the lowest
	return block, true, trying, nil
}

// around returns the blocks that meet n, each once: those from an address on, and then
// those before it.
func (p *knownPool) around(n addressDemand, from netip.Addr) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		var first netip.Prefix
		for at := from; ; {
			found, more := p.shape.NextBlock(n.family, p.bits(n.family), n.view, at)
			if !more { // begin again at the start of the pool
				found, more = p.shape.NextBlock(n.family, p.bits(n.family), n.view, netip.Addr{})
			}
			if !more || found == first || !yield(found) {
				return
			}
			if !first.IsValid() {
				first = found
			}
			at = netipx.PrefixLastIP(found).Next()
		}
	}
}

func hashOf(node protocol.NodeName) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node)) // never fails
	return h.Sum64()
}

// obtainExact leases the block of one address that was asked for by name.
func (a *Agent) obtainExact(ctx context.Context, p *pool, n addressDemand) error {
	known, absent, _ := p.now()
	if why := a.unleasable(p.name, known, absent); why != "" {
		return &notReadyError{Pool: p.name, Why: why, News: true}
	}
	block := known.shape.Block(n.exact, known.bits(n.family))
	r, res, err := a.driveForADD(ctx, leaseRight(known.Pool, block), a.beginWith(protocol.Event{Kind: protocol.EventWant}))
	switch {
	case err != nil:
		return undriven(p, block, err)
	case res.Verdict == protocol.VerdictServes && !slices.Contains(r.Ceded, n.exact):
		return nil
	case res.Verdict == protocol.VerdictServes:
		if ok, err := a.takeBack(ctx, p, known, n); ok || err != nil {
			return err
		}
		return &unmetError{Cause: &HeldError{Addr: n.exact, Pool: p.name, Holder: protocol.Holder{Cluster: true}}}
	case res.Verdict != protocol.VerdictTaken:
		return noLease(p, block, res)
	}
	held := &HeldError{Addr: n.exact, Pool: p.name}
	if l, out, _ := a.cl.Leases.ReadLease(ctx, r.Name); out == protocol.Done { // for people
		held.Holder = l.Holder
		if g, ok := l.GrantOf(n.exact); ok {
			held.To = g.To.String()
		}
	}
	return &unmetError{Cause: held}
}
