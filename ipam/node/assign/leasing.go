package assign

import (
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Leasing says for what the node's rights are good at the moment of a transaction.
type Leasing struct {
	// Term is that of the node's registration; 0 where it has none.
	Term int64
	// Open says that new addresses may be given out.
	Open bool
	// Ceding are the leases of which what is free is about to be ceded: it belongs to whoever has
	// waited longest for it.
	Ceding map[string]bool
}

// Serves reports whether addresses may be given out of a lease.
func (l Leasing) Serves(tx *store.Tx, lease string) (bool, error) {
	if !l.Open || l.Ceding[lease] {
		return false, nil
	}
	return tx.RightUsable(lease, l.Term)
}

// Keeps reports whether an attachment of this boot may be answered again what it has out of a
// lease, or by a use or a request. Of a right of an earlier term only a write tells that: then the
// error is an [*UnconfirmedError].
//
// What a lost store gave may be answered again in the boot in which that was lost. After another,
// nothing of its time runs, and where this store is lost too, the next one gives it back at once:
// nothing new may rest on it.
func (l Leasing) Keeps(tx *store.Tx, right, boot string) (bool, error) {
	r, ok, err := tx.Right(right)
	switch {
	case err != nil:
		return false, err
	case !ok: // read back from elsewhere: nobody took it from this store
		return true, nil
	case r.Phase == protocol.Frozen:
		lost, known, err := tx.Lost(r.Store)
		return err == nil && (!known || lost.Boot == boot), err
	case r.Keeps(l.Term):
		return true, nil
	case r.Phase == protocol.Held:
		return false, &UnconfirmedError{Right: right}
	default:
		return false, nil
	}
}
