package allocator

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// newSpace returns a Space of these ranges with these blocks open. It must
// still be consistent when the test ends.
func newSpace(t testing.TB, blocks string, rr ...Range) (Space, *strictTable) {
	t.Helper()
	table := newStrict()
	s := NewSpace(table, mustShape(t, rr...))
	for b := range strings.FieldsSeq(blocks) {
		must(t, s.Open(prefix(b)))
	}
	t.Cleanup(func() {
		if err := s.Check(); err != nil {
			t.Errorf("inconsistent after test: %v", err)
		}
	})
	return s, table
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// next finds and takes an address, and returns its text or "none".
func next(t testing.TB, s Space, f Family, v View) string {
	t.Helper()
	a, ok, err := s.Find(f, v)
	must(t, err)
	if !ok {
		return "none"
	}
	must(t, s.Take(a))
	return a.String()
}

func TestSpaceOrder(t *testing.T) {
	s, _ := newSpace(t, "10.0.1.4/30 10.0.0.0/30", Range{Prefix: prefix("10.0.0.0/16")})
	want := func(a string) {
		t.Helper()
		if got := next(t, s, IPv4, View{}); got != a {
			t.Errorf("got %s; want %s", got, a)
		}
	}
	want("10.0.0.1")
	want("10.0.0.2")
	must(t, s.Free(addr("10.0.0.2")))
	want("10.0.0.3") // fresh before freed
	want("10.0.1.4")
	must(t, s.Free(addr("10.0.1.4")))
	must(t, s.Free(addr("10.0.0.1")))
	want("10.0.1.5")
	must(t, s.Bar(addr("10.0.0.2"), true))
	want("10.0.1.6")
	want("10.0.1.7")
	want("10.0.1.4") // the longest freed is barred
	must(t, s.Free(addr("10.0.1.6")))
	must(t, s.Bar(addr("10.0.0.2"), false))
	want("10.0.0.2") // and has kept its place
	want("10.0.0.1")
	want("10.0.1.6") // cooldown is an order, never a bar
	want("none")
	must(t, s.Open(prefix("10.0.0.4/31")))
	must(t, s.Free(addr("10.0.0.1")))
	want("10.0.0.4")
	want("10.0.0.5")
	want("10.0.0.1")

	for _, a := range []string{"10.0.0.4", "10.0.0.5"} {
		must(t, s.Free(addr(a)))
	}
	must(t, s.Free(addr("10.0.0.3")))
	must(t, s.Close(prefix("10.0.0.4/31")))
	must(t, s.Open(prefix("10.0.0.4/31")))
	want("10.0.0.4") // closing forgets
}

func TestSpaceViews(t *testing.T) {
	s, _ := newSpace(t, "10.0.0.0/28 10.0.0.16/28 10.0.1.0/28 2001:db8::/124", Range{Prefix: prefix("10.0.0.0/16")}, Range{Prefix: prefix("2001:db8::/64")})
	tests := []struct {
		name string
		f    Family
		v    string
		want string
	}{
		{"everything", IPv4, "", "10.0.0.1"},
		{"everything", IPv6, "", "2001:db8::2"},
		{"a later part", IPv4, "10.0.0.9-10.0.0.200", "10.0.0.9"},
		{"an edge without fresh ones", IPv4, "10.0.0.0-10.0.0.1 10.0.0.18-10.0.0.19", "10.0.0.18"},
		{"from between blocks", IPv4, "10.0.0.32-10.0.2.0", "10.0.1.0"},
		{"no open block", IPv4, "10.0.0.32-10.0.0.255 10.0.2.0/24", "none"},
		{"another family's", IPv4, "2001:db8::/64", "none"},
		{"its own of two families", IPv6, "10.0.0.0/8 2001:db8::8/125", "2001:db8::8"},
		{"nothing", IPv4, "none", "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := next(t, s, tt.f, view(tt.v)); got != tt.want {
				t.Errorf("Find(%v, %s) = %s; want %s", tt.f, tt.v, got, tt.want)
			}
		})
	}
}

