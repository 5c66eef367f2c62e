package allocator

import (
	"fmt"
	"net/netip"
	"testing"

	"go4.org/netipx"
)

// fill opens the blocks that s needs for n taken addresses of family f, and
// takes these. It writes whole blocks: a million addresses one by one take long.
func fill(t testing.TB, s Space, f Family, n int) {
	t.Helper()
	bits := BlockBits(s.s, f, 0)
	var from netip.Addr
	k := new(key)
	for n > 0 {
		p, ok := s.s.NextBlock(f, bits, View{}, from)
		if !ok {
			t.Fatalf("%d more addresses do not fit", n)
		}
		from = netipx.PrefixLastIP(p).Next()
		h, err := s.head(k, f)
		must(t, err)
		b := newBlock(p, s.s.ordinaryIn(p))
		fresh := b.fresh()
		for off := range b.size() {
			if n > 0 && fresh.has(off) {
				b.take(off)
				n--
			}
		}
		must(t, s.replace(k, f, tally{}, b, h))
	}
}

// fragments returns n ranges of count addresses each, spread over the /64 p.
func fragments(p netip.Prefix, n, count int) []Range {
	var rr []Range
	b := p.Addr().As16()
	for i := range n {
		b[8], b[9] = byte(i>>8), byte(i)
		start := netip.AddrFrom16(b)
		e := b
		e[14], e[15] = byte((count-1)>>8), byte(count-1)
		rr = append(rr, Range{Prefix: p, Start: start, End: netip.AddrFrom16(e)})
	}
	return rr
}

// TestSpaceCost counts the calls on the Table, each of which is O(log n): they
// do not grow with the pool, its fill, or its fragments.
func TestSpaceCost(t *testing.T) {
	pools := map[string]struct {
		ranges []Range
		f      Family
	}{
		"10.0.0.0/24":         {[]Range{{Prefix: prefix("10.0.0.0/24")}}, IPv4},
		"10.0.0.0/16":         {[]Range{{Prefix: prefix("10.0.0.0/16")}}, IPv4},
		"2001:db8::/32":       {[]Range{{Prefix: prefix("2001:db8::/32")}}, IPv6},
		"1,000 parts of a 64": {fragments(prefix("2001:db8::/64"), 1000, 64), IPv6},
	}
	for name, pool := range pools {
		for _, percent := range []int64{1, 50, 100} {
			t.Run(fmt.Sprintf("%s at %d %%", name, percent), func(t *testing.T) {
				s, table := newSpace(t, "", pool.ranges...)
				capacity := min(s.s.Capacity(pool.f), 64_000)
				fill(t, s, pool.f, int(capacity*percent/100))
				mid := capacity * percent / 200
				a := takenAt(t, s, pool.f, int(mid))
				costs := []struct {
					name string
					most int
					fn   func() error
				}{
					{"Find", 4, func() error { _, _, err := s.Find(pool.f, View{}); return err }},
					{"State", 1, func() error { _, err := s.State(a); return err }},
					{"Counts", 1, func() error { _, err := s.Counts(pool.f); return err }},
					{"Free", 6, func() error { return s.Free(a) }},
					{"Take", 6, func() error { return s.Take(a) }},
					{"Bar", 2, func() error { return s.Bar(a, false) }},
					{"Open", 3, func() error { return s.Open(s.s.Block(a, BlockBits(s.s, pool.f, 0))) }},
				}
				for _, c := range costs {
					if got := table.calls(func() { must(t, c.fn()) }); got > c.most {
						t.Errorf("%s made %d calls; want at most %d", c.name, got, c.most)
					}
				}
			})
		}
	}
}

// takenAt returns the taken address number i.
func takenAt(t *testing.T, s Space, f Family, i int) netip.Addr {
	t.Helper()
	for n, err := range s.Blocks(f) {
		must(t, err)
		if i -= n.Taken; i >= 0 {
			continue
		}
		for a, err := range s.Addresses(n.Prefix) {
			must(t, err)
			return a
		}
	}
	t.Fatalf("no taken address %d", i)
	return netip.Addr{}
}

