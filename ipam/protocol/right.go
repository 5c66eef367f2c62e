package protocol

import (
	"net/netip"
	"slices"
	"time"
)

// A Right is what a node holds of the cluster, as its store records it: a lease of a block, the use
// of a claim, or a request and what it was granted. All live the same life, drawn in
// docs/contributing/protocol.md:
//
//	        Note        created, confirmed           Let go
//	(none) ------> Noted -----------------> Held --------------> Releasing
//	  ^              |                        ^                    |    |
//	  |   not mine,  |                        |  fencing write     |    |
//	  +--------------+                        +--------------------+    |
//	  |                 a live read shows it gone, or another's         |
//	  +-----------------------------------------------------------------+
//
// A right gives addresses only while it is Held and its Term is the registration's. A
// right of a lost store begins as Frozen, see there.
type Right struct {
	Kind  RightKind `json:"kind"`
	Name  string    `json:"name"`
	Phase Phase     `json:"phase"`
	// UID and Revision are those of the last answer about the object.
	UID      UID      `json:"uid,omitempty"`
	Revision Revision `json:"revision,omitempty"`
	Writes   int64    `json:"turn,omitempty"`
	// Asserted is the term that the object carries. Term is the term in which the right is usable
	// or last was; it is 0 while the right waits for a confirmation.
	Asserted int64 `json:"said,omitempty"`
	Term     int64 `json:"term,omitempty"`
	// Deleting says that at Revision the object was being deleted, and kept by somebody's
	// finalizer.
	Deleting bool `json:"deleting,omitempty"`
	// NotedAt is when the name was noted, for the rechecks after 1, 5 and 30 minutes.
	NotedAt time.Time `json:"notedAt,omitzero"`

	// Doubtful says of a Noted right that an earlier create may have landed, or may still land.
	// If a later create is refused, that says nothing of the earlier one.
	Doubtful bool `json:"doubtful,omitempty"`

	// Store is the lost store of a right that is Frozen, or that was and is being given back.
	// It is empty for a right of this store.
	Store StoreID `json:"store,omitempty"`

	LeaseRight    // zero but for a RightLease
	SubLeaseRight // zero but for a RightUse and a RightRequest
}

// A LeaseRight is what a [Right] says of a lease alone.
type LeaseRight struct {
	Pool    PoolName     `json:"pool,omitempty"`
	PoolUID UID          `json:"poolUID,omitempty"`
	Block   netip.Prefix `json:"block,omitzero"`
	// Granted says that at Revision something of the lease was granted, so that it cannot be
	// given back. Grants are the granted addresses.
	Granted bool         `json:"granted,omitempty"`
	Grants  []netip.Addr `json:"grants,omitempty"`
	// Ceded are the addresses of the block that this node has given to the cluster, in ascending
	// order. The node gives them to no pod. An address is here before it is in the lease, and
	// stays until a write of this node, with its answer, has taken it out of the lease.
	Ceded []netip.Addr `json:"ceded,omitempty"`
	// Taking are those of Ceded that the next fencing write takes back.
	Taking []netip.Addr `json:"taking,omitempty"`
}

// A SubLeaseRight is what a [Right] says of a sub-lease alone: the use of a claim, or a
// request.
type SubLeaseRight struct {
	// Use or Request says what it is for; the other is nil.
	Use     *Use     `json:"use,omitempty"`
	Request *Request `json:"request,omitempty"`
	// Addrs are the addresses that a use is answered with, or that a request was granted. Leases
	// are the leases of their blocks.
	Addrs  []netip.Addr `json:"addrs,omitempty"`
	Leases []string     `json:"leases,omitempty"`
}

// RightKind says what object stands behind a [Right].
type RightKind string

// The kinds of right.
const (
	RightLease RightKind = "Lease"
	RightUse   RightKind = "Use"
	// RightRequest is a sub-lease that asks for addresses, and has them once it
	// is granted.
	RightRequest RightKind = "Request"
)

// Phase is where a [Right] stands in its life.
type Phase string

// The phases. A store that reads another word refuses to open.
const (
	// Noted: a create is about to be sent, or was, and nothing is known of it.
	Noted Phase = "Noted"
	// Held: the object exists, is this store's, and was confirmed.
	Held Phase = "Held"
	// Releasing: the right has been given away on disk; a delete is under way
	// or about to be. It gives nothing, also after a restart.
	Releasing Phase = "Releasing"
	// Lost: a live read showed the object under another holder; or the object had vanished, and
	// the pool or the claim refuses it; or its addresses are not granted to its claim any more.
	// It gives nothing. What pods still use of it is reported, and while they do, the object is
	// never deleted from here.
	Lost Phase = "Lost"
	// Frozen: the object names a store that this machine has lost, and pods that had addresses
	// by that store may still run. It gives nothing new, and is not given back while one may.
	Frozen Phase = "Frozen"
)

// Valid reports whether p is one of the phases.
func (p Phase) Valid() bool {
	switch p {
	case Noted, Held, Releasing, Lost, Frozen:
		return true
	default:
		return false
	}
}

// CededNext returns the ceded addresses that the next fencing write of the lease names: Ceded
// without those that it takes back.
func (r LeaseRight) CededNext() []netip.Addr { return without(r.Ceded, r.Taking) }

// cededAsListed reports whether l, the lease of r, has the same ceded addresses as r. If not, a
// write of this node is under way, or was lost with the agent that made it. Until that is made
// again, neither the node nor the cluster gives the addresses that it cedes.
func (r LeaseRight) cededAsListed(l Lease) bool {
	return len(r.Taking) == 0 && slices.Equal(r.Ceded, union(l.Ceded, nil))
}

// ListedOtherwise reports whether r must be rechecked after a list of the node's own objects. uid
// and l are what the list has under r's name, zero if it has nothing. r is rechecked if its create,
// which was in doubt, has landed, if its object is gone or another, or if the lease does not name
// what r has ceded. The list alone changes nothing.
func (r Right) ListedOtherwise(uid UID, l Lease) bool {
	switch r.Phase {
	case Noted:
		return uid != "" && uid != r.UID
	case Held, Lost:
		return uid != r.UID || r.Kind == RightLease && !r.cededAsListed(l)
	case Releasing, Frozen: // Releasing is rechecked until it is gone, Frozen is not
	}
	return false
}

// Usable reports whether addresses may be given out by r in term. Nothing is usable in term 0,
// which is none.
func (r Right) Usable(term int64) bool { return r.Phase == Held && term != 0 && r.Term == term }

// Keeps reports whether an attachment that has addresses out of r may be answered with them again
// in term. It may if r is usable, or is a lease that is this node's in this term and waits only for
// its pool. It may not if the lease is being deleted: then another node may lease the block.
func (r Right) Keeps(term int64) bool {
	return r.Usable(term) || r.Kind == RightLease && r.Phase == Held && !r.Deleting && term != 0 && r.PutBack(term)
}

// union returns the addresses of a and b in ascending order, without memory of
// either.
func union(a, b []netip.Addr) []netip.Addr {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// without returns the addresses of a that are not in b.
func without(a, b []netip.Addr) []netip.Addr {
	var rest []netip.Addr
	for _, x := range a {
		if !slices.Contains(b, x) {
			rest = append(rest, x)
		}
	}
	return rest
}
