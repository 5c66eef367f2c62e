package grants

import "github.com/tenure-ipam/tenure/ipam/protocol"

// A Notify has the functions that the Broker calls when there is news. They must neither block nor
// call the Broker. A function that is nil is not called.
type Notify struct {
	// Claim is called with each claim whose grants have changed or whose ask has news.
	// SubLease is called with the name of each such sub-lease.
	Claim    func(ClaimKey)
	SubLease func(name string)
	// Reservation is called with the name of each such reservation.
	Reservation func(name string)
	// Pool is called with each pool whose [Broker.Starving] has changed.
	Pool func(protocol.PoolName)
}

// notifyGrantees notifies the grantees of these names.
func (b *Broker) notifyGrantees(names []protocol.Grantee) {
	for _, name := range names {
		switch {
		case name.Kind == protocol.GranteeClaim && b.notify.Claim != nil:
			b.notify.Claim(ClaimKey{name.Namespace, name.Name})
		case name.Kind == protocol.GranteeSubLease && b.notify.SubLease != nil:
			b.notify.SubLease(name.Name)
		case name.Kind == protocol.GranteeReservation && b.notify.Reservation != nil:
			b.notify.Reservation(name.Name)
		}
	}
}

func (b *Broker) notifyPools(names []protocol.PoolName) {
	for _, name := range names {
		if b.notify.Pool != nil {
			b.notify.Pool(name)
		}
	}
}