func TestSpaceErrors(t *testing.T) {
	s, _ := newSpace(t, "10.0.0.0/30", Range{Prefix: prefix("10.0.0.0/24"), StaticOnly: spans("10.0.0.3")})
	a1, a2 := addr("10.0.0.1"), addr("10.0.0.2")
	must(t, s.Take(a1))
	must(t, s.Bar(a2, true))
	tests := []struct {
		name string
		got  error
		want error
		text string
	}{
		{"take taken", s.Take(a1), ErrTaken, "take 10.0.0.1: address is taken"},
		{"take barred", s.Take(a2), ErrBarred, "take 10.0.0.2: address is barred"},
		{"take without block", s.Take(addr("10.0.0.4")), ErrNoBlock, "take 10.0.0.4: block is not open"},
		{"take below blocks", s.Take(addr("9.0.0.4")), ErrNoBlock, "take 9.0.0.4: block is not open"},
		{"take mapped", s.Take(addr("::ffff:10.0.0.2")), ErrNoBlock, ""},
		{"take nothing", s.Take(netip.Addr{}), ErrNoBlock, ""},
		{"free free", s.Free(addr("10.0.0.3")), ErrNotTaken, "free 10.0.0.3: address is not taken"},
		{"free barred", s.Free(a2), ErrNotTaken, ""},
		{"free without block", s.Free(addr("10.0.0.4")), ErrNoBlock, ""},
		{"bar taken", s.Bar(a1, true), ErrTaken, "bar 10.0.0.1: address is taken"},
		{"unbar taken", s.Bar(a1, false), nil, ""},
		{"bar barred", s.Bar(a2, true), nil, ""},
		{"bar without block", s.Bar(addr("2001:db8::1"), false), ErrNoBlock, ""},
		{"open again", s.Open(prefix("10.0.0.0/30")), nil, ""},
		{"open wider", s.Open(prefix("10.0.0.0/29")), ErrOverlap, "open block 10.0.0.0/29: block overlaps an open one: 10.0.0.0/30"},
		{"open narrower", s.Open(prefix("10.0.0.2/31")), ErrOverlap, ""},
		{"close in use", s.Close(prefix("10.0.0.0/30")), ErrInUse, "close block 10.0.0.0/30: block is in use"},
		{"close wider", s.Close(prefix("10.0.0.0/29")), ErrNoBlock, ""},
		{"close narrower", s.Close(prefix("10.0.0.0/31")), ErrNoBlock, ""},
		{"close another", s.Close(prefix("10.0.0.4/30")), ErrNoBlock, "close block 10.0.0.4/30: block is not open"},
		{"close nothing", s.Close(netip.Prefix{}), ErrNoBlock, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !errors.Is(tt.got, tt.want) || tt.text != "" && tt.got.Error() != tt.text {
				t.Errorf("got %v; want %v %q", tt.got, tt.want, tt.text)
			}
		})
	}
	for _, bad := range []netip.Prefix{{}, prefix("10.0.0.1/24"), prefix("10.0.0.0/23"), prefix("2001:db8::/119"), prefix("::ffff:10.0.0.0/120")} {
		if err := s.Open(bad); err == nil {
			t.Errorf("Open(%v) = nil; want an error", bad)
		}
	}
	for _, p := range []string{"10.0.0.0/29", "10.0.0.0/31", "10.0.0.4/30"} {
		if open, err := s.IsOpen(prefix(p)); open || err != nil {
			t.Errorf("IsOpen(%s) = %v, %v; want false, nil", p, open, err)
		}
		for a, err := range s.Addresses(prefix(p)) {
			if !errors.Is(err, ErrNoBlock) {
				t.Errorf("Addresses(%s): %v, %v; want %v", p, a, err, ErrNoBlock)
			}
		}
	}
	if got, want := fmt.Sprint(NoBlock, Free, Barred, Taken, AddrState(4)), "NoBlock Free Barred Taken AddrState(4)"; got != want {
		t.Errorf("states print as %q; want %q", got, want)
	}
}

