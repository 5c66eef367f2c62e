package assign

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/store"
)

// Hold gives the attachment a.Key its addresses and records them.
//
// An attachment that has addresses is answered these (C10), whatever its
// network's configuration says by now, unless other ones are asked for by name:
// then the error is a [*ConflictError]. A device of a ResourceClaim whose addresses
// were taken from this node gets others: no new sandbox gives it another key.
//
// A new container ID for the same interface of the same pod on the same network
// takes over the addresses of the old one if the old one's network namespace is
// gone. The old attachment is then forgotten, so that its DEL, which may
// come late, frees nothing. While the old namespace is there, or where the pod
// has no UID, the new attachment gets other addresses.
//
// Hold is all or nothing: on an error no address has been taken. The errors that
// a caller may tell apart are [*NoRoomError], [*TakenError], [*UnassignableError],
// [*ConflictError], [*LostError] and [*UnconfirmedError].
func Hold(tx *store.Tx, a Demand) (store.Attachment, error) {
	if err := a.check(); err != nil {
		return store.Attachment{}, fmt.Errorf("hold addresses for %s: %w", a.Key, err)
	}
	held, ok, err := tx.Attachment(a.Key)
	if err != nil {
		return store.Attachment{}, err
	}
	switch {
	case !ok:
	case sameOwner(held, a):
		if lost, err := a.lostDevice(tx, held); err != nil {
			return store.Attachment{}, err
		} else if !lost {
			return repeat(tx, held, a)
		}
	case !a.isGone(held):
		return store.Attachment{}, &ConflictError{Held: held, Reason: fmt.Sprintf("is pod %s's, not pod %s's", podText(held.Pod), podText(a.Pod))}
	}
	if ok {
		if _, _, err := Release(tx, a.Key); err != nil {
			return store.Attachment{}, err
		}
	}
	if len(a.Granted) > 0 {
		return holdGranted(tx, a)
	}
	return holdSlots(tx, a)
}

func (a Demand) isGone(x store.Attachment) bool { return a.Gone != nil && a.Gone(x) }

// check reports a Demand that contradicts itself: a fault of the caller.
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

// sameOwner reports whether held and a are one pod's, as far as the runtime says, or one
// ResourceClaim's, which may be of one pod after the other.
func sameOwner(held store.Attachment, a Demand) bool {
	_, claimed := held.ResourceClaim()
	return held.Pod.UID == a.Pod.UID || held.Pod.UID == "" || a.Pod.UID == "" || claimed && held.Netns == a.Netns
}

// lostDevice reports whether held is a device of a ResourceClaim, and has addresses that were taken
// from this node.
func (a Demand) lostDevice(tx *store.Tx, held store.Attachment) (bool, error) {
	if _, claimed := held.ResourceClaim(); !claimed {
		return false, nil
	}
	kept, err := a.addressesToAnswer(tx, held)
	return len(kept) < len(held.Addresses), err
}

// repeat answers an ADD of an attachment that has addresses. It records what has
// changed around them: a container that is started anew may have another network
// namespace, and is then another generation.
func repeat(tx *store.Tx, held store.Attachment, a Demand) (store.Attachment, error) {
	if reason := mismatch(held, a); reason != "" {
		return store.Attachment{}, &ConflictError{Held: held, Reason: reason}
	}
	kept, err := a.addressesToAnswer(tx, held)
	if err != nil {
		return store.Attachment{}, err
	}
	if len(kept) < len(held.Addresses) {
		return store.Attachment{}, &LostError{Held: held}
	}
	now := held
	now.Netns, now.NetnsID, now.Boot = a.Netns, a.NetnsID, a.Boot
	if a.Pod.UID != "" {
		now.Pod = a.Pod
	}
	_, claimed := held.ResourceClaim()
	switch {
	// A device that a later pod has is not what was garbage of the earlier one.
	case now.NetnsID != held.NetnsID || now.Netns != held.Netns || now.Boot != held.Boot || claimed && now.Pod.UID != held.Pod.UID:
		now.Created = a.Now
		now.Generation = tx.Next()
	case now.Pod == held.Pod:
		return held, nil
	}
	return now, tx.PutAttachment(now)
}

// addressesToAnswer returns which of the addresses of x may be answered to it again, by the right
// that an address was given by: a use, a request or a lease. An address that its lease has ceded
// may be answered only while the sandbox lives: after that it is another's.
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

