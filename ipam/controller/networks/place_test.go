package networks

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// unnamed are definitions of these ranges, the oldest first; "a b" has two.
func unnamed(ranges ...string) (all []Network) {
	for i, text := range ranges {
		var list []string
		for r := range strings.FieldsSeq(text) {
			list = append(list, fmt.Sprintf(`{"range":%q}`, r))
		}
		all = append(all, Read("ns", fmt.Sprint("d", i), time.Unix(int64(i), 0), fmt.Sprintf(
			`{"cniVersion":"1.0.0","name":"n%d","type":"bridge","ipam":{"type":"tenure","ipRanges":[%s]}}`, i, strings.Join(list, ","))))
	}
	return all
}

func domainPool(name string, cidrs ...string) poolspec.DomainPool {
	p := poolspec.DomainPool{Name: name}
	for _, c := range cidrs {
		p.CIDRs = append(p.CIDRs, netip.MustParsePrefix(c))
	}
	return p
}

// TestAssign: definitions that overlap share a pool, others have pools of their own; a pool that
// is there keeps its name and what it has.
func TestAssign(t *testing.T) {
	old := domainPool("default-domain", "10.0.0.0/24", "10.1.0.0/24")
	own := domainPool("range-10-5-0-0-24", "10.5.0.0/24")
	for _, tt := range []struct {
		name            string
		ranges          []string
		pools, draining []poolspec.DomainPool
		taken           string
		want, refused   string
	}{
		{name: "apart", ranges: []string{"10.0.0.0/24", "10.1.0.0/24"}, want: "range-10-0-0-0-24: d0; range-10-1-0-0-24: d1"},
		{name: "the same", ranges: []string{"10.0.0.0/24", "10.0.0.0/24"}, want: "range-10-0-0-0-24: d0 d1"},
		{name: "the oldest names the pool", ranges: []string{"10.0.0.0/25", "10.0.0.0/24"}, want: "range-10-0-0-0-25: d0 d1"},
		{name: "a later one joins two, before there are pools", ranges: []string{"10.0.0.0/24", "10.1.0.0/24", "10.0.0.0/8"}, want: "range-10-0-0-0-24: d0 d1 d2"},
		{name: "by one family", ranges: []string{"10.0.0.0/24 fd00::/64", "10.1.0.0/24 fd00::/64", "fd01::/64"}, want: "range-10-0-0-0-24: d0 d1; range-fd01---64: d2"},
		{name: "after an upgrade", ranges: []string{"10.0.0.0/24", "10.1.0.0/25", "10.2.0.0/24"}, pools: []poolspec.DomainPool{old},
			want: "default-domain: d0 d1; range-10-2-0-0-24: d2"},
		{name: "what was left out of a full pool", ranges: []string{"10.0.0.0/24 10.9.0.0/24", "10.8.0.0/24"}, pools: []poolspec.DomainPool{old},
			want: "default-domain: d0; range-10-8-0-0-24: d1"},
		{name: "a bridge", ranges: []string{"10.0.0.0/24", "10.5.0.0/24", "10.0.0.0/8"}, pools: []poolspec.DomainPool{old, own},
			want: "default-domain: d0; range-10-5-0-0-24: d1", refused: "d2: ranges [10.0.0.0/8] overlap those of pools default-domain and range-10-5-0-0-24"},
		{name: "wider", ranges: []string{"10.5.0.0/16"}, pools: []poolspec.DomainPool{old, own}, want: "range-10-5-0-0-24: d0"},
		{name: "where a pool still has leases", ranges: []string{"10.2.0.0/24"}, pools: []poolspec.DomainPool{old}, draining: []poolspec.DomainPool{domainPool("default-domain", "10.2.0.64/26")},
			want: "default-domain: d0"},
		{name: "the name is in use", ranges: []string{"10.2.0.0/24"}, taken: "range-10-2-0-0-24 range-10-2-0-0-24-2", want: "range-10-2-0-0-24-3: d0"},
		{name: "two of one first range", ranges: []string{"10.2.0.0/24"}, pools: []poolspec.DomainPool{domainPool("range-10-2-0-0-24", "10.3.0.0/24")}, taken: "range-10-2-0-0-24",
			want: "range-10-2-0-0-24-2: d0"},
	} {
		a := Assign(unnamed(tt.ranges...), tt.pools, tt.draining, func(name string) bool { return slices.Contains(strings.Fields(tt.taken), name) })
		var got, refused []string
		for _, pool := range slices.Sorted(maps.Keys(a.Of)) {
			line := pool + ":"
			for _, n := range a.Of[pool] {
				if line += " " + n.Definition; n.Sources[0].Pool != pool || n.ImplicitPools()[pool].Ranges == nil {
					t.Errorf("%s: %s is of pool %s; want %s", tt.name, n.Definition, n.Sources[0].Pool, pool)
				}
			}
			got = append(got, line)
		}
		for _, n := range a.Refused {
			refused = append(refused, n.Definition+": "+n.Fault)
		}
		if got := strings.Join(got, "; "); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
		if got := strings.Join(refused, "; "); !strings.HasPrefix(got, tt.refused) || (got == "") != (tt.refused == "") {
			t.Errorf("%s: refused %q; want %q", tt.name, got, tt.refused)
		}
	}
}

// TestPlaceOfANetwork: who is in a pool names it, who has none yet names what it would be called,
// and who bridges two is at fault.
func TestPlaceOfANetwork(t *testing.T) {
	pools := []poolspec.DomainPool{domainPool("default-domain", "10.0.0.0/24"), domainPool("own", "10.1.0.0/24")}
	for ranges, want := range map[string]string{
		"10.0.0.0/25": "default-domain", "10.1.0.0/24": "own", "10.2.0.0/24": "range-10-2-0-0-24", "10.0.0.0/8": "fault",
	} {
		n := unnamed(ranges)[0].Place(pools)
		got := "fault"
		if n.Fault == "" {
			got = n.Sources[0].Pool
		}
		if got != want {
			t.Errorf("%s is in %s; want %s", ranges, got, want)
		}
	}
	named := Read("ns", "d", time.Time{}, `{"name":"n","type":"bridge","ipam":{"type":"tenure","range":"10.0.0.0/24","network_name":"lan"}}`)
	if got := named.Place(pools).Sources[0].Pool; got != "lan" {
		t.Errorf("a network with a name is in %s; want lan", got)
	}
}
