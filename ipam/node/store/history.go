package store

import (
	"encoding/json"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var keyHistory = []byte("history")

// History returns how far the node has seen the API server come, as PutHistory was
// last given it.
func (tx *Tx) History() (h protocol.History, err error) {
	payload, err := tx.get(&tx.node, keyHistory)
	if err != nil || payload == nil {
		return protocol.History{}, err
	}
	if err := json.Unmarshal(payload, &h); err != nil {
		return protocol.History{}, corrupt(fmt.Errorf("history: %w", err))
	}
	return h, nil
}

// PutHistory records h, in place of what is there.
func (tx *Tx) PutHistory(h protocol.History) error {
	payload, err := json.Marshal(h)
	if err != nil {
		return tx.fail(fmt.Errorf("history: %w", err))
	}
	return tx.put(&tx.node, keyHistory, payload)
}
