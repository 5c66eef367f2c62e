package assign

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A NoRoomError says that no open block of this node has an address for the
// slot: the one that was asked for by name, or any. A slot without a family says
// that the pool has no ranges.
type NoRoomError struct {
	Slot Slot
	// Rests says that there is one, which was freed too short a time ago: a [Demand] that is
	// Unrested gets it.
	Rests bool
}

func (e *NoRoomError) Error() string {
	switch s := e.Slot; {
	case s.Exact.IsValid():
		return fmt.Sprintf("pool %s has no block here that may give %v", s.Pool, s.Exact)
	case s.Family == 0:
		return fmt.Sprintf("pool %s has no ranges", s.Pool)
	case s.View.IsAll():
		return fmt.Sprintf("pool %s has no free %v address", s.Pool, s.Family)
	default:
		return fmt.Sprintf("pool %s has no free %v address in what the network may take (%v)", s.Pool, s.Family, s.View)
	}
}

// A TakenError says that somebody has the address that was asked for, by name or
// by claim.
type TakenError struct {
	Addr netip.Addr
	Pool protocol.PoolName
	By   store.Attachment
	// For is the pod that asks; zero where the runtime does not name one.
	For protocol.PodRef
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("address %v of pool %s is held by %s%s", e.Addr, e.Pool, describe(e.By), e.For.Standoff(e.By.Pod))
}

// A LostError says that addresses of an attachment were taken from this node, as
// from a dead one, and may be another's by now.
type LostError struct{ Held store.Attachment }

func (e *LostError) Error() string {
	return fmt.Sprintf("%s has addresses that were taken from this node: a new sandbox gets other addresses", describe(e.Held))
}

// An UnconfirmedError says that a right is of an earlier term of the node's registration: until it
// is written in this one, nobody knows whether it was taken.
type UnconfirmedError struct {
	Right string
	Why   string // what came of the try to write it; empty before
}

func (e *UnconfirmedError) Error() string {
	text := fmt.Sprintf("whether %s is still this node's is not known yet", e.Right)
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

// An UnassignableError says that the address that was asked for by name can be
// given to nobody, or not through this network.
type UnassignableError struct {
	Addr   netip.Addr
	Pool   protocol.PoolName
	Reason error
}

func (e *UnassignableError) Error() string {
	return fmt.Sprintf("address %v of pool %s cannot be given: %v", e.Addr, e.Pool, e.Reason)
}

func (e *UnassignableError) Unwrap() error { return e.Reason }

var (
	errOutsideView = errors.New("it lies outside what this network may take of the pool")
	errTwice       = errors.New("it is asked for twice")
)

// A ConflictError says that the attachment has addresses and is asked for as if
// it were another one. Reason reads on from the attachment's name.
type ConflictError struct {
	Held   store.Attachment
	Reason string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("attachment %s %s: delete it first", e.Held.Key, e.Reason)
}

// A CheckError says in what an attachment differs from the result of its ADD.
// Reason reads on from the attachment's name.
type CheckError struct {
	Key    store.Key
	Reason string
}

func (e *CheckError) Error() string { return fmt.Sprintf("attachment %s %s", e.Key, e.Reason) }

// describe names an attachment to a person who asks who has an address.
func describe(x store.Attachment) string {
	ref, claimed := x.ResourceClaim()
	switch {
	case claimed:
		return fmt.Sprintf("ResourceClaim %s, device %s, network %s (pod %s)", ref, x.IfName, x.Network, x.Pod.Name)
	case x.Key == (store.Key{}):
		return "an attachment that is not recorded"
	case x.Pod.Name == "":
		return fmt.Sprintf("container %s, interface %s, network %s", x.ContainerID, x.IfName, x.Network)
	default:
		return fmt.Sprintf("pod %s, interface %s, network %s (container %s)", x.Pod, x.IfName, x.Network, x.ContainerID)
	}
}

func podText(p protocol.PodRef) string {
	if p.Name == "" {
		return string(p.UID)
	}
	return fmt.Sprintf("%s (UID %s)", p, p.UID)
}
