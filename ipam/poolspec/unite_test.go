package poolspec

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
)

// nads returns the implicit pools of configurations with these "ipam" members,
// named a, b, c….
func nads(t testing.TB, ipams ...string) []Member {
	t.Helper()
	var out []Member
	for i, ipam := range ipams {
		c := mustParse(t, network(ipam), "")
		out = append(out, MemberOf("ns/"+string(rune('a'+i)), c.Sources, c.Sources[0].Pool))
	}
	return out
}

func TestUnite(t *testing.T) {
	tests := []struct {
		name      string
		ipams     []string
		pool      []string
		disagrees []string
	}{
		{
			name:  "one",
			ipams: []string{`"range": "10.0.0.0/24", "range_start": "10.0.0.10"`},
			pool:  []string{"10.0.0.0/24 10.0.0.10-"},
		},
		{
			name: "views of one range: what nobody may take is not in the pool",
			ipams: []string{
				`"range": "10.0.0.0/24", "range_start": "10.0.0.10", "range_end": "10.0.0.19", "gateway": "10.0.0.1"`,
				`"range": "10.0.0.0/24", "range_start": "10.0.0.15", "range_end": "10.0.0.39", "exclude": ["10.0.0.17", "10.0.0.32/30"]`,
				`"range": "10.0.0.0/24", "range_start": "10.0.0.50", "range_end": "10.0.0.50", "gateway": "10.0.0.1"`,
			},
			pool: []string{"10.0.0.0/24 10.0.0.10-10.0.0.50 without 10.0.0.32/30,10.0.0.40-10.0.0.49 via 10.0.0.1"},
		},
		{
			name:  "ranges in order of family and address",
			ipams: []string{`"range": "fd00::/64"`, `"range": "10.1.0.0/24"`, `"range": "10.0.0.0/24"`},
			pool:  []string{"10.0.0.0/24", "10.1.0.0/24", "fd00::/64"},
		},
		{
			name: "two gateways: the text names the lower, and both are kept free",
			ipams: []string{
				`"range": "10.0.0.0/24"`,
				`"range": "10.0.0.0/24", "gateway": "10.0.0.1"`,
				`"range": "10.0.0.0/24", "gateway": "10.0.0.254"`,
				`"range": "10.0.0.0/24", "gateway": "10.0.0.1"`,
			},
			pool:      []string{"10.0.0.0/24 without 10.0.0.254 via 10.0.0.1"},
			disagrees: []string{"ns/c: gateway 10.0.0.254 of 10.0.0.0/24, where ns/b has 10.0.0.1; each answers its own, and neither is given to a pod: if these are two wires, " + RemedyTwoWires},
		},
		{
			name: "overlapping ranges share the wider one",
			ipams: []string{
				`"range": "10.0.0.0/24", "gateway": "10.0.0.1"`,
				`"range": "10.0.0.0/16", "gateway": "10.0.255.254"`,
				`"range": "10.0.0.128/25"`,
			},
			pool: []string{"10.0.0.0/16 without 10.0.0.1 via 10.0.255.254"},
			disagrees: []string{
				"ns/a: range 10.0.0.0/24 lies within 10.0.0.0/16 of ns/b; no address is given twice, but pods of the two see different prefix lengths",
				"ns/c: range 10.0.0.128/25 lies within 10.0.0.0/16 of ns/b; no address is given twice, but pods of the two see different prefix lengths",
			},
		},
		{
			name: "of the narrower range, its ends are nobody's unless the wider may take them",
			ipams: []string{
				`"range": "10.0.1.0/24"`,
				`"range": "10.0.0.0/16", "range_end": "10.0.0.99"`,
			},
			pool:      []string{"10.0.0.0/16 -10.0.1.254 without 10.0.0.100-10.0.1.0"},
			disagrees: []string{"ns/a: range 10.0.1.0/24 lies within 10.0.0.0/16 of ns/b; no address is given twice, but pods of the two see different prefix lengths"},
		},
		{
			name:  "a gateway outside its range is kept free in another's",
			ipams: []string{`"range": "10.0.0.0/25", "gateway": "10.0.0.254"`, `"range": "10.0.0.128/25"`},
			pool:  []string{"10.0.0.0/25", "10.0.0.128/25 without 10.0.0.254"},
		},
		{
			name:  "a gateway outside its range is kept free in another of the same configuration",
			ipams: []string{`"ipRanges": [{"range": "10.0.0.0/25", "gateway": "10.0.0.200"}, {"range": "10.0.0.128/25"}]`},
			pool:  []string{"10.0.0.0/25", "10.0.0.128/25 without 10.0.0.200"},
		},
		{
			name:  "the gateway of a range within another is kept free, whoever may take the other",
			ipams: []string{`"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "10.0.0.0/25", "gateway": "10.0.0.9"}]`, `"range": "10.0.0.0/24"`},
			pool:  []string{"10.0.0.0/24 without 10.0.0.9"},
		},
		{
			name:  "host-local and whereabouts agree on a range",
			ipams: []string{`"subnet": "10.0.0.0/24"`, `"range": "10.0.0.0/24", "gateway": "10.0.0.1"`},
			pool:  []string{"10.0.0.0/24 via 10.0.0.1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool, disagreements, err := Unite(nads(t, tt.ipams...))
			if err != nil {
				t.Fatal(err)
			}
			if got := describePool(pool); !slices.Equal(got, tt.pool) {
				t.Errorf("pool\n got %q\nwant %q", got, tt.pool)
			}
			var got []string
			for _, d := range disagreements {
				got = append(got, d.String())
			}
			if !slices.Equal(got, tt.disagrees) {
				t.Errorf("disagreements\n got %q\nwant %q", got, tt.disagrees)
			}
			if _, err := ParsePool(pool); err != nil {
				t.Errorf("the union is no pool: %v", err)
			}
		})
	}
}

