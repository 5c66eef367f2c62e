package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// acquire leases one more block that has an address for a slot: one of this node's own that is in
// doubt or being given back, else the next that nobody seems to hold.
func (bs *blocks) acquire(ctx context.Context, p *pool, slot assign.Slot) (unmet, err error) {
	known, absent, _ := p.now()
	if why := bs.pools.unleasable(p.name, known, absent); why != "" {
		return nil, &notReadyError{Pool: p.name, Why: why, News: true}
	}
	if ok, why := bs.reg.serving(); !ok {
		return nil, &notServingError{Why: why}
	}
	own, err := bs.unsettled(p, known, slot)
	if err != nil {
		return nil, err
	}
	if own.IsValid() {
		if done, err := bs.tryBlock(ctx, p, known, own); done {
			return nil, err
		}
	}
	if ok, err := bs.takeBack(ctx, p, known, slot); ok || err != nil {
		return nil, err
	}
	return bs.probe(ctx, p, known, slot)
}

// unsettled returns a block of this node that could serve a slot again, claimed: one whose
// create is in doubt, that is being given back, or that has room and waits to be confirmed
// again in a new term. Without it an outage would leave one more name behind at every
// try. The Update that uses the block reads its right again.
func (bs *blocks) unsettled(p *pool, known *knownPool, slot assign.Slot) (block netip.Prefix, err error) {
	term, unserving := bs.reg.term(), bs.rights.unserving.blocks(p.name)
	may := known.mayLease(bs.cfg.Node)
	var found, leaving []netip.Prefix
	err = bs.st.Peek(func(tx *store.Tx) error {
		free, err := freeIn(tx, p.name, slot.Family, unserving)
		if err != nil {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			waits := r.Phase == protocol.Noted || r.Phase == protocol.Releasing || r.Phase == protocol.Held && !r.Usable(term) && free[r.Block] > 0
			if r.Kind != protocol.RightLease || r.Pool != p.name || !waits || allocator.FamilyOf(r.Block.Addr()) != slot.Family {
				continue
			}
			switch {
			case !known.gives(r.Block, slot):
			case r.Phase != protocol.Releasing:
				found = append(found, r.Block)
			case may(r.Block):
				leaving = append(leaving, r.Block)
			}
		}
		return nil
	})
	if err != nil {
		return netip.Prefix{}, err
	}
	// Not within the Peek: who waits for the lock of acquires in a transaction, while
	// whoever has it begins one, waits for ever once the store's file has to grow.
	for _, block := range slices.Concat(found, leaving) {
		if ok, err := bs.claimOwn(p, known, block); ok || err != nil {
			return block, err
		}
	}
	return netip.Prefix{}, nil
}

// claimOwn claims a block that this node has, may have got, or is giving back. Where each node has
// one subnet, no acquire may be at another one meanwhile. Nor may the record have gone since the
// block was chosen, nor the node take a subnet back if it has another, or may have got one.
func (bs *blocks) claimOwn(p *pool, known *knownPool, block netip.Prefix) (ok bool, err error) {
	if known.Text.PerNode == nil {
		return p.acquires.claim(block), nil
	}
	if p.acquires.claimAlone(block) == nil {
		return false, nil
	}
	leaving, settled := false, false
	err = bs.st.Peek(func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			switch {
			case err != nil:
				return err
			case r.Kind == protocol.RightLease && r.Pool == p.name && r.Block == block:
				leaving, ok = r.Phase == protocol.Releasing, true
			default:
				settled = settled || known.isSubnet(r)
			}
		}
		return nil
	})
	if ok = ok && err == nil && !(leaving && settled); !ok {
		p.acquires.unclaim(block)
	}
	return ok, err
}

// freeIn returns how many addresses are free in each of some open blocks.
func freeIn(tx *store.Tx, name protocol.PoolName, f allocator.Family, blocks map[netip.Prefix]bool) (map[netip.Prefix]int, error) {
	free := map[netip.Prefix]int{}
	if len(blocks) == 0 {
		return free, nil
	}
	for b, err := range allocator.NewSpace(tx.Table(name), nil).Blocks(f) {
		if err != nil {
			return nil, err
		}
		if blocks[b.Prefix] {
			free[b.Prefix] = b.Free
		}
	}
	return free, nil
}

