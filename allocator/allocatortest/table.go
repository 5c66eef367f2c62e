// Package allocatortest has the test that every [allocator.Table] must pass.
package allocatortest

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
)

// TestTable compares an empty Table with a map on seeded random calls. It keeps
// the caller's side of the contract and no more: it scribbles over keys after
// each call, and looks at what it got before the next write only.
func TestTable(t *testing.T, table allocator.Table) {
	t.Helper()
	const seed = 1
	d := driver{t: t, rng: rand.New(rand.NewPCG(seed, 0)), table: table, model: map[string]string{}}
	for op := range 20_000 {
		d.op = op
		d.step()
		if t.Failed() {
			t.Fatalf("seed %d, op %d", seed, op)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(d.model)) {
		d.delete([]byte(k))
		d.compare([]byte(k))
	}
	if k, v := table.Seek(nil); k != nil {
		t.Errorf("Seek in the emptied table = %x, %x; want nothing", k, v)
	}
}

type driver struct {
	t     *testing.T
	rng   *rand.Rand
	table allocator.Table
	model map[string]string
	op    int
}

// step does one random call. Phases of growing and shrinking alternate, so that
// a tree is split and merged at every level.
func (d *driver) step() {
	key := d.key()
	growing := d.op/2_500%2 == 0
	switch x := d.rng.IntN(10); {
	case x < 3:
		d.compare(key)
	case growing == (x < 9):
		d.put(key, bytes.Repeat([]byte{byte(d.op)}, 1+d.rng.IntN(40)))
	default:
		d.delete(key)
	}
}

// key returns a random key of few bits, so that calls meet, one time in three
// an existing one.
func (d *driver) key() []byte {
	if d.rng.IntN(3) == 0 {
		if k, _ := d.table.Seek([]byte{byte(d.rng.Uint32()), byte(d.rng.Uint32())}); k != nil {
			return bytes.Clone(k)
		}
	}
	key := make([]byte, 1+d.rng.IntN(12))
	for i := range key {
		key[i] = byte(d.rng.IntN(3))
	}
	key[0] = byte(d.rng.Uint32())
	return key
}

func (d *driver) put(key, value []byte) {
	d.model[string(key)] = string(value)
	given := bytes.Clone(key)
	if err := d.table.Put(given, value); err != nil {
		d.t.Errorf("Put(%x) = %v; want nil", key, err)
	}
	clear(given)
	d.compare(key)
}

func (d *driver) delete(key []byte) {
	delete(d.model, string(key))
	given := bytes.Clone(key)
	if err := d.table.Delete(given); err != nil {
		d.t.Errorf("Delete(%x) = %v; want nil", key, err)
	}
	clear(given)
	d.compare(key)
}

// compare compares Get and Seek at key, and Seek right after it, with the map.
func (d *driver) compare(key []byte) {
	d.t.Helper()
	want, ok := d.model[string(key)]
	if got := d.table.Get(key); (got != nil) != ok || string(got) != want {
		d.t.Errorf("Get(%x) = %x; want %x, present %v", key, got, want, ok)
	}
	d.seek(key)
	d.seek(append(bytes.Clone(key), 0))
}

func (d *driver) seek(key []byte) {
	d.t.Helper()
	var want string
	found := false
	for k := range d.model {
		if k >= string(key) && (!found || k < want) {
			want, found = k, true
		}
	}
	k, v := d.table.Seek(key)
	if (k != nil) != found || string(k) != want || string(v) != d.model[want] {
		d.t.Errorf("Seek(%x) = %x, %x; want %x, %x, present %v", key, k, v, want, d.model[want], found)
	}
}