func TestUniteNobody(t *testing.T) {
	pool, disagreements, err := Unite(nil)
	if err != nil || len(pool.Ranges) != 0 || disagreements != nil {
		t.Errorf("got %v, %v, %v; want nothing", pool, disagreements, err)
	}
}

func TestUniteNamesTheMemberThatIsNoPool(t *testing.T) {
	_, _, err := Unite([]Member{{Name: "ns/a", Pool: PoolText{Ranges: []RangeText{{CIDR: "10.0.0.0/24"}}}}, {Name: "ns/b", Pool: PoolText{Ranges: []RangeText{{CIDR: "x"}}}}})
	if want := `unite ns/b: spec.ranges[0].cidr: "x" is not a CIDR; ` + remedyCIDR; err == nil || err.Error() != want || !errors.Is(err, ErrPool) {
		t.Errorf("got %v; want %s", err, want)
	}
}

func TestUniteWithAMemberThatMayTakeNothing(t *testing.T) {
	pool, _, err := Unite([]Member{{Name: "ns/a", Pool: PoolText{Ranges: []RangeText{{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.0/24"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	shape, err := ParsePool(pool)
	if err != nil || shape.Capacity(allocator.IPv4) != 0 {
		t.Errorf("got %v, %v; want a pool without addresses", pool, err)
	}
}

// TestUnionIsWhatMembersMayTake compares, address by address, the pool with the
// views of the configurations that it is made of.
func TestUnionIsWhatMembersMayTake(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var all []Member
		var views []allocator.View
		var gateways []netip.Addr
		for range 1 + rnd.IntN(5) {
			c := mustParse(t, network(randomRange(rnd)), "")
			src := c.Sources[0]
			all = append(all, MemberOf("n", c.Sources, src.Pool))
			views = append(views, src.View)
			gateways = append(gateways, src.Ranges[0].Gateway)
		}
		pool, _, err := Unite(all)
		if err != nil {
			t.Fatal(err)
		}
		shape, err := ParsePool(pool)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for a := netip.MustParseAddr("10.0.0.0"); a != netip.MustParseAddr("10.0.4.0"); a = a.Next() {
			want := slices.ContainsFunc(views, func(v allocator.View) bool { return v.Contains(a) }) && !slices.Contains(gateways, a)
			r, located := shape.Locate(a)
			if located && (a == r.Prefix.Addr() || a == lastOf(r.Prefix)) {
				want = false // of the pool's own range, which may be wider
			}
			if got := shape.Ordinary(a); got != want {
				t.Fatalf("seed %d: %v in the pool: got %v; want %v\npool %q\nviews %v", seed, a, got, want, describePool(pool), views)
			}
		}
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		if again, _, err := Unite(slices.Concat(all, reversed)); err != nil || !reflect.DeepEqual(again, pool) {
			t.Fatalf("seed %d: with every member twice: %v, %v; want %v", seed, again, err, pool)
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	a := p.Addr()
	for b := a.Next(); p.Contains(b); b = b.Next() {
		a = b
	}
	return a
}

// randomRange returns whereabouts' keys for a range within 10.0.0.0/22.
func randomRange(rnd *rand.Rand) string {
	bits := 22 + rnd.IntN(6)
	base := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(4)), byte(rnd.IntN(256))}), bits).Masked()
	at := func() string {
		b := base.Addr().As4()
		n := rnd.IntN(1 << (32 - bits))
		b[2] += byte(n >> 8)
		b[3] += byte(n)
		return netip.AddrFrom4(b).String()
	}
	s := `"range": "` + base.String() + `"`
	if rnd.IntN(2) == 0 {
		s += `, "range_start": "` + base.Addr().String() + `", "range_end": "` + at() + `"`
	}
	if rnd.IntN(2) == 0 {
		s += `, "exclude": ["` + at() + `"]`
	}
	if rnd.IntN(2) == 0 {
		s += `, "gateway": "` + at() + `"`
	}
	_, err := ParseConfig([]byte(network(s)), "")
	if err != nil { // no address left: try again
		return randomRange(rnd)
	}
	return s
}

func TestDisagreementString(t *testing.T) {
	if got := (Disagreement{Member: "a", Other: "b"}).String(); got != "a: disagrees with b" {
		t.Errorf("got %q", got)
	}
}
