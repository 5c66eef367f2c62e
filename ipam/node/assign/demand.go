// Package assign decides which addresses an attachment gets, keeps and gives back,
// on one transaction of the node's store. The agent and local mode share it: what
// differs is where blocks come from and who else may know of an attachment.
package assign

import (
	"errors"
	"fmt"
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

func (a Demand) isGone(x store.Attachment) bool { return a.Gone != nil && a.Gone(x) }

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

// addressesToAnswer returns which of the addresses of x may be answered to it again, by the right
// that an address was given by: a use, a request or a lease. An
// address that its lease has ceded may be answered only while the sandbox lives: after that it is
// another's.
func (a Demand) addressesToAnswer(tx *store.Tx, x store.Attachment) ([]store.Address, error) {
	if a.Leasing == nil {
		return x.Addresses, nil
	}
	if x.Use != "" {
		if ok, err := a.Leasing.Keeps(tx, x.Use, a.Boot); err != nil || !ok {
			return nil, err
		}
		return x.Addresses, nil
	}
	var kept []store.Address
	for _, addr := range x.Addresses {
		ok, err := a.Leasing.Keeps(tx, addr.Lease, a.Boot)
		if err != nil {
			return nil, err
		}
		if ok && a.isGone(x) {
			given, err := isCeded(tx, addr)
			if err != nil {
				return nil, err
			}
			ok = !given
		}
		if ok {
			kept = append(kept, addr)
		}
	}
	return kept, nil
}

// check reports an Ask that contradicts itself: a fault of the caller.
func (a Demand) check() error {
	var errs []error
	switch {
	case len(a.Slots) == 0 && len(a.Granted) == 0:
		errs = append(errs, errors.New("it needs no address"))
	case len(a.Slots) > 0 && len(a.Granted) > 0:
		errs = append(errs, errors.New("it has both slots and granted addresses"))
	case (len(a.Granted) > 0) != (a.Use != ""):
		errs = append(errs, fmt.Errorf("it has %d granted addresses by the right %q", len(a.Granted), a.Use))
	}
	for i, s := range a.Slots {
		if !s.Exact.IsValid() && s.Family.BitLen() == 0 {
			errs = append(errs, fmt.Errorf("slot %d names neither a family nor an address", i))
		}
	}
	return errors.Join(errs...)
}

// attachment returns the record of a with these addresses.
func (a Demand) attachment(addrs []store.Address) store.Attachment {
	return store.Attachment{
		Key: a.Key, Pod: a.Pod, Netns: a.Netns, NetnsID: a.NetnsID, Boot: a.Boot, Created: a.Now,
		Addresses: addrs, Claim: a.Claim, Use: a.Use,
	}
}
