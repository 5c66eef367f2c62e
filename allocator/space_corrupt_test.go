package allocator

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// damaged returns a Space with all kinds of entries, of both families, and its
// entries.
func damaged(t *testing.T) (*Shape, []record) {
	s, table := newSpace(t, "10.0.0.0/30 10.0.0.4/30 10.0.1.0/28 2001:db8::/125",
		Range{Prefix: prefix("10.0.0.0/16")}, Range{Prefix: prefix("2001:db8::/64")})
	for range 9 {
		next(t, s, IPv4, View{})
	}
	for range 3 {
		next(t, s, IPv6, View{})
	}
	for _, a := range []string{"10.0.0.6", "10.0.0.2", "10.0.1.0", "2001:db8::2"} {
		must(t, s.Free(addr(a)))
	}
	must(t, s.Bar(addr("10.0.1.9"), true))
	return s.s, dump(table.Table)
}

// answers calls everything that reads, and returns what it said, or the first
// error.
func answers(s Space) (string, error) {
	var b bytes.Buffer
	for _, f := range Families() {
		n, err := s.Counts(f)
		if err != nil {
			return "", err
		}
		b.WriteString(strings.Repeat("b", n.Blocks) + strings.Repeat("t", n.Taken) + strings.Repeat("f", n.Free))
		a, _, err := s.Find(f, View{})
		if err != nil {
			return "", err
		}
		b.WriteString(a.String())
		if a, _, err = s.Find(f, view("10.0.0.0/29 2001:db8::/126")); err != nil {
			return "", err
		}
		b.WriteString(a.String())
		for n, err := range s.Blocks(f) {
			if err != nil {
				return "", err
			}
			b.WriteString(n.Prefix.String())
			if open, err := s.IsOpen(n.Prefix); err != nil || !open {
				return "", err
			}
			for a := n.Prefix.Addr(); n.Prefix.Contains(a); a = a.Next() {
				st, err := s.State(a)
				if err != nil {
					return "", err
				}
				b.WriteString(st.String())
			}
		}
	}
	return b.String(), nil
}

// TestSpaceDamagedValues: no flipped bit and no cut in any value passes for an
// answer. What reads the entry says that it is corrupt; what does not, answers
// as before. Check always tells.
func TestSpaceDamagedValues(t *testing.T) {
	shape, entries := damaged(t)
	whole, err := answers(NewSpace(restore(entries), shape))
	must(t, err)
	try := func(i int, value []byte) {
		t.Helper()
		changed := slices.Clone(entries)
		changed[i].value = value
		s := NewSpace(restore(changed), shape)
		got, err := answers(s)
		switch {
		case err != nil && !errors.Is(err, ErrCorrupt):
			t.Errorf("%x = %x (was %x): %v; want %v", entries[i].key, value, entries[i].value, err, ErrCorrupt)
		case err == nil && got != whole:
			t.Errorf("%x = %x (was %x) passes for %s; want %s", entries[i].key, value, entries[i].value, got, whole)
		}
		if err := s.Check(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x = %x (was %x): Check = %v; want %v", entries[i].key, value, entries[i].value, err, ErrCorrupt)
		}
		// Changing it gives an error or works, but does not panic.
		for a := addr("10.0.0.0"); a != addr("10.0.0.9"); a = a.Next() {
			for _, err := range []error{s.Take(a), s.Free(a), s.Reshape()} {
				if err != nil && !isOutcome(err) {
					t.Errorf("%x = %x: %v; want an outcome of this package", entries[i].key, value, err)
				}
			}
		}
	}
	for i, e := range entries {
		for bit := range 8 * len(e.value) {
			value := bytes.Clone(e.value)
			value[bit/8] ^= 1 << (bit % 8)
			try(i, value)
		}
		for n := range e.value {
			try(i, e.value[:n])
		}
		try(i, append(bytes.Clone(e.value), 0))
	}
}

func isOutcome(err error) bool {
	return slices.ContainsFunc([]error{ErrTaken, ErrNotTaken, ErrBarred, ErrNoBlock, ErrCorrupt}, func(want error) bool {
		return errors.Is(err, want)
	})
}