// TestFindInViewCost: a view of few blocks does not pay for the many that have
// freed addresses elsewhere, nor a view of most of the pool for its full blocks.
func TestFindInViewCost(t *testing.T) {
	s, table := newSpace(t, "", Range{Prefix: prefix("10.0.0.0/16")})
	fill(t, s, IPv4, 1<<16-2)
	for i := range 1000 { // one freed address in each of the first 1000 blocks
		must(t, s.Free(blockAddr(i, 7)))
	}
	tests := []struct {
		name string
		v    View
		want string
		most int
	}{
		{"all but the oldest 3", view("10.0.0.192-10.0.255.255"), "10.0.0.199", 20},
		{"two blocks of the newest", view("10.0.249.192-10.0.250.0"), "10.0.249.199", 20},
		{"every other block", everyOther(), "10.0.0.71", 20},
		{"blocks without any", view("10.0.252.0/24"), "none", 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var a netip.Addr
			var ok bool
			var err error
			calls := table.calls(func() { a, ok, err = s.Find(IPv4, tt.v) })
			must(t, err)
			if ok != (tt.want != "none") || ok && a.String() != tt.want {
				t.Errorf("Find = %v, %v; want %s", a, ok, tt.want)
			}
			if calls > tt.most {
				t.Errorf("Find made %d calls; want at most %d", calls, tt.most)
			}
		})
	}
}

// blockAddr returns the address at offset off of block i of 10.0.0.0/16.
func blockAddr(i, off int) netip.Addr {
	n := i*64 + off
	return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
}

// everyOther is the view of blocks 1, 3, 5 … of 10.0.0.0/16.
func everyOther() View {
	var b netipx.IPSetBuilder
	for i := 1; i < 1024; i += 2 {
		b.AddRange(netipx.IPRangeFrom(blockAddr(i, 0), blockAddr(i, 63)))
	}
	set, err := b.IPSet()
	if err != nil {
		panic(err)
	}
	return NewView(set)
}

// TestThousandFragments hands out a /64 in a thousand parts to the last address,
// each once, and all of it again in the order of freeing.
func TestThousandFragments(t *testing.T) {
	s, _ := newSpace(t, "", fragments(prefix("2001:db8::/64"), 1000, 10)...)
	bits := BlockBits(s.s, IPv6, 0)
	var given []netip.Addr
	var from netip.Addr
	for {
		a, ok, err := s.Find(IPv6, View{})
		must(t, err)
		if !ok {
			p, more := s.s.NextBlock(IPv6, bits, View{}, from)
			if !more {
				break
			}
			must(t, s.Open(p))
			from = netipx.PrefixLastIP(p).Next()
			continue
		}
		if len(given) > 0 && !given[len(given)-1].Less(a) {
			t.Fatalf("%v comes after %v", a, given[len(given)-1])
		}
		must(t, s.Take(a))
		given = append(given, a)
	}
	if want := 1000*10 - 1; len(given) != want || s.s.Capacity(IPv6) != int64(want) {
		t.Errorf("gave %d of %d; want %d", len(given), s.s.Capacity(IPv6), want)
	}
	for i := 0; i < len(given); i += 7 {
		must(t, s.Free(given[i]))
	}
	for i := 0; i < len(given); i += 7 {
		if got := next(t, s, IPv6, View{}); got != given[i].String() {
			t.Fatalf("got %s again; want %v", got, given[i])
		}
	}
}

// TestAllocations keeps an eye on the memory that calls leave behind: a key, and
// what the Table keeps.
func TestAllocations(t *testing.T) {
	s := NewSpace(NewMem(), mustShape(t, Range{Prefix: prefix("10.0.0.0/16")}))
	fill(t, s, IPv4, 1000)
	a := addr("10.0.0.1")
	v := view("10.0.0.0/18")
	tests := []struct {
		name string
		most float64
		fn   func()
	}{
		{"Find", 1, func() { must(t, second(s.Find(IPv4, View{}))) }},
		{"Find in a view", 1, func() { must(t, second(s.Find(IPv4, v))) }},
		{"State", 1, func() { must(t, last(s.State(a))) }},
		{"Counts", 1, func() { must(t, last(s.Counts(IPv4))) }},
		{"Free and Take", 14, func() { must(t, s.Free(a)); must(t, s.Take(a)) }},
		{"NextBlock", 0, func() { s.s.NextBlock(IPv4, 26, v, a) }},
		{"Ordinary", 0, func() { s.s.Ordinary(a) }},
		{"Assignable", 0, func() { must(t, s.s.Assignable(a)) }},
	}
	for _, tt := range tests {
		if got := testing.AllocsPerRun(100, tt.fn); got > tt.most {
			t.Errorf("%s allocates %v times; want at most %v", tt.name, got, tt.most)
		}
	}
}

func last[T any](_ T, err error) error           { return err }
func second[T, U any](_ T, _ U, err error) error { return err }
