package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Identity is who serves from this store: what the node's registration must name. The
// zero Identity, but for Store, is that of a store which has not served yet.
type Identity struct {
	// Store is the store's own ID; PutIdentity sets it.
	Store   protocol.StoreID  `json:"store"`
	Node    protocol.NodeName `json:"node,omitempty"`
	Machine string            `json:"machine,omitempty"`
	Boot    string            `json:"boot,omitempty"`
	// Term is the registration's term that the agent last registered in.
	Term int64 `json:"term,omitempty"`
	// BeatSentWall and BeatSentBoot say when the last accepted heartbeat was
	// sent, by the wall clock and by the time since boot.
	BeatSentWall time.Time     `json:"beatSentWall,omitzero"`
	BeatSentBoot time.Duration `json:"beatSentBoot,omitempty"`
	// Fence is F, as the agent last understood it; 0 means never by time.
	Fence time.Duration `json:"fence,omitempty"`
	// Unread says that a store of this machine was lost in this boot, and that what its
	// pods have had not been read back when the last heartbeat was accepted.
	Unread bool `json:"unread,omitempty"`
}

// Identity returns the identity; before the first PutIdentity it has Store alone.
func (tx *Tx) Identity() (Identity, error) {
	payload, err := tx.get(&tx.node, keyIdentity)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Store: tx.id}
	if payload == nil {
		return id, nil
	}
	if err := json.Unmarshal(payload, &id); err != nil {
		return Identity{}, corrupt(fmt.Errorf("identity: %w", err))
	}
	if id.Store != tx.id {
		return Identity{}, corrupt(fmt.Errorf("identity names store %q, and this is %q", id.Store, tx.id))
	}
	return id, nil
}

// PutIdentity records id, whose Store it sets.
func (tx *Tx) PutIdentity(id Identity) error {
	id.Store = tx.id
	payload, err := json.Marshal(id)
	if err != nil {
		return tx.fail(fmt.Errorf("identity: %w", err))
	}
	return tx.put(&tx.node, keyIdentity, payload)
}
