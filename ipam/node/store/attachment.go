package store

import (
	"bytes"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An Attachment is one interface of one pod and the addresses that it was
// answered. That of a device of a ResourceClaim has the ResourceClaim's UID for its container ID,
// the device's name for its interface, and the pod that had the ResourceClaim last.
type Attachment struct {
	Key

	Pod protocol.PodRef
	// Netns is the path of the network namespace, or [ResourceClaimNetns].
	Netns string
	// NetnsID tells a network namespace from a later one at the same path:
	// "device:inode".
	NetnsID string
	// Boot is the boot ID of the machine at the time of the ADD. In local mode the machine's ID
	// stands before it, as "machine/boot".
	Boot string
	// Generation is larger than that of every earlier attachment of this
	// store, so that a late free can name which one it means.
	Generation uint64
	Created    time.Time // UTC once it is stored
	Addresses  []Address
	// Claim is the claim that the addresses come from, if they do.
	Claim *protocol.ClaimRef
	// Use names the right by which the addresses are the attachment's where they
	// are not out of this node's blocks: the use of Claim, or without a claim a
	// request that was granted them. Otherwise "".
	Use string
}

// resourceClaim stands before a ResourceClaim's name in the place of a path, which begins with "/".
const resourceClaim = "resourceclaim:"

// ResourceClaimNetns returns the Netns of what a ResourceClaim of that name has: which network
// namespace its device is in, nobody tells.
func ResourceClaimNetns(name string) string { return resourceClaim + name }

// ResourceClaim returns the ResourceClaim whose device a is; ok is false where a is a sandbox's.
func (a Attachment) ResourceClaim() (ref protocol.ResourceClaimRef, ok bool) {
	name, ok := strings.CutPrefix(a.Netns, resourceClaim)
	if !ok {
		return ref, false
	}
	return protocol.ResourceClaimRef{Namespace: a.Pod.Namespace, Name: name, UID: protocol.UID(a.ContainerID)}, true
}

// An Address is one address of an attachment.
type Address struct {
	Addr netip.Addr `json:"addr"`
	// Bits is the prefix length that the pod is told.
	Bits    int               `json:"bits"`
	Gateway netip.Addr        `json:"gateway,omitzero"`
	Pool    protocol.PoolName `json:"pool"`
	// Lease names the right that the address was handed out of; "" where the
	// cluster granted it, and in local mode.
	Lease string `json:"lease,omitempty"`
}

// A Change is what became of an attachment: it was added, replaced or deleted. The zero Attachment
// is none.
type Change struct{ Before, After Attachment }

// Attachment returns the attachment under k.
func (tx *Tx) Attachment(k Key) (a Attachment, ok bool, err error) {
	key, err := k.MarshalText()
	if err != nil {
		return Attachment{}, false, err
	}
	payload, err := tx.get(&tx.attachments, key)
	if err != nil || payload == nil {
		return Attachment{}, false, err
	}
	a, err = decodeAttachment(key, payload)
	return a, err == nil, err
}

// PutAttachment records a under its key, in place of what is there. A zero
// Generation is replaced by [Tx.Next].
func (tx *Tx) PutAttachment(a Attachment) error {
	if err := a.check(); err != nil {
		return tx.fail(fmt.Errorf("attachment %s: %w", a.Key, err))
	}
	old, had, err := tx.Attachment(a.Key)
	if err != nil {
		return tx.fail(err)
	}
	if a.Generation == 0 {
		a.Generation = tx.Next()
	}
	if !had {
		tx.grown.promises++
	}
	key := a.Key.bytes()
	if err := tx.put(&tx.attachments, key, a.encode()); err != nil {
		return err
	}
	tx.changes = append(tx.changes, Change{Before: old, After: a})
	return tx.reindex(key, old, a)
}

// DeleteAttachment forgets the attachment under k, if there is one. The
// addresses are the caller's to free.
func (tx *Tx) DeleteAttachment(k Key) error {
	a, ok, err := tx.Attachment(k)
	if err != nil || !ok {
		return tx.fail(err)
	}
	tx.grown.promises--
	key := k.bytes()
	if err := tx.delete(&tx.attachments, key); err != nil {
		return err
	}
	tx.changes = append(tx.changes, Change{Before: a})
	return tx.reindex(key, a, Attachment{})
}

// reindex brings the index entries of the attachment under key from those of
// old to those of now. The zero Attachment has none.
func (tx *Tx) reindex(key []byte, old, now Attachment) error {
	for _, x := range [...]struct {
		in       *bucket
		old, now []byte
	}{
		{&tx.pods, old.podEntry(key), now.podEntry(key)},
		{&tx.uses, old.useEntry(key), now.useEntry(key)},
	} {
		if bytes.Equal(x.old, x.now) {
			continue
		}
		if x.old != nil {
			if err := tx.delete(x.in, x.old); err != nil {
				return err
			}
		}
		if x.now != nil {
			if err := tx.put(x.in, x.now, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// podEntry returns a's key in the index of pods, nil if it has none.
func (a Attachment) podEntry(key []byte) []byte {
	if a.Pod.UID == "" {
		return nil
	}
	entry := make([]byte, 0, len(a.Pod.UID)+len(a.IfName)+len(key)+2)
	entry = append(append(entry, a.Pod.UID...), '/')
	entry = append(append(entry, a.IfName...), '/')
	return append(entry, key...)
}

// useEntry returns a's key in the index of uses, nil if it has none.
func (a Attachment) useEntry(key []byte) []byte {
	if a.Use == "" {
		return nil
	}
	return append(append(append(make([]byte, 0, len(a.Use)+len(key)+1), a.Use...), '/'), key...)
}

// Attachments returns every attachment in the order of their keys. A sequence
// ends after the first error. The loop may change the store: it then sees what
// follows the key that it is at.
func (tx *Tx) Attachments() iter.Seq2[Attachment, error] { return tx.attachmentsUnder(nil) }

// OfNetwork returns the attachments to a network, as Attachments does.
func (tx *Tx) OfNetwork(name string) iter.Seq2[Attachment, error] {
	return tx.attachmentsUnder([]byte(name + "/"))
}

// OfPod returns the attachments of the pod's interface, or of all its
// interfaces if ifName is empty, as Attachments does. There are several where a
// sandbox was made anew and the old one is not cleaned up yet.
func (tx *Tx) OfPod(uid protocol.UID, ifName string) iter.Seq2[Attachment, error] {
	prefix := string(uid) + "/"
	if ifName != "" {
		prefix += ifName + "/"
	}
	return tx.indexed(&tx.pods, []byte(prefix), 2)
}

// OfUse returns the attachments that need the use or request of that name, as
// Attachments does.
func (tx *Tx) OfUse(right string) iter.Seq2[Attachment, error] {
	return tx.indexed(&tx.uses, []byte(right+"/"), 1)
}

func (tx *Tx) attachmentsUnder(prefix []byte) iter.Seq2[Attachment, error] {
	return func(yield func(Attachment, error) bool) {
		for e, err := range tx.entries(&tx.attachments, prefix) {
			var a Attachment
			if err == nil {
				a, err = decodeAttachment(e.key, e.payload)
			}
			if !yield(a, err) || err != nil {
				return
			}
		}
	}
}

// indexed returns the attachments that the entries of index under prefix name
// after their first skip parts.
func (tx *Tx) indexed(index *bucket, prefix []byte, skip int) iter.Seq2[Attachment, error] {
	return func(yield func(Attachment, error) bool) {
		for e, err := range tx.entries(index, prefix) {
			var a Attachment
			if err == nil {
				a, err = tx.target(e.key, skip)
			}
			if !yield(a, err) || err != nil {
				return
			}
		}
	}
}

// target returns the attachment that an index entry names.
func (tx *Tx) target(entry []byte, skip int) (Attachment, error) {
	parts := bytes.SplitN(entry, []byte{'/'}, skip+1)
	var k Key
	if err := k.UnmarshalText(parts[len(parts)-1]); err != nil {
		return Attachment{}, corrupt(fmt.Errorf("index entry %q: %w", entry, err))
	}
	a, ok, err := tx.Attachment(k)
	if err == nil && !ok {
		err = corrupt(fmt.Errorf("index entry %q: there is no such attachment", entry))
	}
	return a, err
}

// check reports what of a could not be read back as it is.
func (a Attachment) check() error {
	if a.Pod.UID != "" {
		if err := checkName("pod UID", string(a.Pod.UID)); err != nil {
			return err
		}
	}
	if a.Use != "" {
		if err := checkName("use", a.Use); err != nil {
			return err
		}
	}
	for _, x := range a.Addresses {
		if !x.Addr.IsValid() || x.Addr.Zone() != "" || x.Addr.Is4In6() {
			return fmt.Errorf("%v is no address to record", x.Addr)
		}
		if x.Gateway.Zone() != "" {
			return fmt.Errorf("%v is no gateway to record", x.Gateway)
		}
		if err := checkName("pool of "+x.Addr.String(), string(x.Pool)); err != nil {
			return err
		}
	}
	return nil
}