// probe tries blocks that are not this node's, a few of them: then the pool is nearly
// full, or this node unlucky, and the controller knows better.
func (bs *blocks) probe(ctx context.Context, p *pool, known *knownPool, slot assign.Slot) (unmet, err error) {
	tried := map[netip.Prefix]bool{}
	for range bs.cfg.Probes {
		block, ok, trying, err := bs.candidate(p, known, slot, tried)
		if err != nil {
			return nil, err
		}
		if !ok && trying { // this node is at the rest itself: afterwards there may be room
			return nil, bs.awaitAcquire(ctx, p)
		}
		if !ok {
			return bs.noBlock(ctx, p, known, slot), nil
		}
		if done, err := bs.tryBlock(ctx, p, known, block); done {
			return nil, err
		}
		tried[block] = true
	}
	return fmt.Errorf("pool %s is contended: others were faster at every block that was tried", p.name), nil
}

// candidate returns the next block to try for a slot, claimed: one that this node has no
// record of and that is not in tried. It goes round the pool from where the last search
// ended, at first from a point of this node's own, so that nodes do not meet. Where it has
// met others it goes on anywhere: who goes on where others do meets them again at every
// block. ok is false if there is none; trying says then whether an acquire is at one that
// would do.
func (bs *blocks) candidate(p *pool, known *knownPool, slot assign.Slot, tried map[netip.Prefix]bool) (block netip.Prefix, ok, trying bool, err error) {
	aq := &p.acquires
	aq.mu.Lock()
	defer aq.mu.Unlock()
	if known.bits(slot.Family) == 0 {
		return netip.Prefix{}, false, false, nil
	}
	may, err := bs.subnetsFor(p, known)
	if err != nil || may == nil {
		return netip.Prefix{}, false, err == nil && len(aq.trying) > 0, err
	}
	from, begun := aq.cursor[slot.Family]
	switch {
	case len(tried) > 0:
		from = known.shape.Spread(slot.Family, bs.sched.Uint64N(math.MaxUint64))
	case !begun:
		from = known.shape.Spread(slot.Family, hashOf(bs.cfg.Node))
	}
	// Every ADD that waits for a block needs aq.mu, so a disk that hangs must not keep it: hence
	// Peek. The Update that notes the block reads again.
	err = bs.st.Peek(func(tx *store.Tx) error {
		for block = range known.around(slot, from) {
			trying = trying || aq.trying[block]
			if tried[block] || aq.trying[block] || !may(block) {
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
	aq.claimLocked(block)
	if aq.cursor == nil {
		aq.cursor = map[allocator.Family]netip.Addr{}
	}
	aq.cursor[slot.Family] = netipx.PrefixLastIP(block).Next() // behind the last address of all: the lowest
	return block, true, trying, nil
}

func hashOf(node protocol.NodeName) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node)) // never fails
	return h.Sum64()
}

// tryBlock tries to lease a block, which the caller has claimed. done says that there
// is no use in trying another: it worked, or nothing will now.
func (bs *blocks) tryBlock(ctx context.Context, p *pool, known *knownPool, block netip.Prefix) (done bool, err error) {
	defer p.acquires.unclaim(block)
	_, res, err := bs.rights.settle(ctx, leaseRight(known.Pool, block), bs.rights.beginWith(protocol.Event{Kind: protocol.EventWant}))
	if err != nil {
		return true, notSettled(p, block, err)
	}
	switch res.Verdict {
	case protocol.VerdictUsable:
		bs.log.InfoContext(ctx, "block leased", "pool", known.Name, "block", block)
		return true, nil
	case protocol.VerdictTaken, protocol.VerdictGone:
		return false, nil
	case protocol.VerdictLater:
		if bs.reg.registered() { // this one cannot be settled now: another may
			return false, nil
		}
	case protocol.VerdictRefused, protocol.VerdictDenied, protocol.VerdictNone:
	}
	return true, noLease(p, block, res)
}

// notSettled says why a lease of block was not settled. Where news of the
// pool are due, they will tell.
func notSettled(p *pool, block netip.Prefix, err error) error {
	return &notReadyError{Pool: p.name, Why: fmt.Sprintf("gave no lease of %v: %v", block, err), News: is[*poolWaitsError](err)}
}

// noLease says why there is no lease of block. Where that was refused,
// the pool as read live was not as heard: the watch will say so, too. Where the API
// server has denied the create, by a rule of its own, nothing will say when it does not
// any more: that is not waited for.
func noLease(p *pool, block netip.Prefix, res protocol.Result) error {
	return &notReadyError{Pool: p.name, Why: fmt.Sprintf("gave no lease of %v: %s", block, res.Why), News: res.Verdict == protocol.VerdictRefused}
}
