package allocator

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// NewMem returns an empty [Table] in memory. It is not safe for concurrent use.
// Its Put and Delete return no error, and cost O(log n) as Get and Seek do.
func NewMem() Table { return &mem{root: &node{}} }

// mem is a B-tree: entries stand in inner nodes too.
//
//	            [ · 40 · 80 · ]
//	           /     |      \
//	[10 20 30]   [50 60 70]   [90]
//
// Every node but the root has at least minEntries, and all leaves have the same
// depth.
type mem struct{ root *node }

const (
	maxEntries = 63
	minEntries = maxEntries / 4 // not half: a merged node would be full, and split at the next Put
)

type node struct {
	entries  []entry
	children []*node // none in a leaf, else one more than entries
}

type entry struct {
	// head is the key's first eight bytes, so that most comparisons need not
	// follow the key's pointer: with a million entries that is what costs.
	head       uint64
	key, value []byte
}

// keyHead returns the first eight bytes of key as a number that sorts as they do.
func keyHead(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// find returns the index of the first entry at or after key, and whether it is
// at key.
func (n *node) find(head uint64, key []byte) (int, bool) {
	lo, hi := 0, len(n.entries)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		e := &n.entries[mid]
		if e.head < head || e.head == head && bytes.Compare(e.key, key) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(n.entries) && n.entries[lo].head == head && bytes.Equal(n.entries[lo].key, key)
}

func (n *node) leaf() bool { return len(n.children) == 0 }

func (m *mem) Get(key []byte) []byte {
	head := keyHead(key)
	for n := m.root; ; {
		i, found := n.find(head, key)
		if found {
			return n.entries[i].value
		}
		if n.leaf() {
			return nil
		}
		n = n.children[i]
	}
}

func (m *mem) Seek(key []byte) (k, v []byte) {
	head := keyHead(key)
	for n := m.root; ; {
		i, found := n.find(head, key)
		if i < len(n.entries) { // the best so far; only a child has better
			k, v = n.entries[i].key, n.entries[i].value
		}
		if found || n.leaf() {
			return k, v
		}
		n = n.children[i]
	}
}

func (m *mem) Put(key, value []byte) error {
	if len(m.root.entries) == maxEntries {
		m.root = &node{children: []*node{m.root}}
		m.root.splitChild(0)
	}
	head := keyHead(key)
	for n := m.root; ; {
		i, found := n.find(head, key)
		switch {
		case found:
			n.entries[i].value = value
			return nil
		case n.leaf():
			n.entries = slices.Insert(n.entries, i, entry{head, bytes.Clone(key), value})
			return nil
		case len(n.children[i].entries) == maxEntries:
			n.splitChild(i) // and look again: the middle entry has moved up
		default:
			n = n.children[i]
		}
	}
}

// splitChild moves the middle entry of the full child i up, and what follows it
// into a new child.
func (n *node) splitChild(i int) {
	c := n.children[i]
	middle := c.entries[maxEntries/2]
	right := &node{entries: slices.Clone(c.entries[maxEntries/2+1:])}
	clear(c.entries[maxEntries/2:])
	c.entries = c.entries[:maxEntries/2]
	if !c.leaf() {
		right.children = slices.Clone(c.children[maxEntries/2+1:])
		clear(c.children[maxEntries/2+1:])
		c.children = c.children[:maxEntries/2+1]
	}
	n.entries = slices.Insert(n.entries, i, middle)
	n.children = slices.Insert(n.children, i+1, right)
}

func (m *mem) Delete(key []byte) error {
	m.root.remove(keyHead(key), key)
	if len(m.root.entries) == 0 && !m.root.leaf() {
		m.root = m.root.children[0]
	}
	return nil
}

// remove deletes key below n, which has more than minEntries or is the root.
func (n *node) remove(head uint64, key []byte) {
	for {
		i, found := n.find(head, key)
		if n.leaf() {
			if found {
				n.entries = slices.Delete(n.entries, i, i+1)
			}
			return
		}
		if len(n.children[i].entries) == minEntries {
			n.fill(i) // and look again: entries may have moved
			continue
		}
		if found {
			n.entries[i] = n.children[i].removeLast()
			return
		}
		n = n.children[i]
	}
}

// removeLast deletes and returns the last entry below n, which has more than
// minEntries.
func (n *node) removeLast() entry {
	for !n.leaf() {
		last := len(n.children) - 1
		if len(n.children[last].entries) == minEntries {
			n.fill(last)
			continue
		}
		n = n.children[last]
	}
	last := len(n.entries) - 1
	e := n.entries[last]
	n.entries = slices.Delete(n.entries, last, last+1)
	return e
}

// fill gives child i, which has minEntries, one more: from a neighbour that can
// spare it, else by merging the two.
func (n *node) fill(i int) {
	switch {
	case i > 0 && len(n.children[i-1].entries) > minEntries:
		n.borrowLeft(i)
	case i < len(n.entries) && len(n.children[i+1].entries) > minEntries:
		n.borrowRight(i)
	case i < len(n.entries):
		n.merge(i)
	default:
		n.merge(i - 1)
	}
}

func (n *node) borrowLeft(i int) {
	c, l := n.children[i], n.children[i-1]
	last := len(l.entries) - 1
	c.entries = slices.Insert(c.entries, 0, n.entries[i-1])
	n.entries[i-1] = l.entries[last]
	l.entries = slices.Delete(l.entries, last, last+1)
	if !l.leaf() {
		c.children = slices.Insert(c.children, 0, l.children[last+1])
		l.children = slices.Delete(l.children, last+1, last+2)
	}
}

func (n *node) borrowRight(i int) {
	c, r := n.children[i], n.children[i+1]
	c.entries = append(c.entries, n.entries[i])
	n.entries[i] = r.entries[0]
	r.entries = slices.Delete(r.entries, 0, 1)
	if !r.leaf() {
		c.children = append(c.children, r.children[0])
		r.children = slices.Delete(r.children, 0, 1)
	}
}

// merge puts entry i and child i+1 at the end of child i.
func (n *node) merge(i int) {
	c, r := n.children[i], n.children[i+1]
	c.entries = append(append(c.entries, n.entries[i]), r.entries...)
	c.children = append(c.children, r.children...)
	n.entries = slices.Delete(n.entries, i, i+1)
	n.children = slices.Delete(n.children, i+1, i+2)
}
