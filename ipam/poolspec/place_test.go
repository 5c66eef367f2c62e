package poolspec

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func cidrsOf(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// TestPlace: a configuration is of the pool whose ranges overlap its own, and of no pool where
// several do that are apart.
func TestPlace(t *testing.T) {
	old := DomainPool{DefaultDomain, cidrsOf("10.0.0.0/24", "10.0.5.0/24", "fd00::/64")}
	a := DomainPool{"range-10-1-0-0-24", cidrsOf("10.1.0.0/24")}
	b := DomainPool{"range-10-1-2-0-24", cidrsOf("10.1.2.0/24")}
	late := DomainPool{"range-10-1-0-0-25", cidrsOf("10.1.0.0/25")}
	all := []DomainPool{old, a, b, late}
	for _, tt := range []struct {
		name, want string
		cidrs      []netip.Prefix
	}{
		{"the same", "range-10-1-0-0-24", cidrsOf("10.1.0.0/24")},
		{"narrower", DefaultDomain, cidrsOf("10.0.5.128/25")},
		{"wider", "range-10-1-2-0-24 lacks 10.1.2.0/23", cidrsOf("10.1.2.0/23")},
		{"of both families", DefaultDomain + " lacks 10.9.0.0/24", cidrsOf("10.9.0.0/24", "fd00::/80")},
		{"apart", "none", cidrsOf("10.2.0.0/24", "fd01::/64")},
		{"wider than two", "range-10-1-0-0-24 and range-10-1-2-0-24", cidrsOf("10.1.0.0/16")},
		{"one of each of two", "default-domain and range-10-1-0-0-24", cidrsOf("10.1.0.0/26", "10.0.0.0/26")},
		{"in two that overlap: the older", "range-10-1-0-0-24", cidrsOf("10.1.0.0/26")},
	} {
		p, ok, err := Place(tt.cidrs, all)
		got := "none"
		switch {
		case err != nil:
			_, got, _ = strings.Cut(err.Error(), "of pools ")
			got, _, _ = strings.Cut(got, ",")
		case ok:
			got = p.Name
			if c, lacks := p.Lacks(tt.cidrs); lacks {
				got += fmt.Sprint(" lacks ", c)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

// TestUnnamed: only inline ranges in whereabouts' form that share addresses and have no name wait
// to be placed, in a cluster, and all of a configuration in one pool.
func TestUnnamed(t *testing.T) {
	for _, tt := range []struct{ ipam, want string }{
		{`"range":"10.1.0.0/24"`, "range-10-1-0-0-24 [10.1.0.0/24]"},
		{`"ipRanges":[{"range":"fd00::/64"},{"range":"10.1.0.0/24"}]`, "range-fd00---64 [fd00::/64 10.1.0.0/24]"},
		{`"range":"10.1.0.5-10.1.0.9/24"`, "range-10-1-0-0-24 [10.1.0.0/24]"},
		{`"range":"2001:db8:1111:2222:3333:4444:5555:6666/128"`, "range-2001-db8-1111-2222-3333-4444-5555-6666-128 [2001:db8:1111:2222:3333:4444:5555:6666/128]"},
		{`"range":"10.1.0.0/24","network_name":"lan"`, "lan []"},
		{`"range":"10.1.0.0/24","enable_overlapping_ranges":false`, "10-1-0-0-24 []"},
		{`"range":"10.1.0.0/24","mode":"local"`, "net []"},
		{`"subnet":"10.1.0.0/24"`, "net []"},
		{`"pool":"lan"`, "lan []"},
	} {
		configs, err := ParseNetwork([]byte(`{"cniVersion":"1.0.0","name":"net","type":"bridge","ipam":{"type":"tenure",`+tt.ipam+`}}`), "net")
		if err != nil {
			t.Fatalf("%s: %v", tt.ipam, err)
		}
		sources := configs[0].Sources
		for _, s := range sources {
			if got := fmt.Sprint(s.Pool, " ", UnnamedCIDRs(sources)); got != tt.want || !isPoolName(s.Pool) {
				t.Errorf("%s: %s; want %s", tt.ipam, got, tt.want)
			}
		}
		unnamed := sources[0].Unnamed
		if got := InPool(sources, "p")[0].Pool; (got == "p") != unnamed || sources[0].Pool == "p" {
			t.Errorf("%s: placed in %s, and was %s", tt.ipam, got, sources[0].Pool)
		}
	}
}
