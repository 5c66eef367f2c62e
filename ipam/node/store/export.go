package store

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// line is one line of an export: one record, by its kind.
type line struct {
	Kind string `json:"kind"` // "store", "identity", "history", "lost", "right", "attachment", "pool" or "entry"

	// Of the store.
	Schema  int              `json:"schema,omitempty"`
	ID      protocol.StoreID `json:"id,omitempty"`
	Commit  uint64           `json:"commit,omitempty"`
	Counter uint64           `json:"counter,omitempty"`
	Records uint64           `json:"records,omitempty"`

	Identity   *Identity         `json:"identity,omitempty"`
	History    *protocol.History `json:"history,omitempty"`
	Lost       *Lost             `json:"lost,omitempty"`
	Right      *protocol.Right   `json:"right,omitempty"`
	Attachment *Attachment       `json:"attachment,omitempty"`

	// Of a pool's description, or of an entry of its table, both as they are.
	Pool        protocol.PoolName `json:"pool,omitempty"`
	Description string            `json:"description,omitempty"`
	Key         []byte            `json:"key,omitempty"`
	Value       []byte            `json:"value,omitempty"`
}

// Export writes the whole store as it is at one moment to w, as lines of JSON
// with one record each, for people and for support. Entries of the allocator's
// tables are base64.
func (s *Store) Export(w io.Writer) error {
	return s.View(func(tx *Tx) error {
		e := exporter{tx: tx, out: json.NewEncoder(w)}
		e.write(line{Kind: "store", Schema: Schema, ID: tx.id, Commit: tx.st.commit, Counter: tx.st.counter, Records: tx.st.records})
		id, err := tx.Identity()
		e.note(err)
		e.write(line{Kind: "identity", Identity: &id})
		seen, err := tx.History()
		e.note(err)
		e.write(line{Kind: "history", History: &seen})
		for l, err := range tx.LostStores() {
			e.note(err)
			e.write(line{Kind: "lost", Lost: &l})
		}
		for r, err := range tx.Rights() {
			e.note(err)
			e.write(line{Kind: "right", Right: &r})
		}
		for a, err := range tx.Attachments() {
			e.note(err)
			e.write(line{Kind: "attachment", Attachment: &a})
		}
		for pool, text := range tx.KeptPools() {
			e.write(line{Kind: "pool", Pool: pool, Description: string(text)})
		}
		for _, pool := range tx.Pools() {
			e.table(pool)
		}
		return e.err
	})
}

// exporter writes lines until the first error.
type exporter struct {
	tx  *Tx
	out *json.Encoder
	err error
}

func (e *exporter) note(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *exporter) write(l line) {
	if e.err == nil {
		if err := e.out.Encode(l); err != nil {
			e.err = fmt.Errorf("export: %w", err)
		}
	}
}

func (e *exporter) table(pool protocol.PoolName) {
	for x, err := range e.tx.entries(&e.tx.table(pool).bucket, nil) {
		e.note(err)
		e.write(line{Kind: "entry", Pool: pool, Key: x.key, Value: x.payload})
	}
}
