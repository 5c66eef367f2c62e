package recovery

import (
	"context"
	"errors"
	"strings"

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
	if unknown(att.Key) { // not if a result told of it
		for _, err := range tx.OfPod(att.Pod.UID, att.IfName) {
			return orKnown(true, err)
		}
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

// Recognise gives an attachment that was found without its sandbox the key of the
// call that names it, a DEL or a CHECK: a pod has one interface of a name. args is
// the call's CNI_ARGS; without a pod's UID in it nothing happens.
func Recognise(ctx context.Context, st *store.Store, key store.Key, args string) error {
	uid := podUID(args)
	if uid == "" {
		return nil
	}
	var old store.Attachment
	found := false
	err := st.ViewContext(ctx, func(tx *store.Tx) error {
		if _, known, err := tx.Attachment(key); err != nil || known {
			return err
		}
		for att, err := range tx.OfPod(uid, key.IfName) {
			if err != nil {
				return err
			}
			if unknown(att.Key) {
				old, found = att, true
			}
		}
		return nil
	})
	if err != nil || !found {
		return err
	}
	return st.Update(ctx, func(tx *store.Tx) error {
		if _, still, err := tx.Attachment(old.Key); err != nil || !still {
			return err
		}
		if err := tx.DeleteAttachment(old.Key); err != nil {
			return err
		}
		old.Key = key
		return tx.PutAttachment(old)
	})
}

// podUID returns the pod's UID in CNI_ARGS, empty if there is none.
func podUID(args string) protocol.UID {
	for pair := range strings.SplitSeq(args, ";") {
		if uid, ok := strings.CutPrefix(pair, "K8S_POD_UID="); ok {
			return protocol.UID(uid)
		}
	}
	return ""
}
