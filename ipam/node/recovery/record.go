package recovery

import (
	"errors"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ErrKnown says that an attachment, or one of its addresses, is in the store
// already.
var ErrKnown = errors.New("it is known already")

// Record writes an attachment that was found, with its addresses taken in their
// frozen blocks, or returns [ErrKnown] and writes nothing.
func Record(tx *store.Tx, att store.Attachment) error {
	if _, known, err := tx.Attachment(att.Key); err != nil || known {
		return orKnown(known, err)
	}
	if att.Use == "" {
		for _, x := range att.Addresses {
			if err := take(tx, x); err != nil {
				return err
			}
		}
	}
	return tx.PutAttachment(att)
}

// orKnown returns err, or ErrKnown if there is none and something is known.
func orKnown(known bool, err error) error {
	if err == nil && known {
		return ErrKnown
	}
	return err
}

// take takes an address in its frozen block.
func take(tx *store.Tx, x store.Address) error {
	r, ok, err := tx.Right(x.Lease)
	if err != nil {
		return err
	}
	if !ok || r.Phase != protocol.Frozen {
		return ErrKnown // it has been given back meanwhile
	}
	err = allocator.NewSpace(tx.Table(x.Pool), nil).Take(x.Addr)
	if errors.Is(err, allocator.ErrTaken) || errors.Is(err, allocator.ErrBarred) {
		return ErrKnown
	}
	return err
}
