package ports

import (
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An Ask asks for the port of a claim.
type Ask struct {
	UID   protocol.UID
	Claim grants.ClaimKey
	// From are the pools that have a source, in the network's order, and Mixed says that the
	// network has others as well.
	From  []Source
	Mixed bool
	// Addresses are wanted by name. Granted says that they are the claim's already, whatever
	// the pools' ranges are by now: its port was lost.
	Addresses []netip.Addr
	Granted   bool
	// Port is what the claim has been told of its port; zero if nothing.
	Port vif.Port
}

// A Source is a pool with a source.
type Source struct {
	Pool protocol.PoolName
	// Families are those of which one address each is wanted. Nil is every family that the
	// pool has.
	Families []allocator.Family
}

// equal reports whether a and o ask for the same, whatever the claim has been told since.
func (a Ask) equal(o Ask) bool {
	return a.UID == o.UID && a.Claim == o.Claim && a.Mixed == o.Mixed && a.Granted == o.Granted &&
		slices.Equal(a.Addresses, o.Addresses) &&
		slices.EqualFunc(a.From, o.From, func(x, y Source) bool { return x.Pool == y.Pool && slices.Equal(x.Families, y.Families) })
}

// An Answer is what became of an [Ask] so far. The zero Answer says that the port is being made.
type Answer struct {
	// Port is the claim's port, and Addresses those that it has of the pools.
	Port      vif.Port
	Addresses []netip.Addr
	// Problem is why there is none; zero where there is.
	Problem Problem
}

// A Problem is why a claim has no port now. It is tried again.
type Problem struct {
	// Reason is one of this package's, or of [neutron.Reason].
	Reason neutron.Reason
	// Message is a sentence for people.
	Message string
	// Holder is the port that has an address which the claim needs, nil where that is not why.
	Holder *neutron.Holder
}

// Reasons of this package.
const (
	// NotReady: it is not known yet what the pool's subnets are.
	NotReady neutron.Reason = "PoolNotReady"
	// Unassignable: the pools cannot give an address that is wanted by name.
	Unassignable neutron.Reason = "Unassignable"
	// TwoNetworks: the pools are of several networks of Neutron's, and a port is on one.
	TwoNetworks neutron.Reason = "TwoNetworks"
)

// None reports whether p says nothing.
func (p Problem) None() bool { return p.Reason == "" }

func problemOf(err error) Problem {
	reason, holder := neutron.ReasonOf(err)
	return Problem{Reason: reason, Message: err.Error(), Holder: holder}
}
