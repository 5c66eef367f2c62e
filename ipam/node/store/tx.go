package store

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Tx is what the function of an Update or a View works on. It may be used by
// that function's goroutine only, until the function returns; so may a table
// obtained from it.
//
// A write that fails makes its Update fail, whether or not the function returns
// the error.
type Tx struct {
	*batch

	grown   growth
	undo    []change
	changes []Change // of attachments
	next    uint64   // the counter before this call
	err     error    // why this call cannot succeed, whatever its function returns
}

// batch is a transaction of the disk and what the calls that share it change.
type batch struct {
	bt       disk.Tx
	writable bool
	id       protocol.StoreID

	node, attachments, pods, uses, rights bucket
	tables                                map[protocol.PoolName]*table
	// decoded is what RightUsable has read, also before this batch; nil keeps nothing.
	decoded map[string]decoded

	st      state    // as it will be committed
	writes  int      // how many there were, so that cursors know when to seek anew
	changes []Change // of attachments, by calls that succeeded
	scratch []byte   // records are cut from it: bbolt keeps them until the commit
	failed  error    // the disk contradicted itself: nothing of the batch may be committed
}

// bucket is a bucket of the disk with where its checksums start. That of the disk is nil for a
// pool without a table.
type bucket struct {
	b    disk.Bucket
	seed uint32
	pool protocol.PoolName // of a table
}

// name is the disk's name of the bucket of a table.
func (b *bucket) name() string { return bucketPools + "/" + string(b.pool) }

// change is what a write replaced: nil where there was nothing. Without a key
// it is the creation of a table's bucket.
type change struct {
	in  *bucket
	key []byte
	old []byte
}

// growth is by how much a call made the store grow.
type growth struct {
	promises int // attachments and rights
	bytes    int
}

// allowance is what a call may add to a full store beyond what it deletes:
// enough for a phase or a term that is longer by some bytes and for the
// allocator's order of freed addresses, and too little for a new block.
const allowance = 256

// adds reports whether a full store refuses the call.
func (g growth) adds() bool { return g.promises > 0 || g.bytes > allowance }

func newBatch(bt disk.Tx, writable bool, id protocol.StoreID) (b *batch, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asDamage(p)
		}
	}()
	b = &batch{bt: bt, writable: writable, id: id, tables: map[protocol.PoolName]*table{}}
	for i, dst := range []*bucket{&b.node, &b.attachments, &b.pods, &b.uses, &b.rights} {
		name := topBuckets[1+i]
		*dst = bucket{b: bt.Bucket(name), seed: seedOf(name)}
		if dst.b == nil {
			return nil, corrupt(fmt.Errorf("bucket %s is missing", name))
		}
	}
	meta := bt.Bucket(bucketMeta)
	if meta == nil || bt.Bucket(bucketPools) == nil {
		return nil, corrupt(errors.New("a bucket is missing"))
	}
	payload, err := unseal(seedMeta, keyState, meta.Get(keyState))
	if err != nil {
		return nil, corrupt(fmt.Errorf("meta/state: %w", err))
	}
	b.st, err = parseState(payload)
	return b, corrupt(err)
}

// begin returns the Tx of the next call of the batch.
func (b *batch) begin() *Tx { return &Tx{batch: b, next: b.st.counter} }

// run calls fn. Damage that a table's method met ends fn by a panic, which ends
// here; any other panic goes on.
func (tx *Tx) run(fn func(*Tx) error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		fault := asFault(p)
		if fault == nil {
			panic(p)
		}
		err = tx.fail(fault)
	}()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.err
}

// Next returns a number that is larger than every number that it returned in a
// call that succeeded. In a View it returns 0.
func (tx *Tx) Next() uint64 {
	if !tx.writable {
		_ = tx.fail(ErrReadOnly)
		return 0
	}
	tx.st.counter++
	tx.writes++
	return tx.st.counter
}

// fail notes that the call cannot succeed. It returns err, also if it is nil.
func (tx *Tx) fail(err error) error {
	if err != nil && tx.err == nil {
		tx.err = err
	}
	return err
}

// guard turns a panic of bbolt, or a fault of the mapped file, into *err.
func (tx *Tx) guard(err *error) {
	if p := recover(); p != nil {
		*err = asDamage(p)
		tx.failed = *err
	}
	_ = tx.fail(*err)
}

// get returns the payload under key, nil if there is none. It shares the file's
// memory and is valid until the next write.
func (tx *Tx) get(in *bucket, key []byte) (payload []byte, err error) {
	defer tx.guard(&err)
	record := tx.raw(in, key)
	if record == nil {
		return nil, nil
	}
	payload, err = unseal(in.seed, key, record)
	if err != nil {
		return nil, corrupt(fmt.Errorf("record %q: %w", key, err))
	}
	return payload, nil
}

func (tx *Tx) raw(in *bucket, key []byte) []byte {
	if in.b == nil {
		return nil
	}
	return in.b.Get(key)
}

