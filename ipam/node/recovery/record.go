package recovery

import (
	"errors"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ErrKnown says that an attachment, or one of its addresses, is in the store
// already, or that its right is frozen no more.
var ErrKnown = errors.New("it is known already, or its right is frozen no more")

// Record writes an attachment that was found, with its addresses taken in their
// frozen blocks, or by its frozen use, or returns [ErrKnown] and writes nothing.
func Record(tx *store.Tx, att store.Attachment) error {
	if _, known, err := tx.Attachment(att.Key); err != nil || known {
		return orKnown(known, err)
	}
	if att.Use != "" {
		if err := stillFrozen(tx, att.Use); err != nil {
			return err
		}
		return tx.PutAttachment(att)
	}
	for _, x := range att.Addresses {
		if err := take(tx, x); err != nil {
			return err
		}
	}
	return tx.PutAttachment(att)
}

// orKnown returns err, or ErrKnown if there is none and known is set.
func orKnown(known bool, err error) error {
	if err == nil && known {
		return ErrKnown
	}
	return err
}

// stillFrozen returns ErrKnown where a right is frozen no more: it was given back since the
// attachments were looked for, or is this store's own by now.
func stillFrozen(tx *store.Tx, name string) error {
	r, ok, err := tx.Right(name)
	return orKnown(!ok || r.Phase != protocol.Frozen, err)
}

// take takes an address in its frozen block.
func take(tx *store.Tx, x store.Address) error {
	if err := stillFrozen(tx, x.Lease); err != nil {
		return err
	}
	err := allocator.NewSpace(tx.Table(x.Pool), nil).Take(x.Addr)
	if errors.Is(err, allocator.ErrTaken) || errors.Is(err, allocator.ErrBarred) {
		return ErrKnown
	}
	return err
}
