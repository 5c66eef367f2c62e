package agent

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// record writes the outcome of a step: the right, and of a lease whether its
// block gives addresses.
func (rs *rights) record(tx *store.Tx, was protocol.Right, known bool, res protocol.Result) error {
	if was.Kind == protocol.RightLease {
		if err := rs.openBlock(tx, was, res); err != nil {
			return err
		}
	}
	if res.Forget {
		if !known {
			return nil
		}
		return tx.DeleteRight(was.Name)
	}
	return tx.PutRight(res.Next)
}

// openBlock makes the node's allocation state follow a lease: its block is open
// while the lease is Held or Frozen, or Lost with attachments on it, and what the
// lease has ceded is barred in it. Whether addresses are given out of an open block,
// [protocol.Right.Usable] says at each ADD.
func (rs *rights) openBlock(tx *store.Tx, was protocol.Right, res protocol.Result) error {
	stays := !res.Forget && slices.Contains([]protocol.Phase{protocol.Held, protocol.Lost, protocol.Frozen}, res.Next.Phase)
	shape, err := rs.pools.shapeOf(tx, was.Pool)
	if err != nil {
		return err
	}
	space := allocator.NewSpace(tx.Table(was.Pool), shape)
	open, err := space.IsOpen(was.Block)
	switch {
	case err != nil || !open && !stays:
		return err
	case !stays:
		return space.Close(was.Block)
	case !open:
		err := space.Open(was.Block)
		if res.Next.Phase == protocol.Frozen && errors.Is(err, allocator.ErrOverlap) {
			return nil // of a pool that has other blocks by now: nothing is given out of it in any case
		}
		if err != nil {
			return err
		}
		was.Ceded = nil // nothing is barred in it yet
	}
	return rs.bar(space, was, res.Next)
}

// bar brings what is barred in an open block from what its lease had ceded to what
// it has.
func (rs *rights) bar(space allocator.Space, was, now protocol.Right) error {
	for _, x := range was.Ceded {
		if slices.Contains(now.Ceded, x) {
			continue
		}
		if err := space.Bar(x, false); err != nil {
			return err
		}
	}
	for _, x := range now.Ceded {
		if slices.Contains(was.Ceded, x) {
			continue
		}
		err := space.Bar(x, true)
		if errors.Is(err, allocator.ErrTaken) { // the pod that has it keeps it: see [protocol.Object]
			rs.log.Error("an address in use is ceded in its lease", "lease", was.Name, "address", x, "takenBack", slices.Contains(now.Taking, x))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inUse reports whether an attachment rests on r.
func inUse(tx *store.Tx, r protocol.Right) (bool, error) {
	switch r.Kind {
	case protocol.RightUse, protocol.RightRequest:
		for _, err := range tx.OfUse(r.Name) {
			return err == nil, err
		}
	case protocol.RightLease:
		space := allocator.NewSpace(tx.Table(r.Pool), nil)
		if open, err := space.IsOpen(r.Block); err != nil || !open {
			return false, err
		}
		for _, err := range space.Addresses(r.Block) {
			return err == nil, err
		}
	}
	return false, nil
}

// used returns those of addrs, of the block of a lease that is Held, which attachments have.
func used(tx *store.Tx, r protocol.Right, addrs []netip.Addr) (taken []netip.Addr, err error) {
	if r.Kind != protocol.RightLease || r.Phase != protocol.Held {
		return nil, nil
	}
	space := allocator.NewSpace(tx.Table(r.Pool), nil)
	for _, x := range addrs {
		state, err := space.State(x)
		if err != nil {
			return nil, err
		}
		if state == allocator.Taken {
			taken = append(taken, x)
		}
	}
	return taken, nil
}

// follows keeps what memory has of a right with what a step has recorded.
func (rs *rights) follows(self protocol.Self, res protocol.Result) {
	if res.Forget { // another of the name is not idle since then
		rs.idle.end(res.Next.Name)
	}
	switch res.Next.Kind {
	case protocol.RightLease:
		rs.unserving.follow(self.Term, res)
	case protocol.RightRequest:
		rs.requests.follow(res, rs.sched.Now())
	case protocol.RightUse:
	}
}

// enter keeps what memory has of all rights with the registration's new term, and returns those
// that do not serve in it yet.
func (rs *rights) enter(tx *store.Tx, term int64) (again []string, err error) {
	for r, err := range tx.Rights() {
		if err != nil {
			return nil, err
		}
		if !r.Usable(term) {
			again = append(again, r.Name)
		}
		rs.follows(protocol.Self{Term: term}, protocol.Result{Next: r})
	}
	return again, nil
}
