package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Right returns the right of that name.
func (tx *Tx) Right(name string) (r protocol.Right, ok bool, err error) {
	payload, err := tx.get(&tx.rights, []byte(name))
	if err != nil || payload == nil {
		return protocol.Right{}, false, err
	}
	r, err = decodeRight([]byte(name), payload)
	return r, err == nil, err
}

// RightUsable reports whether there is a right of that name by which addresses may be
// given in term, as [protocol.Right.Usable] has it. Every ADD out of a lease asks, so that
// it decodes a record only where that is another than last time.
func (tx *Tx) RightUsable(name string, term int64) (bool, error) {
	payload, err := tx.get(&tx.rights, []byte(name))
	if err != nil || payload == nil { // one that is not there serves nothing
		return false, err
	}
	known, ok := tx.decoded[name]
	if !ok || !bytes.Equal(known.payload, payload) {
		whole, err := decodeRight([]byte(name), payload)
		if err != nil {
			return false, tx.fail(err)
		}
		known = decoded{payload: bytes.Clone(payload), right: protocol.Right{Phase: whole.Phase, Term: whole.Term}}
		if tx.decoded != nil {
			tx.decoded[name] = known
		}
	}
	return known.right.Usable(term), nil
}

// decoded is what RightUsable has read: a record, and what of it matters there.
type decoded struct {
	payload []byte
	right   protocol.Right
}

// maxDecoded bounds how many are kept: more rights than any node has at a time.
const maxDecoded = 4096

// PutRight records r under its name, in place of what is there.
func (tx *Tx) PutRight(r protocol.Right) error {
	if err := checkRight(r); err != nil {
		return tx.fail(fmt.Errorf("right %q: %w", r.Name, err))
	}
	payload, err := json.Marshal(r)
	if err != nil {
		return tx.fail(fmt.Errorf("right %q: %w", r.Name, err))
	}
	key := []byte(r.Name)
	old, err := tx.get(&tx.rights, key)
	if err != nil {
		return tx.fail(err)
	}
	if old == nil {
		tx.grown.promises++
	}
	return tx.put(&tx.rights, key, payload)
}

// DeleteRight forgets the right of that name, if there is one.
func (tx *Tx) DeleteRight(name string) error {
	old, err := tx.get(&tx.rights, []byte(name))
	if err != nil || old == nil {
		return tx.fail(err)
	}
	tx.grown.promises--
	return tx.delete(&tx.rights, []byte(name))
}

// Rights returns every right in the order of their names, as
// [Tx.Attachments] does.
func (tx *Tx) Rights() iter.Seq2[protocol.Right, error] {
	return func(yield func(protocol.Right, error) bool) {
		for e, err := range tx.entries(&tx.rights, nil) {
			var r protocol.Right
			if err == nil {
				r, err = decodeRight(e.key, e.payload)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// checkRight reports what of r no later step could act on.
func checkRight(r protocol.Right) error {
	if err := checkName("name", r.Name); err != nil {
		return err
	}
	if !r.Phase.Valid() {
		return fmt.Errorf("phase %q is unknown", r.Phase)
	}
	switch r.Kind {
	case protocol.RightLease, protocol.RightUse, protocol.RightRequest:
	default:
		return fmt.Errorf("kind %q is unknown", r.Kind)
	}
	return nil
}

func decodeRight(key, payload []byte) (protocol.Right, error) {
	var r protocol.Right
	err := json.Unmarshal(payload, &r)
	if err == nil {
		err = checkRight(r)
	}
	if err == nil && r.Name != string(key) {
		err = fmt.Errorf("its record names %q", r.Name)
	}
	if err != nil {
		return protocol.Right{}, corrupt(fmt.Errorf("right %q: %w", key, err))
	}
	return r, nil
}
