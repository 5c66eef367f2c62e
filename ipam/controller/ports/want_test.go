package ports

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// factsOf are those of a pool on a network whose subnets have these prefixes, but for the first
// eight addresses of each. The n-th subnet is called after the pool and n.
func factsOf(t *testing.T, name, network string, prefixes ...string) poolFacts {
	t.Helper()
	f := poolFacts{name: protocol.PoolName(name), status: &v1alpha1.NeutronStatus{NetworkID: network}}
	var text poolspec.PoolText
	for i, p := range prefixes {
		f.status.Subnets = append(f.status.Subnets, v1alpha1.NeutronSubnet{ID: fmt.Sprintf("%s%d", name, i), CIDR: p})
		first := netip.MustParsePrefix(p).Addr()
		for range 8 {
			first = first.Next()
		}
		text.Ranges = append(text.Ranges, poolspec.RangeText{CIDR: p, Start: first.String()})
	}
	shape, err := poolspec.ParsePool(text)
	if err != nil {
		t.Fatal(err)
	}
	f.shape = shape
	return f
}

// asks is a claim's ask of pools.
func asks(pools ...string) Ask {
	a := Ask{UID: "u", Claim: grants.ClaimKey{Namespace: "team", Name: "db"}}
	for _, p := range pools {
		a.From = append(a.From, Source{Pool: protocol.PoolName(p)})
	}
	return a
}

// asking is a after an edit.
func asking(a Ask, edit func(*Ask)) Ask {
	edit(&a)
	return a
}

func addresses(texts ...string) func(*Ask) {
	return func(a *Ask) {
		for _, text := range texts {
			a.Addresses = append(a.Addresses, netip.MustParseAddr(text))
		}
	}
}

// TestChoices: the ports that would do for a claim: one address of a family of each pool, of each
// subnet in turn, and those that are asked for by name.
func TestChoices(t *testing.T) {
	dual := factsOf(t, "p", "net", "10.1.0.0/24", "10.2.0.0/24", "fd00::/64")
	other := factsOf(t, "q", "net", "10.3.0.0/24")
	for name, tt := range map[string]struct {
		ask   Ask
		pools []poolFacts
		want  string // the fixed IPs of each choice, or the reason
	}{
		"each subnet of a family in turn": {asks("p"), []poolFacts{dual}, "p0 p2 | p1 p2"},
		"one family":                      {asking(asks("p"), func(a *Ask) { a.From[0].Families = []allocator.Family{allocator.IPv6} }), []poolFacts{dual}, "p2"},
		"two pools":                       {asks("p", "q"), []poolFacts{dual, other}, "p0 p2 q0 | p1 p2 q0"},
		"an address by name":              {asking(asks("p"), addresses("10.2.0.9")), []poolFacts{dual}, "p1=10.2.0.9 p2"},
		"two of one family by name":       {asking(asks("p"), addresses("10.1.0.9", "10.2.0.9")), []poolFacts{dual}, "Unassignable: 10.2.0.9 is in no subnet of pool p"},
		"an address of none":              {asking(asks("p"), addresses("10.9.0.9")), []poolFacts{dual}, "Unassignable: 10.9.0.9 is in no subnet of pool p"},
		"of another pool, perhaps":        {asking(asking(asks("p"), addresses("10.9.0.9")), func(a *Ask) { a.Mixed = true }), []poolFacts{dual}, "p0 p2 | p1 p2"},
		"what the pool gives nobody":      {asking(asks("q"), addresses("10.3.0.2")), []poolFacts{other}, "Unassignable: 10.3.0.2: pool q: "},
		"unless it is the claim's":        {asking(asking(asks("q"), addresses("10.3.0.2")), func(a *Ask) { a.Granted = true }), []poolFacts{other}, "q0=10.3.0.2"},
		"of the claim's, that alone":      {asking(asking(asks("p"), addresses("10.1.0.9")), func(a *Ask) { a.Granted = true }), []poolFacts{dual}, "p0=10.1.0.9"},
		"two networks":                    {asks("p", "q"), []poolFacts{dual, factsOf(t, "q", "other", "10.3.0.0/24")}, "TwoNetworks: pools p and q are of Neutron's networks net and other"},
		"nothing is known of the pool":    {asks("p"), []poolFacts{{name: "p"}}, "PoolNotReady: pool p: its subnets have not been read yet"},
		"no subnet of what is wanted":     {asking(asks("q"), func(a *Ask) { a.From[0].Families = []allocator.Family{allocator.IPv6} }), []poolFacts{other}, "PoolNotReady: the network's pools have no subnet"},
	} {
		t.Run(name, func(t *testing.T) {
			wants, bad := choices(tt.ask, tt.pools)
			var all []string
			for _, w := range wants {
				if w.Claim != "u" || w.Network != "net" || w.Name != "team/db" {
					t.Errorf("wants %+v", w)
				}
				var ips []string
				for _, f := range w.Addresses {
					text := f.Subnet
					if f.Addr.IsValid() {
						text += "=" + f.Addr.String()
					}
					ips = append(ips, text)
				}
				all = append(all, strings.Join(ips, " "))
			}
			got := strings.Join(all, " | ")
			if !bad.None() {
				got = string(bad.Reason) + ": " + bad.Message
			}
			if got != tt.want && (bad.None() || !strings.HasPrefix(got, tt.want)) {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

// TestChoicesHaveABound: of many subnets not every combination is tried. A port that is made again
// has the hardware address that the claim was told.
func TestChoicesHaveABound(t *testing.T) {
	five := func(name string, third int) poolFacts {
		var prefixes []string
		for i := range 5 {
			prefixes = append(prefixes, fmt.Sprintf("10.%d.%d.0/24", third, i))
		}
		return factsOf(t, name, "net", prefixes...)
	}
	wants, bad := choices(asking(asks("p", "q"), func(a *Ask) { a.Port = vif.Port{ID: "port", MAC: macA} }), []poolFacts{five("p", 1), five("q", 2)})
	if !bad.None() || len(wants) != mostChoices || wants[0].MAC.String() != macA || wants[0].Port != "port" {
		t.Errorf("%d choices, %v, the first %+v; want %d with the port's hardware address", len(wants), bad, wants[0], mostChoices)
	}
}

// TestAddressesOf: what a port has beside what was asked for is not the claim's.
func TestAddressesOf(t *testing.T) {
	fixed := func(subnet, addr string) (f neutron.FixedIP) {
		f.Subnet = subnet
		if addr != "" {
			f.Addr = netip.MustParseAddr(addr)
		}
		return f
	}
	port := neutron.Port{Addresses: []neutron.FixedIP{fixed("a", "10.1.0.9"), fixed("b", "10.2.0.9"), fixed("c", "10.3.0.9")}}
	got := addressesOf(port, neutron.Want{Addresses: []neutron.FixedIP{fixed("c", ""), fixed("a", "10.1.0.9"), fixed("b", "10.2.0.10")}})
	if text := fmt.Sprint(got); text != "[10.3.0.9 10.1.0.9]" {
		t.Errorf("the claim has %s", text)
	}
}

// TestClip: a text that is cut stays within bytes, and whole characters.
func TestClip(t *testing.T) {
	for in, want := range map[string]string{"short": "short", "ten bytes.": "ten bytes.", "elevenbytes": "elevenb…", "sechs ähöü": "sechs …"} {
		if got := clip(in, 10); got != want || len(got) > 10 {
			t.Errorf("clip(%q) = %q; want %q", in, got, want)
		}
	}
}