// TestSpaceDamagedKeys: Check tells of every entry that is missing, has another
// key, or is too many.
func TestSpaceDamagedKeys(t *testing.T) {
	shape, entries := damaged(t)
	check := func(what string, all []record) {
		t.Helper()
		if err := NewSpace(restore(all), shape).Check(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: Check = %v; want %v", what, err, ErrCorrupt)
		}
	}
	for i, e := range entries {
		check("without "+string(e.key), slices.Delete(slices.Clone(entries), i, i+1))
		for bit := range 8 * len(e.key) {
			moved := slices.Clone(entries)
			moved[i].key = bytes.Clone(e.key)
			moved[i].key[bit/8] ^= 1 << (bit % 8)
			check("moved "+string(e.key), moved)
			answersOrCorrupt(t, NewSpace(restore(moved), shape))
		}
		for _, k := range [][]byte{append(bytes.Clone(e.key), 0), e.key[:len(e.key)-1], e.key[:1]} {
			moved := slices.Clone(entries)
			moved[i].key = k
			check("moved "+string(e.key), moved)
			answersOrCorrupt(t, NewSpace(restore(moved), shape))
		}
	}
	check("a stranger", append(slices.Clone(entries), record{[]byte("x"), []byte("y")}))
	check("an index entry too many", append(slices.Clone(entries), record{new(key).addr(tagFresh, IPv4, addr("10.0.0.9")), []byte{indexVersion}}))

	s := NewSpace(restore(entries), shape)
	k := new(key)
	h, err := s.head(k, IPv4)
	must(t, err)
	must(t, s.replace(k, IPv4, tally{}, newBlock(prefix("10.0.1.0/26"), bitmap{}), h))
	if err := s.Check(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "block 10.0.1.0/26 overlaps the one that ends at 10.0.1.15") {
		t.Errorf("blocks that overlap: Check = %v; want it to name both", err)
	}
}

// TestSpaceLyingIndexes: an index entry is not believed unless its block agrees.
func TestSpaceLyingIndexes(t *testing.T) {
	shape, entries := damaged(t)
	k := new(key)
	lie := func(k, v []byte) record { return record{bytes.Clone(k), v} }
	pointer := func(a string) []byte { return appendAddr([]byte{indexVersion}, addr(a)) }
	tests := []struct {
		name string
		lie  record
	}{
		{"fresh without block", lie(k.addr(tagFresh, IPv4, addr("9.0.0.3")), []byte{indexVersion})},
		{"fresh inside a block", lie(k.addr(tagFresh, IPv4, addr("10.0.1.14")), []byte{indexVersion})},
		{"fresh, but all handed out", lie(k.addr(tagFresh, IPv4, addr("10.0.0.3")), []byte{indexVersion})},
		{"fresh of a newer version", lie(k.addr(tagFresh, IPv4, addr("10.0.0.3")), []byte{indexVersion + 1})},
		{"freed earlier than anything", lie(k.number(IPv4, 0), pointer("10.0.0.7"))},
		{"freed in a block that ends elsewhere", lie(k.number(IPv4, 1), pointer("10.0.0.6"))},
		{"freed in another block", lie(k.number(IPv4, 1), pointer("10.0.0.3"))},
		{"freed in no block", lie(k.number(IPv4, 1), pointer("11.0.0.3"))},
		{"freed in another family", lie(k.number(IPv4, 1), pointer("2001:db8::7"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := restore(entries)
			s := NewSpace(table, shape)
			for tt.lie.key[0] == tagOld { // the fresh ones come first
				if a, _, err := s.Find(IPv4, View{}); err != nil || a == addr("10.0.0.6") {
					must(t, err)
					break
				}
				next(t, s, IPv4, View{})
			}
			must(t, table.Put(tt.lie.key, tt.lie.value))
			if a, ok, err := s.Find(IPv4, View{}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Find = %v, %v, %v; want %v", a, ok, err, ErrCorrupt)
			}
			if err := s.Check(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Check = %v; want %v", err, ErrCorrupt)
			}
		})
	}
}

func answersOrCorrupt(t *testing.T, s Space) {
	t.Helper()
	if _, err := answers(s); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v; want an answer or %v", err, ErrCorrupt)
	}
}

// TestSpaceLyingCounts: a head that counts fewer than a block has is found out
// before a count goes below zero, and one whose counter lags behind by Check.
func TestSpaceLyingCounts(t *testing.T) {
	shape, entries := damaged(t)
	s := NewSpace(restore(entries), shape)
	k := new(key)
	h, err := s.head(k, IPv4)
	must(t, err)
	h.seq--
	must(t, s.putHead(k, IPv4, h))
	if err := s.Check(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Check of a counter that lags behind = %v; want %v", err, ErrCorrupt)
	}
	must(t, s.putHead(k, IPv4, head{seq: 3}))
	if err := s.Free(addr("10.0.0.1")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Free = %v; want %v", err, ErrCorrupt)
	}
	must(t, s.putHead(k, IPv4, head{blocks: -1}))
	if _, err := s.Counts(IPv4); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Counts = %v; want %v", err, ErrCorrupt)
	}
	if err := s.Close(prefix("10.0.0.4/30")); err == nil {
		t.Error("Close = nil; want an error")
	}
}
