package store

import (
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// prefixLost begins the keys of the node bucket under which lost stores stand.
const prefixLost = "lost/"

// A Lost is an earlier store of this machine that was lost while the machine ran:
// pods may run with addresses that only it knew. What it held is frozen until
// nothing of that moment is left.
type Lost struct {
	Store protocol.StoreID `json:"store"`
	// Boot is the machine's boot at the time.
	Boot string `json:"boot"`
	// Noted is when the moment was noted.
	Noted time.Time `json:"noted"`
	// Pods are the node's pods of that moment, Netns the host's network
	// namespaces.
	Pods  []protocol.PodRef `json:"pods,omitempty"`
	Netns []Netns           `json:"netns,omitempty"`
	// ResourceClaims are those that the pods had, and whose devices may have addresses.
	ResourceClaims []protocol.ResourceClaimRef `json:"resourceClaims,omitempty"`
}

// A Netns is a network namespace of the host.
type Netns struct {
	Path string `json:"path"`
	// ID tells it from a later one at the same path: "device:inode".
	ID string `json:"id"`
}

func keyLost(id protocol.StoreID) []byte { return []byte(prefixLost + string(id)) }

// Lost returns what was noted when the store of that ID was found lost.
func (tx *Tx) Lost(id protocol.StoreID) (l Lost, ok bool, err error) {
	payload, err := tx.get(&tx.node, keyLost(id))
	if err != nil || payload == nil {
		return Lost{}, false, err
	}
	if err := json.Unmarshal(payload, &l); err != nil {
		return Lost{}, false, corrupt(fmt.Errorf("lost store %s: %w", id, err))
	}
	return l, true, nil
}

// PutLost records l under its store's ID, in place of what is there.
func (tx *Tx) PutLost(l Lost) error {
	if err := checkName("store ID", string(l.Store)); err != nil {
		return tx.fail(err)
	}
	payload, err := json.Marshal(l)
	if err != nil {
		return tx.fail(fmt.Errorf("lost store %s: %w", l.Store, err))
	}
	return tx.put(&tx.node, keyLost(l.Store), payload)
}

// DeleteLost forgets the lost store of that ID, if there is one.
func (tx *Tx) DeleteLost(id protocol.StoreID) error { return tx.delete(&tx.node, keyLost(id)) }

// LostStores returns every lost store, as [Tx.Attachments] does.
func (tx *Tx) LostStores() iter.Seq2[Lost, error] {
	return func(yield func(Lost, error) bool) {
		for e, err := range tx.entries(&tx.node, []byte(prefixLost)) {
			var l Lost
			if err == nil {
				err = corrupt(json.Unmarshal(e.payload, &l))
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}
