package allocator

import (
	"bytes"
	"errors"
)

// strictTable is a Table that punishes whoever breaks its contract: what it has
// returned is overwritten at the next write, and keys are not kept. It also
// counts its calls.
type strictTable struct {
	Table
	lent         [][]byte
	reads, write int
}

func newStrict() *strictTable { return &strictTable{Table: NewMem()} }

func (s *strictTable) lend(b []byte) []byte {
	if b == nil {
		return nil
	}
	c := bytes.Clone(b)
	s.lent = append(s.lent, c)
	return c
}

func (s *strictTable) recall() {
	for _, b := range s.lent {
		for i := range b {
			b[i] = 0xEE
		}
	}
	s.lent = s.lent[:0]
	s.write++
}

func (s *strictTable) Get(key []byte) []byte {
	s.reads++
	return s.lend(s.Table.Get(key))
}

func (s *strictTable) Seek(key []byte) (k, v []byte) {
	s.reads++
	k, v = s.Table.Seek(key)
	return s.lend(k), s.lend(v)
}

func (s *strictTable) Put(key, value []byte) error {
	if len(key) == 0 || len(value) == 0 {
		return errors.New("empty key or value")
	}
	s.recall()
	return s.Table.Put(key, value)
}

func (s *strictTable) Delete(key []byte) error {
	s.recall()
	return s.Table.Delete(key)
}

// calls returns how many calls fn made.
func (s *strictTable) calls(fn func()) int {
	before := s.reads + s.write
	fn()
	return s.reads + s.write - before
}

var errDisk = errors.New("disk is full")

// failingTable fails each write after a number of them.
type failingTable struct {
	Table
	writes int
}

func (f *failingTable) Put(key, value []byte) error {
	if f.writes--; f.writes < 0 {
		return errDisk
	}
	return f.Table.Put(key, value)
}

func (f *failingTable) Delete(key []byte) error {
	if f.writes--; f.writes < 0 {
		return errDisk
	}
	return f.Table.Delete(key)
}

type record struct{ key, value []byte }

// dump returns a copy of all entries of t.
func dump(t Table) []record {
	var all []record
	for k, v := t.Seek(nil); k != nil; k, v = t.Seek(append(bytes.Clone(k), 0)) {
		all = append(all, record{bytes.Clone(k), bytes.Clone(v)})
	}
	return all
}

// restore returns a Table with these entries.
func restore(all []record) Table {
	t := NewMem()
	for _, e := range all {
		if err := t.Put(e.key, bytes.Clone(e.value)); err != nil {
			panic(err)
		}
	}
	return t
}
