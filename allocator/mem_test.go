package allocator

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestMemBalance grows and shrinks trees in three orders and checks after each
// phase that they are B-trees. What they answer is compared with a map in
// allocatortest.
func TestMemBalance(t *testing.T) {
	const n = 20_000
	orders := map[string]func(i int) uint64{
		"ascending":  func(i int) uint64 { return uint64(i) },
		"descending": func(i int) uint64 { return uint64(n - i) },
		"scattered":  func(i int) uint64 { return uint64(i) * 0x9E3779B97F4A7C15 },
	}
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			m := NewMem().(*mem)
			key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, order(i)) }
			for i := range n {
				if err := m.Put(key(i), key(i)); err != nil {
					t.Fatal(err)
				}
			}
			if got := checkTree(t, m); got != n {
				t.Errorf("%d entries; want %d", got, n)
			}
			for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
				if err := m.Delete(key(i)); err != nil {
					t.Fatal(err)
				}
				if i%1000 == 0 {
					checkTree(t, m)
				}
			}
			if got := checkTree(t, m); got != 0 {
				t.Errorf("%d entries after deleting all; want 0", got)
			}
		})
	}
}

// checkTree checks the tree's invariants and returns how many entries it has.
func checkTree(t *testing.T, m *mem) int {
	t.Helper()
	count, leafDepth := 0, -1
	var before []byte
	visit := func(e entry) {
		if before != nil && bytes.Compare(before, e.key) >= 0 {
			t.Errorf("key %x comes after %x", e.key, before)
		}
		if e.head != keyHead(e.key) {
			t.Errorf("key %x has head %x", e.key, e.head)
		}
		before = e.key
		count++
	}
	var walk func(n *node, depth int)
	walk = func(n *node, depth int) {
		if len(n.entries) > maxEntries || n != m.root && len(n.entries) < minEntries {
			t.Errorf("node at depth %d has %d entries", depth, len(n.entries))
		}
		if n.leaf() {
			if leafDepth < 0 {
				leafDepth = depth
			}
			if depth != leafDepth {
				t.Errorf("leaves at depths %d and %d", leafDepth, depth)
			}
			for _, e := range n.entries {
				visit(e)
			}
			return
		}
		if len(n.children) != len(n.entries)+1 {
			t.Fatalf("node has %d entries and %d children", len(n.entries), len(n.children))
		}
		for i, c := range n.children {
			walk(c, depth+1)
			if i < len(n.entries) {
				visit(n.entries[i])
			}
		}
	}
	walk(m.root, 0)
	return count
}
