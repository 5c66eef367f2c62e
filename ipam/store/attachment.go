package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An Attachment is one interface of one pod and the addresses that it was
// answered.
type Attachment struct {
	Key `json:"-"` // the record stands under it

	Pod   protocol.PodRef `json:"pod,omitzero"`
	Netns string          `json:"netns,omitempty"`
	// NetnsID tells a network namespace from a later one at the same path:
	// "device:inode".
	NetnsID string `json:"netnsID,omitempty"`
	// Boot is the boot ID of the machine at the time of the ADD.
	Boot string `json:"boot,omitempty"`
	// Generation is larger than that of every earlier attachment of this
	// store, so that a late free can name which one it means.
	Generation uint64    `json:"generation"`
	Created    time.Time `json:"created,omitzero"`
	Addresses  []Address `json:"addresses,omitempty"`
	// Claim is the claim that the addresses come from, if they do.
	Claim *protocol.ClaimRef `json:"claim,omitempty"`
	// Use names the right under which the claim is used; "" without a claim.
	Use string `json:"use,omitempty"`
}

// An Address is one address of an attachment.
type Address struct {
	Addr netip.Addr `json:"addr"`
	// Bits is the prefix length that the pod is told.
	Bits    int               `json:"bits"`
	Gateway netip.Addr        `json:"gateway,omitzero"`
	Pool    protocol.PoolName `json:"pool"`
	// Lease names the right that the address was handed out of; "" where it is
	// a claim's, and in local mode.
	Lease string `json:"lease,omitempty"`
}

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
	key, err := a.Key.MarshalText()
	if err != nil {
		return tx.fail(err)
	}
	if err := a.check(); err != nil {
		return tx.fail(fmt.Errorf("attachment %s: %w", a.Key, err))
	}
	if err := tx.DeleteAttachment(a.Key); err != nil {
		return err
	}
	if a.Generation == 0 {
		a.Generation = tx.Next()
	}
	payload, err := json.Marshal(a)
	if err != nil {
		return tx.fail(fmt.Errorf("attachment %s: %w", a.Key, err))
	}
	tx.grown.promises++
	return tx.putAll(key, payload, a)
}

// putAll writes an attachment's record and its index entries.
func (tx *Tx) putAll(key, payload []byte, a Attachment) error {
	if err := tx.put(&tx.attachments, key, payload); err != nil {
		return err
	}
	if a.Pod.UID != "" {
		if err := tx.put(&tx.pods, podKey(a.Pod.UID, a.IfName, key), nil); err != nil {
			return err
		}
	}
	if a.Use != "" {
		return tx.put(&tx.uses, useKey(a.Use, key), nil)
	}
	return nil
}

// DeleteAttachment forgets the attachment under k, if there is one. The
// addresses are the caller's to free.
func (tx *Tx) DeleteAttachment(k Key) error {
	a, ok, err := tx.Attachment(k)
	if err != nil || !ok {
		return tx.fail(err)
	}
	key := []byte(k.String())
	if a.Pod.UID != "" {
		if err := tx.delete(&tx.pods, podKey(a.Pod.UID, a.IfName, key)); err != nil {
			return err
		}
	}
	if a.Use != "" {
		if err := tx.delete(&tx.uses, useKey(a.Use, key)); err != nil {
			return err
		}
	}
	tx.grown.promises--
	return tx.delete(&tx.attachments, key)
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

// OfUse returns the attachments that need the use, as Attachments does.
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

func podKey(uid protocol.UID, ifName string, attachment []byte) []byte {
	return fmt.Appendf(nil, "%s/%s/%s", uid, ifName, attachment)
}

func useKey(right string, attachment []byte) []byte {
	return fmt.Appendf(nil, "%s/%s", right, attachment)
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
		if err := checkName("pool of "+x.Addr.String(), string(x.Pool)); err != nil {
			return err
		}
	}
	return nil
}

func decodeAttachment(key, payload []byte) (Attachment, error) {
	var a Attachment
	if err := json.Unmarshal(payload, &a); err != nil {
		return Attachment{}, corrupt(fmt.Errorf("attachment %q: %w", key, err))
	}
	if err := a.Key.UnmarshalText(key); err != nil {
		return Attachment{}, corrupt(err)
	}
	return a, nil
}
