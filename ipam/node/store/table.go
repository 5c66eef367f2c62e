package store

import (
	"fmt"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// table is the allocation state of one pool: allocator.Table over a bucket.
// The interface's reads have no error to return, so damage leaves them as a
// panic, which Update and View turn into ErrCorrupt.
type table struct {
	bucket
	tx *Tx
}

// Table returns the allocation state of pool, empty if there is none. It is
// made with the first Put.
func (tx *Tx) Table(pool protocol.PoolName) allocator.Table { return tx.table(pool) }

func (tx *Tx) table(pool protocol.PoolName) *table {
	t := tx.tables[pool]
	if t == nil {
		t = &table{bucket: bucket{seed: seedOf(bucketPools + "/" + string(pool)), pool: pool}}
		tx.openTable(t)
		tx.tables[pool] = t
	}
	t.tx = tx
	return t
}

func (tx *Tx) openTable(t *table) {
	var err error
	defer panicOn(&err)
	defer tx.guard(&err)
	t.b = tx.bt.Bucket(t.name())
}

// Pools returns the pools that have a table, in the order of their names.
func (tx *Tx) Pools() []protocol.PoolName {
	var err error
	defer panicOn(&err)
	defer tx.guard(&err)
	var names []protocol.PoolName
	within, err := tx.bt.Within(bucketPools)
	for _, name := range within {
		names = append(names, protocol.PoolName(name))
	}
	return names
}

// Get implements allocator.Table.
func (t *table) Get(key []byte) []byte {
	payload, err := t.tx.get(&t.bucket, key)
	if err != nil {
		panic(damage{t.describe(err)})
	}
	return payload
}

// Put implements allocator.Table.
func (t *table) Put(key, value []byte) error { return t.describe(t.tx.put(&t.bucket, key, value)) }

// Delete implements allocator.Table.
func (t *table) Delete(key []byte) error { return t.describe(t.tx.delete(&t.bucket, key)) }

// Seek implements allocator.Table.
func (t *table) Seek(key []byte) (k, v []byte) {
	k, v, err := t.seek(key)
	if err != nil {
		panic(damage{t.describe(err)})
	}
	return k, v
}

func (t *table) seek(key []byte) (k, v []byte, err error) {
	defer t.tx.guard(&err)
	if t.b == nil {
		return nil, nil, nil
	}
	k, v = t.b.Cursor().Seek(key)
	if k == nil {
		return nil, nil, nil
	}
	v, err = unseal(t.seed, k, v)
	if err != nil {
		return nil, nil, corrupt(fmt.Errorf("record %x: %w", k, err))
	}
	return k, v, nil
}

func (t *table) describe(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("table of pool %q: %w", t.pool, err)
}

func panicOn(err *error) {
	if *err != nil {
		panic(damage{*err})
	}
}
