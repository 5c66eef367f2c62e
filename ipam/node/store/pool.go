package store

import (
	"iter"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// prefixPool begins the keys of the node bucket under which pools' descriptions
// stand.
const prefixPool = "pool/"

func keyPool(name protocol.PoolName) []byte { return []byte(prefixPool + string(name)) }

// Pool returns what the node last heard of a pool, as PutPool was given it: the
// store does not read it.
func (tx *Tx) Pool(name protocol.PoolName) (description []byte, ok bool, err error) {
	payload, err := tx.get(&tx.node, keyPool(name))
	return slices.Clone(payload), payload != nil, err
}

// PutPool records what the node heard of a pool, so that a restart finds it while
// nobody can be asked.
func (tx *Tx) PutPool(name protocol.PoolName, description []byte) error {
	if err := checkName("pool", string(name)); err != nil {
		return tx.fail(err)
	}
	return tx.put(&tx.node, keyPool(name), description)
}

// DeletePool removes what PutPool has recorded, if anything.
func (tx *Tx) DeletePool(name protocol.PoolName) error { return tx.delete(&tx.node, keyPool(name)) }

// KeptPools returns every pool that PutPool has recorded, by name. It ends early
// where the store is damaged, which the call that it is made in then fails with.
func (tx *Tx) KeptPools() iter.Seq2[protocol.PoolName, []byte] {
	return func(yield func(protocol.PoolName, []byte) bool) {
		for e, err := range tx.entries(&tx.node, []byte(prefixPool)) {
			if err != nil || !yield(protocol.PoolName(e.key[len(prefixPool):]), slices.Clone(e.payload)) {
				return
			}
		}
	}
}
