// Package assign decides which addresses an attachment gets, keeps and gives back,
// on one transaction of the node's store. The agent and local mode share it: what
// differs is where blocks come from and who else may know of an attachment.
package assign

import (
	"net/netip"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Slot is one address that an attachment needs.
type Slot struct {
	Pool  protocol.PoolName
	Shape *allocator.Shape // of the pool, as it is now

	// Family is the address's. It may be zero where Exact is set.
	Family allocator.Family

	// View is what the network may take of the pool, by name or not.
	View allocator.View

	// Exact is the address that was asked for by name; the zero Addr is any
	// ordinary one.
	Exact netip.Addr

	// BlockBits is the prefix length of the pool's blocks where each block is a
	// lease, by whose name the address is then recorded. It is 0 in local mode,
	// which has no leases, and where it has not been decided yet: then there is no
	// lease to ask, and nothing new is given.
	BlockBits int

	// Rested is how many of the addresses that this node freed first have rested. Those that it
	// freed later are passed over. Nil: none has to rest.
	Rested *uint64

	// Answer says with which prefix length and gateway (zero: none) the address
	// is answered; in is the range of Shape that it lies in. Nil answers the
	// range's own.
	Answer func(a netip.Addr, in allocator.Range) (bits int, gateway netip.Addr)
}

// A Demand is an ADD: what one attachment needs, and all that is known of it.
//
// DELs of Key that were journalled come before it: the caller applies them with
// [Release] in a transaction of their own, removes them from the journal,
// durably, and then holds, all without another call of Key in between. In this
// order no crash leaves an entry behind that would free what this ADD gets.
type Demand struct {
	Key store.Key
	Pod protocol.PodRef // zero where the runtime does not name a pod

	// Netns, NetnsID and Boot are recorded: see [store.Attachment].
	Netns, NetnsID, Boot string
	Now                  time.Time

	// Slots are the addresses to take, in the order of the answer.
	Slots []Slot

	// Unrested says that an address that rests will do where no other is free.
	Unrested bool

	// Granted are given instead of Slots where the cluster has granted the
	// addresses: no block of this node has them. Use names the right by which
	// they may be answered, the use of a claim or a request, and Claim the claim if
	// they are a claim's.
	Granted []store.Address
	Use     string
	Claim   *protocol.ClaimRef

	// Gone reports whether the network namespace of an attachment is gone. What
	// cannot be verified is not gone. Nil is a function that always says no.
	Gone func(store.Attachment) bool

	// Leasing says which leases give new addresses, and which rights may be answered again those
	// that were given by them. Nil is for local mode, which has neither.
	Leasing *Leasing
}
