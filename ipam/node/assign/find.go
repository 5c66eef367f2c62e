package assign

import (
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// pick is an address that was chosen for a slot and is not taken yet, unless it
// is inherited from the attachment before.
type pick struct {
	store.Address
	inherited bool
}

func space(tx *store.Tx, pool protocol.PoolName, shape *allocator.Shape) allocator.Space {
	return allocator.NewSpace(tx.Table(pool), shape)
}

// lease returns the name of the lease that x is handed out of, "" if there are
// none, or none yet.
func (s Slot) lease(x netip.Addr) string {
	if s.BlockBits == 0 {
		return ""
	}
	return protocol.LeaseName(s.Pool, s.Shape.Block(x, s.BlockBits))
}

// fits reports whether x, which may be taken already, would do for s.
func (s Slot) fits(x netip.Addr) bool {
	if s.Exact.IsValid() {
		return x == s.Exact && s.View.Contains(x) && s.Shape.Assignable(x) == nil
	}
	return allocator.FamilyOf(x) == s.Family && s.View.Contains(x) && s.Shape.Ordinary(x)
}

func isPicked(picked []pick, pool protocol.PoolName, x netip.Addr) bool {
	return slices.ContainsFunc(picked, func(p pick) bool { return p.Pool == pool && p.Addr == x })
}

// inherit picks for s one of the old attachment's addresses, if one fits. It
// keeps its lease: which lease gave it is a fact, not a choice.
func inherit(old []store.Address, s Slot, picked []pick) (p pick, ok bool) {
	for _, x := range old {
		if x.Pool != s.Pool || isPicked(picked, x.Pool, x.Addr) || !s.fits(x.Addr) {
			continue
		}
		in, ok := s.Shape.Locate(x.Addr)
		if !ok {
			continue
		}
		now := answer(s, x.Addr, in)
		now.Lease = x.Lease
		return pick{now, true}, true
	}
	return pick{}, false
}

// find picks a free address for s. Its errors are [*NoRoomError], [*TakenError] and
// [*UnassignableError]; it writes nothing.
func find(tx *store.Tx, a Demand, s Slot, picked []pick) (pick, error) {
	var x netip.Addr
	var err error
	if s.Exact.IsValid() {
		x, err = findExact(tx, a, s, picked)
	} else {
		x, err = findOrdinary(tx, a, s, picked)
	}
	if err != nil {
		return pick{}, err
	}
	in, ok := s.Shape.Locate(x)
	if !ok { // the caller has not told the Space of a new shape
		return pick{}, &NoRoomError{Slot: s}
	}
	return pick{answer(s, x, in), false}, nil
}

func findExact(tx *store.Tx, a Demand, s Slot, picked []pick) (netip.Addr, error) {
	if err := s.Shape.Assignable(s.Exact); err != nil {
		return netip.Addr{}, &UnassignableError{Addr: s.Exact, Pool: s.Pool, Reason: err}
	}
	if !s.View.Contains(s.Exact) {
		return netip.Addr{}, &UnassignableError{Addr: s.Exact, Pool: s.Pool, Reason: errOutsideView}
	}
	if isPicked(picked, s.Pool, s.Exact) {
		return netip.Addr{}, &UnassignableError{Addr: s.Exact, Pool: s.Pool, Reason: errTwice}
	}
	state, err := space(tx, s.Pool, s.Shape).State(s.Exact)
	if err != nil {
		return netip.Addr{}, err
	}
	switch state {
	case allocator.Taken:
		by, err := holder(tx, s.Pool, s.Exact)
		if err != nil {
			return netip.Addr{}, err
		}
		return netip.Addr{}, &TakenError{Addr: s.Exact, Pool: s.Pool, By: by, For: a.Pod}
	case allocator.Free:
		ok, err := a.serves(tx, s, s.Exact)
		if err == nil && !ok {
			err = &NoRoomError{Slot: s}
		}
		return s.Exact, err
	default: // no block here, or ceded: others may give it
		return netip.Addr{}, &NoRoomError{Slot: s}
	}
}

// findOrdinary looks through the open blocks. Those whose lease does not serve
// are passed over: a lease that is being given back or was lost stays open for
// as long as addresses of it are in use.
func findOrdinary(tx *store.Tx, a Demand, s Slot, picked []pick) (netip.Addr, error) {
	view := s.View
	for _, p := range picked {
		if p.Pool == s.Pool && allocator.FamilyOf(p.Addr) == s.Family {
			view = without(view, netip.PrefixFrom(p.Addr, p.Addr.BitLen()))
		}
	}
	mustRest := s.Rested != nil && !a.Unrested
	if mustRest {
		if x, ok, err := findServed(tx, a, s, view, *s.Rested); err != nil || ok {
			return x, err
		}
	}
	x, ok, err := findServed(tx, a, s, view, math.MaxUint64)
	if err != nil || ok && !mustRest {
		return x, err
	}
	return netip.Addr{}, &NoRoomError{Slot: s, Rests: ok}
}

// findServed returns the address within view to take next, of those that were never freed, and of
// the first freed ones; ok is false if there is none.
func findServed(tx *store.Tx, a Demand, s Slot, view allocator.View, freed uint64) (x netip.Addr, ok bool, err error) {
	sp := space(tx, s.Pool, s.Shape)
	for {
		x, ok, err := sp.FindRested(s.Family, view, freed)
		if err != nil || !ok {
			return x, false, err
		}
		if ok, err := a.serves(tx, s, x); err != nil || ok {
			return x, ok, err
		}
		view = without(view, s.Shape.Block(x, s.BlockBits)) // all of the family where no blocks are decided
	}
}

// without returns v less p.
func without(v allocator.View, p netip.Prefix) allocator.View {
	var b netipx.IPSetBuilder
	b.AddPrefix(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	b.AddPrefix(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	b.RemovePrefix(p)
	set, _ := b.IPSet() // only valid prefixes were added
	return v.Intersect(allocator.NewView(set))
}

// holder returns the attachment that has x of pool. It is the zero Attachment
// where the store knows none, which [store.Store.Check] reports.
func holder(tx *store.Tx, pool protocol.PoolName, x netip.Addr) (store.Attachment, error) {
	for held, err := range tx.Attachments() {
		if err != nil {
			return store.Attachment{}, err
		}
		if slices.ContainsFunc(held.Addresses, func(h store.Address) bool { return h.Addr == x && h.Pool == pool }) {
			return held, nil
		}
	}
	return store.Attachment{}, nil
}

// serves reports whether x may be handed out for s, if it is free.
func (a Demand) serves(tx *store.Tx, s Slot, x netip.Addr) (bool, error) {
	switch {
	case a.Leasing == nil:
		return true, nil
	case s.BlockBits == 0:
		return false, nil
	}
	return a.Leasing.Serves(tx, s.lease(x))
}

// answer returns the record of address x for slot s; in is its range.
func answer(s Slot, x netip.Addr, in allocator.Range) store.Address {
	bits, gateway := in.Prefix.Bits(), in.Gateway
	if s.Answer != nil {
		bits, gateway = s.Answer(x, in)
	}
	return store.Address{Addr: x, Bits: bits, Gateway: gateway, Pool: s.Pool, Lease: s.lease(x)}
}