// TestSpaceNotOrdinary: what is not ordinary is never found, but can be taken by
// name, and comes back from cooldown to nobody.
func TestSpaceNotOrdinary(t *testing.T) {
	s, _ := newSpace(t, "10.0.0.0/29", Range{
		Prefix: prefix("10.0.0.0/29"), Gateway: addr("10.0.0.1"),
		Exclude: spans("10.0.0.2"), StaticOnly: spans("10.0.0.3-10.0.0.4"),
	})
	static := addr("10.0.0.4")
	must(t, s.Take(static))
	must(t, s.Free(static))
	var got []string
	for a := ""; a != "none"; {
		a = next(t, s, IPv4, View{})
		got = append(got, a)
	}
	if want := []string{"10.0.0.5", "10.0.0.6", "none"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	must(t, s.Take(static))
	for n, err := range s.Blocks(IPv4) {
		must(t, err)
		if want := (BlockInfo{Prefix: prefix("10.0.0.0/29"), Taken: 3}); n != want {
			t.Errorf("got %+v; want %+v", n, want)
		}
	}
}

// TestSpaceReshape: what the pool no longer has stays taken, is shown, and is
// not given again; what it has anew is.
func TestSpaceReshape(t *testing.T) {
	whole := Range{Prefix: prefix("10.0.0.0/24")}
	s, table := newSpace(t, "10.0.0.0/30 10.0.0.4/30 10.0.0.8/30", whole)
	for range 5 {
		next(t, s, IPv4, View{})
	}
	must(t, s.Free(addr("10.0.0.1")))
	writes := table.write
	must(t, s.Reshape())
	if table.write != writes {
		t.Errorf("Reshape to the same shape wrote %d times; want 0", table.write-writes)
	}

	part := whole
	part.Start = addr("10.0.0.7")
	s = NewSpace(table, mustShape(t, part))
	must(t, s.Reshape())
	must(t, s.Check())
	if n, err := s.Counts(IPv4); n != (Counts{Blocks: 3, Taken: 4, Free: 5}) || err != nil {
		t.Errorf("Counts = %+v, %v; want 3 blocks, 4 taken, 5 free", n, err)
	}
	if st, err := s.State(addr("10.0.0.2")); st != Taken || err != nil {
		t.Errorf("State of a taken address outside the pool = %v, %v; want %v", st, err, Taken)
	}
	must(t, s.Free(addr("10.0.0.2")))
	if got := next(t, s, IPv4, View{}); got != "10.0.0.7" {
		t.Errorf("got %s; want 10.0.0.7", got)
	}

	s = NewSpace(table, nil)
	must(t, s.Reshape())
	if got := next(t, s, IPv4, View{}); got != "none" {
		t.Errorf("a pool without addresses gives %s; want none", got)
	}
	s = NewSpace(table, mustShape(t, whole))
	must(t, s.Reshape())
	var got []string
	for a := ""; a != "none"; {
		a = next(t, s, IPv4, View{})
		got = append(got, a)
	}
	if want := "10.0.0.6 10.0.0.8 10.0.0.9 10.0.0.10 10.0.0.11 10.0.0.1 10.0.0.2 none"; strings.Join(got, " ") != want {
		t.Errorf("got %v; want %s", got, want)
	}
}

// TestSpaceLoops: loops may change what they go over.
func TestSpaceLoops(t *testing.T) {
	s, _ := newSpace(t, "10.0.0.0/30 10.0.0.4/30 10.0.0.8/30", Range{Prefix: prefix("10.0.0.0/24")})
	for range 11 {
		next(t, s, IPv4, View{})
	}
	var blocks, freed int
	for n, err := range s.Blocks(IPv4) {
		must(t, err)
		blocks++
		for a, err := range s.Addresses(n.Prefix) {
			must(t, err)
			must(t, s.Free(a))
			freed++
		}
		must(t, s.Close(n.Prefix))
	}
	if blocks != 3 || freed != 11 {
		t.Errorf("closed %d blocks after freeing %d; want 3, 11", blocks, freed)
	}
	for n, err := range s.Blocks(IPv4) {
		t.Errorf("block %v is left, %v", n, err)
	}

	must(t, s.Open(prefix("10.0.0.0/30")))
	must(t, s.Open(prefix("10.0.0.4/30")))
	for n, err := range s.Blocks(IPv4) {
		must(t, err)
		if n.Prefix != prefix("10.0.0.0/30") {
			t.Errorf("went on to %v after break", n.Prefix)
		}
		break
	}
	must(t, s.Take(addr("10.0.0.1")))
	must(t, s.Take(addr("10.0.0.2")))
	for a, err := range s.Addresses(prefix("10.0.0.0/30")) {
		must(t, err)
		if a != addr("10.0.0.1") {
			t.Errorf("went on to %v after break", a)
		}
		break
	}
}

// TestSpaceTableFails: an error of the Table comes out of every method that
// writes, at whichever write it happens, and before that nothing is wrong.
func TestSpaceTableFails(t *testing.T) {
	shape := mustShape(t, Range{Prefix: prefix("10.0.0.0/24")})
	other := mustShape(t, Range{Prefix: prefix("10.0.0.0/24"), Exclude: spans("10.0.0.0/30")})
	base := NewMem()
	s := NewSpace(base, shape)
	must(t, s.Open(prefix("10.0.0.0/31")))
	must(t, s.Open(prefix("10.0.0.8/31")))
	must(t, s.Take(addr("10.0.0.1")))
	entries := dump(base)
	calls := map[string]func(s Space) error{
		"Open":    func(s Space) error { return s.Open(prefix("10.0.0.2/31")) },
		"Close":   func(s Space) error { return s.Close(prefix("10.0.0.8/31")) },
		"Take":    func(s Space) error { return s.Take(addr("10.0.0.8")) },
		"Free":    func(s Space) error { return s.Free(addr("10.0.0.1")) },
		"Bar":     func(s Space) error { return s.Bar(addr("10.0.0.8"), true) },
		"Reshape": func(s Space) error { return NewSpace(s.t, other).Reshape() },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for writes := 0; ; writes++ {
				f := &failingTable{restore(entries), writes}
				err := call(NewSpace(f, shape))
				if f.writes >= 0 {
					must(t, err)
					if writes == 0 {
						t.Errorf("%s writes nothing", name)
					}
					return
				}
				if !errors.Is(err, errDisk) {
					t.Fatalf("%s with write %d failing = %v; want %v", name, writes, err, errDisk)
				}
			}
		})
	}
}

// TestSpaceCounterEnd: the counter of frees does not wrap.
func TestSpaceCounterEnd(t *testing.T) {
	s, _ := newSpace(t, "10.0.0.0/30", Range{Prefix: prefix("10.0.0.0/24")})
	for _, a := range []string{"10.0.0.1", "10.0.0.2"} {
		must(t, s.Take(addr(a)))
	}
	k := new(key)
	h, err := s.head(k, IPv4)
	must(t, err)
	h.seq = maxSeq - 1
	must(t, s.putHead(k, IPv4, h))
	must(t, s.Free(addr("10.0.0.1")))
	if err := s.Free(addr("10.0.0.2")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Free at the counter's end = %v; want %v", err, ErrCorrupt)
	}
	must(t, s.Take(addr("10.0.0.3")))
	if got := next(t, s, IPv4, View{}); got != "10.0.0.1" || maxSeq == uint64(math.MaxUint64) {
		t.Errorf("got %s; want 10.0.0.1", got)
	}
}
