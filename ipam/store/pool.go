package store

import (
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// keyPool is under which key of the node bucket a pool's description stands.
func keyPool(name protocol.PoolName) []byte { return []byte("pool/" + string(name)) }

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
