package store

import (
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

// RightServes reports whether there is a right of that name by which addresses may be
// given in term, as [protocol.Right.Serves] has it. It reads a right once for all calls
// that share a commit: every ADD out of a lease asks.
func (tx *Tx) RightServes(name string, term int64) (bool, error) {
	r, ok := tx.serving[name]
	if !ok {
		whole, _, err := tx.Right(name) // one that is not there serves nothing
		if err != nil {
			return false, err
		}
		if tx.serving == nil {
			tx.serving = map[string]protocol.Right{}
		}
		r = protocol.Right{Phase: whole.Phase, Term: whole.Term}
		tx.serving[name] = r
	}
	return r.Serves(term), nil
}

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