// mismatch says how what is asked for differs from what is held, or nothing. Any
// ordinary address is as good as another.
func mismatch(held store.Attachment, a Demand) string {
	has := func(x netip.Addr) bool {
		return slices.ContainsFunc(held.Addresses, func(h store.Address) bool { return h.Addr == x })
	}
	switch {
	case held.Claim == nil && a.Claim != nil:
		return fmt.Sprintf("has addresses of its own, not those of the claim %s", a.Claim)
	case held.Claim != nil && a.Claim == nil:
		return fmt.Sprintf("has the addresses of the claim %s, and is now asked for without a claim", held.Claim)
	case held.Claim != nil && held.Claim.UID != a.Claim.UID:
		return fmt.Sprintf("has the addresses of the claim %s (UID %s), not those of the claim %s (UID %s)",
			held.Claim, held.Claim.UID, a.Claim, a.Claim.UID)
	}
	for _, g := range a.Granted {
		if !has(g.Addr) {
			return fmt.Sprintf("has not the address %v that was granted", g.Addr)
		}
	}
	for _, s := range a.Slots {
		if s.Exact.IsValid() && !has(s.Exact) {
			return fmt.Sprintf("has not the address %v that is asked for", s.Exact)
		}
	}
	return ""
}

// holdGranted records addresses that the cluster has granted. Two live
// attachments of one node never share them.
func holdGranted(tx *store.Tx, a Demand) (store.Attachment, error) {
	for other, err := range tx.OfUse(a.Use) {
		if err != nil {
			return store.Attachment{}, err
		}
		if !a.isGone(other) {
			return store.Attachment{}, &TakenError{Addr: a.Granted[0].Addr, Pool: a.Granted[0].Pool, By: other, For: a.Pod}
		}
		if succeeds(a, other) {
			if err := tx.DeleteAttachment(other.Key); err != nil {
				return store.Attachment{}, err
			}
		}
	}
	return put(tx, a, a.Granted)
}

// succeeds reports whether a is a new sandbox of old's pod, interface and
// network.
func succeeds(a Demand, old store.Attachment) bool {
	return a.Pod.UID != "" && old.Pod.UID == a.Pod.UID && old.IfName == a.Key.IfName &&
		old.Network == a.Key.Network && old.Key != a.Key
}

// holdSlots takes an address for each slot: one of the attachment that a
// succeeds where it fits, else a free one.
func holdSlots(tx *store.Tx, a Demand) (store.Attachment, error) {
	old, err := predecessor(tx, a)
	if err != nil {
		return store.Attachment{}, err
	}
	kept, err := a.addressesToAnswer(tx, old)
	if err != nil {
		return store.Attachment{}, err
	}
	var picked []pick
	for _, s := range a.Slots {
		p, ok := inherit(kept, s, picked)
		if !ok {
			p, err = find(tx, a, s, picked)
		}
		if err != nil {
			return store.Attachment{}, err
		}
		picked = append(picked, p)
	}
	// From here on nothing is refused any more.
	if err := settle(tx, old, picked); err != nil {
		return store.Attachment{}, err
	}
	addrs := make([]store.Address, len(picked))
	for i, p := range picked {
		addrs[i] = p.Address
	}
	return put(tx, a, addrs)
}

// predecessor returns the latest attachment that a takes over, or the zero
// Attachment. An older one is left to its DEL and to the collector of garbage.
func predecessor(tx *store.Tx, a Demand) (latest store.Attachment, err error) {
	if a.Pod.UID == "" {
		return latest, nil
	}
	for old, err := range tx.OfPod(a.Pod.UID, a.Key.IfName) {
		if err != nil {
			return store.Attachment{}, err
		}
		if succeeds(a, old) && old.Use == "" && old.Generation > latest.Generation && a.isGone(old) {
			latest = old
		}
	}
	return latest, nil
}

// settle takes what was picked afresh, frees what old had and nobody inherits,
// and forgets old.
func settle(tx *store.Tx, old store.Attachment, picked []pick) error {
	for _, p := range picked {
		if p.inherited {
			continue
		}
		if err := space(tx, p.Pool, nil).Take(p.Addr); err != nil {
			return err
		}
	}
	if old.Key == (store.Key{}) {
		return nil
	}
	for _, x := range old.Addresses {
		if slices.ContainsFunc(picked, func(p pick) bool { return p.inherited && p.Addr == x.Addr && p.Pool == x.Pool }) {
			continue
		}
		if err := free(tx, x); err != nil {
			return err
		}
	}
	return tx.DeleteAttachment(old.Key)
}

// put records a new attachment of a with these addresses and returns the record.
func put(tx *store.Tx, a Demand, addrs []store.Address) (store.Attachment, error) {
	x := store.Attachment{
		Key: a.Key, Pod: a.Pod, Netns: a.Netns, NetnsID: a.NetnsID, Boot: a.Boot, Created: a.Now,
		Addresses: addrs, Claim: a.Claim, Use: a.Use, Generation: tx.Next(),
	}
	if err := tx.PutAttachment(x); err != nil {
		return store.Attachment{}, err
	}
	return x, nil
}
