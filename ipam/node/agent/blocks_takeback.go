package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// takeBackAfter is how long after a pool's exhaustion a node begins to take back what
// it has ceded of it: a pool at the edge does not go back and forth.
const takeBackAfter = 10 * time.Second

// takeBack takes addresses that this node has ceded, and nobody has been granted,
// into service again: as many as the slot's ADD and those that wait with it lack, and the
// reserve that is due. ok is false where there is nothing to take back.
func (bs *blocks) takeBack(ctx context.Context, p *pool, known *knownPool, slot assign.Slot) (ok bool, err error) {
	if bs.pools.isUnderRestore(p.name) || known.Pressure == allocator.PressureExhausted || p.acquires.eased(bs.sched.Now()) < takeBackAfter {
		return false, nil
	}
	r, addrs, err := bs.ceded(ctx, p, known, slot)
	if err == nil && len(addrs) == 0 && known.Text.PerNode != nil {
		if err = bs.rereadCeded(ctx, p); err == nil {
			r, addrs, err = bs.ceded(ctx, p, known, slot)
		}
	}
	if err != nil || len(addrs) == 0 {
		return false, err
	}
	now, res, err := bs.rights.settleForADD(ctx, r, func(_ *store.Tx, _ protocol.Self, r protocol.Right) (protocol.Event, error) {
		left := slices.ContainsFunc(addrs, func(x netip.Addr) bool { return slices.Contains(r.Ceded, x) })
		if r.Phase != protocol.Held || !left {
			return protocol.Event{}, errNothing
		}
		return protocol.Event{Kind: protocol.EventTakeBack, Addrs: addrs}, nil
	}, nil)
	if errors.Is(err, errNothing) { // another acquire was faster
		return true, nil
	}
	if err != nil || res.Verdict != protocol.VerdictUsable {
		return false, err
	}
	taken := 0
	for _, x := range addrs {
		if !slices.Contains(now.Ceded, x) {
			taken++
		}
	}
	bs.metrics.takenBack.Add(float64(taken))
	bs.log.InfoContext(ctx, "ceded addresses taken back", "lease", r.Name, "addresses", taken)
	return taken > 0, nil
}

// takenBack is takeBack for an ADD whose request waits: it goes on waiting where there
// is nothing to take back.
func (bs *blocks) takenBack(ctx context.Context, p *pool, slot assign.Slot) bool {
	known, absent, _ := p.now()
	if bs.pools.unleasable(p.name, known, absent) != "" {
		return false
	}
	ok, err := bs.takeBack(ctx, p, known, slot)
	if err != nil {
		bs.log.DebugContext(ctx, "nothing taken back", "pool", p.name, "error", err)
	}
	return ok && ctx.Err() == nil
}

// ceded returns a lease of this node that has ceded addresses which fit a slot, and which
// of them to take back.
func (bs *blocks) ceded(ctx context.Context, p *pool, known *knownPool, slot assign.Slot) (lease protocol.Right, addrs []netip.Addr, err error) {
	term := bs.reg.term()
	limit, err := bs.lacking(ctx, p, known, slot)
	if err != nil {
		return lease, nil, err
	}
	err = bs.st.ViewContext(ctx, func(tx *store.Tx) error {
		lease, addrs = protocol.Right{}, nil
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Kind != protocol.RightLease || r.Pool != p.name || !r.Usable(term) || len(r.Ceded) == len(r.Grants) {
				continue
			}
			for _, x := range r.Ceded {
				if len(addrs) < limit && known.fits(slot, x) && !bs.reg.isStrange(p.name, x) && !slices.Contains(r.Grants, x) {
					addrs = append(addrs, x)
				}
			}
			if len(addrs) > 0 {
				lease = r
				return nil
			}
		}
		return nil
	})
	return lease, addrs, err
}

// rereadCeded reads again what this node has leased of a pool and ceded some of: grants of that may
// have ended since. A node that has a subnet of its own has no other block to lease instead.
func (bs *blocks) rereadCeded(ctx context.Context, p *pool) error {
	var of []protocol.Right
	err := bs.st.ViewContext(ctx, func(tx *store.Tx) error {
		of = nil
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Kind == protocol.RightLease && r.Pool == p.name && r.Phase == protocol.Held && len(r.Ceded) > 0 {
				of = append(of, r)
			}
		}
		return nil
	})
	for _, r := range of {
		if err == nil {
			_, _, err = bs.rights.settleForADD(ctx, r, bs.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck}), nil)
		}
	}
	return err
}

// lacking returns how many addresses of a pool this node lacks that fit a slot: one for each ADD
// that waits for such, and the reserve.
func (bs *blocks) lacking(ctx context.Context, p *pool, known *knownPool, slot assign.Slot) (int, error) {
	p.acquires.mu.Lock()
	waiting := p.acquires.queues[keyOf(slot)].waiting
	p.acquires.mu.Unlock()
	reserve := 0
	err := bs.st.ViewContext(ctx, func(tx *store.Tx) error {
		c, err := bs.rights.counts(tx, p.name, slot.Family)
		reserve = allocator.Reserve(c.Taken, known.Pressure)
		return err
	})
	return max(waiting, 1) + reserve, err
}
