package disk

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Memory is a disk of a simulation. What was synced survives a power cut, and what was only
// written may not. It also survives the process: close a store, or forget it, and open the same
// Memory again. The zero value is empty.
type Memory struct {
	// Sync, if not nil, is what a commit waits for between writing and having synced. After an
	// error it has not.
	Sync func() error

	mu              sync.Mutex
	written, synced image // guarded by mu
}

// image is what a disk has. Its slices are never changed.
type image struct {
	number  uint64
	buckets map[string][]record // in the order of the keys
}

type record struct{ key, value []byte }

// PowerCut has what was written and not synced be lost, unless it happens to be kept.
func (d *Memory) PowerCut(kept bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if kept {
		d.synced = d.written
	}
	d.written = d.synced
}

// Clone returns another disk that has what this one has.
func (d *Memory) Clone() *Memory {
	now := d.last()
	return &Memory{written: now, synced: now}
}

// last returns what was written last.
func (d *Memory) last() image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written
}

// Scan implements [Disk].
func (d *Memory) Scan(visit func(bucket string, key, value []byte) error) (uint64, error) {
	now := d.last()
	for _, name := range slices.Sorted(maps.Keys(now.buckets)) {
		for _, r := range now.buckets[name] {
			if err := visit(name, r.key, r.value); err != nil {
				return 0, err
			}
		}
	}
	return now.number, nil
}

// Begin implements [Disk].
func (d *Memory) Begin(writable bool) (Tx, error) {
	tx := &memoryTx{d: d, image: d.last()}
	if writable {
		tx.number++
		tx.buckets = maps.Clone(tx.buckets)
		tx.own = map[string]bool{}
	}
	return tx, nil
}

// Close implements [Disk].
func (*Memory) Close() error { return nil }

type memoryTx struct {
	d *Memory
	image
	own map[string]bool // the buckets whose slices are this transaction's; nil if it only reads
}

func (tx *memoryTx) Number() uint64  { return tx.number }
func (tx *memoryTx) Full() error     { return nil }
func (tx *memoryTx) Rollback() error { return nil }

func (tx *memoryTx) Bucket(name string) Bucket {
	if _, ok := tx.buckets[name]; !ok {
		return nil
	}
	return memoryBucket{tx, name}
}

func (tx *memoryTx) Create(name string) (Bucket, error) {
	if tx.Bucket(name) == nil {
		if tx.buckets == nil {
			tx.buckets = map[string][]record{}
		}
		tx.buckets[name] = nil
	}
	return memoryBucket{tx, name}, nil
}

func (tx *memoryTx) Drop(name string) error {
	delete(tx.buckets, name)
	return nil
}

func (tx *memoryTx) Within(name string) ([]string, error) {
	var within []string
	for other := range tx.buckets {
		if rest, ok := strings.CutPrefix(other, name+"/"); ok {
			within = append(within, rest)
		}
	}
	slices.Sort(within)
	return within, nil
}

func (tx *memoryTx) Commit() error {
	tx.d.mu.Lock()
	tx.d.written = tx.image
	tx.d.mu.Unlock()
	if tx.d.Sync != nil {
		if err := tx.d.Sync(); err != nil {
			return err
		}
	}
	tx.d.mu.Lock()
	defer tx.d.mu.Unlock()
	tx.d.synced = tx.image
	return nil
}

type memoryBucket struct {
	tx   *memoryTx
	name string
}

// find returns where key is, or would be.
func (b memoryBucket) find(key []byte) (at int, ok bool) {
	return slices.BinarySearchFunc(b.tx.buckets[b.name], key, func(r record, key []byte) int { return bytes.Compare(r.key, key) })
}

func (b memoryBucket) Get(key []byte) []byte {
	if i, ok := b.find(key); ok {
		return b.tx.buckets[b.name][i].value
	}
	return nil
}

// change replaces, adds or, if there is none to take its place, removes a record.
func (b memoryBucket) change(key []byte, with ...record) error {
	if b.tx.own == nil {
		return errors.New("the transaction only reads")
	}
	records := b.tx.buckets[b.name]
	if !b.tx.own[b.name] {
		b.tx.own[b.name] = true
		records = slices.Clone(records)
	}
	at, ok := b.find(key)
	end := at
	if ok {
		end++
	}
	b.tx.buckets[b.name] = slices.Replace(records, at, end, with...)
	return nil
}

func (b memoryBucket) Put(key, value []byte) error {
	if len(key) == 0 {
		return errors.New("a key is empty")
	}
	return b.change(key, record{slices.Clone(key), slices.Clone(value)})
}

func (b memoryBucket) Delete(key []byte) error { return b.change(key) }

func (b memoryBucket) Cursor() Cursor { return &memoryCursor{memoryBucket: b} }

type memoryCursor struct {
	memoryBucket
	next int
}

func (c *memoryCursor) Seek(key []byte) (k, v []byte) {
	c.next, _ = c.find(key)
	return c.Next()
}

func (c *memoryCursor) Next() (k, v []byte) {
	records := c.tx.buckets[c.name]
	if c.next >= len(records) {
		return nil, nil
	}
	r := records[c.next]
	c.next++
	return r.key, r.value
}