// put writes payload under key. It keeps neither.
func (tx *Tx) put(in *bucket, key, payload []byte) (err error) {
	defer tx.guard(&err)
	if !tx.writable {
		return ErrReadOnly
	}
	if in.b == nil {
		if err := tx.create(in); err != nil {
			return err
		}
	}
	record := tx.cut(len(payload) + recordOverhead)
	record = seal(record, in.seed, key, payload)
	return tx.replace(in, key, record)
}

// delete removes what is under key, if there is anything.
func (tx *Tx) delete(in *bucket, key []byte) (err error) {
	defer tx.guard(&err)
	if !tx.writable {
		return ErrReadOnly
	}
	return tx.replace(in, key, nil)
}

// replace makes record what is under key, nothing if it is nil, and notes how
// to undo that.
func (tx *Tx) replace(in *bucket, key, record []byte) error {
	old := tx.raw(in, key)
	if old == nil && record == nil || bytes.Equal(old, record) && old != nil && record != nil {
		return nil
	}
	if err := tx.set(in, key, record); err != nil {
		return err
	}
	tx.undo = append(tx.undo, change{in: in, key: slices.Clone(key), old: old})
	tx.grown.bytes += size(key, record) - size(key, old)
	tx.swap(old, record)
	return nil
}

func (tx *Tx) set(in *bucket, key, record []byte) error {
	tx.writes++
	if record == nil {
		return in.b.Delete(key)
	}
	return in.b.Put(key, record)
}

// swap keeps the digest: record stands where old stood.
func (tx *Tx) swap(old, record []byte) {
	if old != nil {
		tx.st.remove(old)
	}
	if record != nil {
		tx.st.add(record)
	}
}

func size(key, record []byte) int {
	if record == nil {
		return 0
	}
	return len(key) + len(record)
}

// create makes the table's bucket.
func (tx *Tx) create(in *bucket) error {
	if err := checkName("pool", string(in.pool)); err != nil {
		return err
	}
	b, err := tx.bt.Create(in.name())
	if err != nil {
		return fmt.Errorf("table of pool %q: %w", in.pool, err)
	}
	tx.writes++
	tx.undo = append(tx.undo, change{in: in})
	in.b = b
	return nil
}

// cut returns an empty slice with room for n bytes that nothing else uses.
func (b *batch) cut(n int) []byte {
	if cap(b.scratch)-len(b.scratch) < n {
		b.scratch = make([]byte, 0, max(n, 16<<10))
	}
	start := len(b.scratch)
	b.scratch = b.scratch[:start+n]
	return b.scratch[start:start:len(b.scratch)]
}

// rollback undoes what this call changed, and nothing that others of its batch
// did.
func (tx *Tx) rollback() {
	var err error
	defer tx.guard(&err)
	for _, c := range slices.Backward(tx.undo) {
		if err = tx.revert(c); err != nil {
			tx.failed = err
			return
		}
	}
	tx.st.counter = tx.next
}

func (tx *Tx) revert(c change) error {
	if c.key == nil {
		tx.writes++
		c.in.b = nil
		return tx.bt.Drop(c.in.name())
	}
	tx.swap(tx.raw(c.in, c.key), c.old)
	return tx.set(c.in, c.key, c.old)
}

// entry is one record of a bucket. Both slices share the file's memory.
type entry struct{ key, payload []byte }

// entries returns the records of a bucket whose keys start with prefix. It
// survives writes in the loop: bbolt's cursors do not, so it seeks anew after
// one. It ends after an error.
func (tx *Tx) entries(in *bucket, prefix []byte) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		if in.b == nil {
			return
		}
		var at []byte // the last key yielded, our own copy
		c, writes := in.b.Cursor(), -1
		for {
			e, err := tx.step(in, c, at, prefix, writes == tx.writes)
			if err == nil && e.key == nil {
				return
			}
			writes, at = tx.writes, append(at[:0], e.key...)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// step returns the record after the key at, which the cursor is still on if
// fresh; or the first one with prefix if at is nil.
func (tx *Tx) step(in *bucket, c disk.Cursor, at, prefix []byte, fresh bool) (e entry, err error) {
	defer tx.guard(&err)
	var k, v []byte
	switch {
	case at == nil:
		k, v = c.Seek(prefix)
	case fresh:
		k, v = c.Next()
	default:
		if k, v = c.Seek(at); bytes.Equal(k, at) {
			k, v = c.Next()
		}
	}
	if k == nil || !bytes.HasPrefix(k, prefix) {
		return entry{}, nil
	}
	payload, err := unseal(in.seed, k, v)
	if err != nil {
		return entry{}, corrupt(fmt.Errorf("record %q: %w", k, err))
	}
	return entry{key: k, payload: payload}, nil
}

// commitState writes what the batch's calls made of the state.
func (b *batch) commitState() error {
	b.st.commit++
	var payload [stateSize]byte
	record := seal(b.cut(stateSize+recordOverhead), seedMeta, keyState, b.st.append(payload[:0]))
	return b.bt.Bucket(bucketMeta).Put(keyState, record)
}
