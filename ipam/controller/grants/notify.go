package grants

import "github.com/tenure-ipam/tenure/ipam/protocol"

// A Notify is who hears of news. Its functions must neither block nor call the
// Broker; one that is nil is not called.
type Notify struct {
	// Claim is called with each claim about whose grants or ask there is news,
	// SubLease with the name of each such sub-lease.
	Claim    func(ClaimKey)
	SubLease func(name string)
	// Reservation is called with the name of each such reservation.
	Reservation func(name string)
	// Pool is called with each pool of which [Broker.Starving] says something else
	// than before, or of which a search has found nothing for the first time.
	Pool func(protocol.PoolName)
}

// tell notifies the grantees of these names.
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
