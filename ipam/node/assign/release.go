package assign

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

// Release gives back what the attachment has, and forgets it. It needs neither
// the network's configuration nor the pool. An attachment that is not there is
// no error (C11): ok is false. What was granted by the cluster stays the
// cluster's; giving up the right is the caller's, once no attachment is left of
// released.Use.
func Release(tx *store.Tx, k store.Key) (released store.Attachment, ok bool, err error) {
	return ReleaseIf(tx, k, 0)
}

// ReleaseIf releases as [Release] does, but only an attachment of that generation; 0 is any.
// Whoever decided earlier to release an attachment, as garbage for example, must use it: an ADD
// may have come in between.
func ReleaseIf(tx *store.Tx, k store.Key, generation uint64) (released store.Attachment, ok bool, err error) {
	held, ok, err := tx.Attachment(k)
	if err != nil || !ok || generation != 0 && held.Generation != generation {
		return store.Attachment{}, false, err
	}
	if held.Use == "" {
		for _, x := range held.Addresses {
			if err := free(tx, x); err != nil {
				return store.Attachment{}, false, err
			}
		}
	}
	if err := tx.DeleteAttachment(k); err != nil {
		return store.Attachment{}, false, err
	}
	return held, true, nil
}

// free gives x back to its block. Where it is free already, or its block is
// gone, there is nothing to do: a DEL that failed for it would fail for ever. What
// x's lease has ceded is barred, and is not this node's to give again.
func free(tx *store.Tx, x store.Address) error {
	err := space(tx, x.Pool, nil).Free(x.Addr)
	if errors.Is(err, allocator.ErrNotTaken) || errors.Is(err, allocator.ErrNoBlock) {
		return nil
	}
	if err != nil {
		return err
	}
	if given, err := isCeded(tx, x); err != nil || !given {
		return err
	}
	return space(tx, x.Pool, nil).Bar(x.Addr, true)
}

// isCeded reports whether x is ceded on its lease although an attachment has it. A person may
// have ceded it, or this node may have, after the moment to which its store has gone back.
func isCeded(tx *store.Tx, x store.Address) (bool, error) {
	r, ok, err := tx.Right(x.Lease)
	return ok && slices.Contains(r.Ceded, x.Addr), err
}

// Check reports whether the attachment still has what prev, the addresses of its
// ADD's result, says: nil, or a [*CheckError]. prev may have addresses of others,
// since plugins of one chain share a result.
func Check(tx *store.Tx, k store.Key, prev []netip.Prefix) error {
	held, ok, err := tx.Attachment(k)
	if err != nil {
		return err
	}
	if !ok {
		return &CheckError{Key: k, Reason: "has no address recorded"}
	}
	for _, x := range held.Addresses {
		if !slices.Contains(prev, netip.PrefixFrom(x.Addr, x.Bits)) {
			return &CheckError{Key: k, Reason: "has " + netip.PrefixFrom(x.Addr, x.Bits).String() + " recorded, which prevResult does not have"}
		}
		if held.Use != "" {
			continue
		}
		state, err := space(tx, x.Pool, nil).State(x.Addr)
		if err != nil {
			return err
		}
		if state != allocator.Taken {
			return &CheckError{Key: k, Reason: "has " + x.Addr.String() + " recorded, which its pool counts as " + state.String()}
		}
	}
	return nil
}
