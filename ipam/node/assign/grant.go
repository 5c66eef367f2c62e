package assign

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// wantRanges is how many ranges an address may be requested from: more make no valid
// request.
const wantRanges = 256

// Wants returns what a request for slots asks the cluster for, an address for each
// slot in their order: one that is asked for by name as a range of its own, any other
// as the ordinary addresses that the slot's view has of the pool. Where these are too
// many ranges, what lies between them is requested, too, unless the view keeps it out: the
// cluster knows what of its pools it may give to anybody. A view of more ranges than
// that has the first of them only.
func Wants(slots []Slot) []protocol.Wanted {
	wants := make([]protocol.Wanted, len(slots))
	for i, s := range slots {
		wants[i].Pool = s.Pool
		if s.Exact.IsValid() {
			wants[i].Ranges = []string{s.Exact.String() + "-" + s.Exact.String()}
			continue
		}
		rr := s.Shape.OrdinaryWithin(s.Family, s.View)
		if len(rr) > wantRanges {
			rr = s.Shape.SpansWithin(s.Family, s.View)
		}
		for _, r := range rr[:min(len(rr), wantRanges)] {
			wants[i].Ranges = append(wants[i].Ranges, r.String())
		}
	}
	return wants
}

// Granted returns what the request for wants was granted as the attachment will have
// it: addrs, one for each of wants, in their order. ok is false where they are not, or not
// any more, what the slots may have: the pool may have been changed meanwhile, or the
// network been given another one, which may have the same addresses.
func Granted(slots []Slot, wants []protocol.Wanted, addrs []netip.Addr) (granted []store.Address, ok bool) {
	if len(slots) != len(addrs) || len(wants) != len(addrs) {
		return nil, false
	}
	for i, s := range slots {
		if wants[i].Pool != s.Pool || allocator.FamilyOf(addrs[i]) == 0 || !s.fits(addrs[i]) {
			return nil, false
		}
		in, ok := s.Shape.Locate(addrs[i])
		if !ok {
			return nil, false
		}
		x := answer(s, addrs[i], in)
		x.Lease = "" // it is not out of a block of this node's
		granted = append(granted, x)
	}
	return granted, true
}
