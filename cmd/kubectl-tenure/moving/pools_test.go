package moving

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/ipam/foreign"
)

// inTheWay returns what is in the way of the segment that has a definition.
func inTheWay(t *testing.T, seen foreignState, from, definition string) string {
	t.Helper()
	for _, s := range segmentsOf(seen, from, foreign.Type).Segments {
		if slices.Contains(s.Switch, definition) {
			return strings.Join(s.InTheWay, "; ")
		}
	}
	t.Fatalf("no segment has %s to switch", definition)
	return ""
}

// TestTwoPoolsOfOneSegment (I1): a definition that would get another pool than one beside it, which
// gives the same addresses, is not switched. Where the pools' addresses are apart, or a person says
// that the networks are, it is.
func TestTwoPoolsOfOneSegment(t *testing.T) {
	const wb, hl = `{"type":"whereabouts","range":"10.0.0.0/24"}`, `{"type":"host-local","subnet":"10.0.0.0/24"}`
	const byHand = `write its ipam section by hand as {"type": "tenure", "pool": "lan"}`
	set := func(first, last string) *netipx.IPSet {
		var b netipx.IPSetBuilder
		b.AddRange(netipx.IPRangeFrom(netip.MustParseAddr(first), netip.MustParseAddr(last)))
		s, err := b.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	whole, half := set("10.0.0.1", "10.0.0.254"), set("10.0.0.128", "10.0.0.254")
	for _, tt := range []struct {
		name, old, annotation string
		lan                   poolSeen
		want                  []string // empty: nothing is in the way
	}{
		{"whereabouts", wb, "", poolSeen{usable: whole}, []string{"ns/old would get pool range-10-0-0-0-24, and pool lan, which ns/lan has,", byHand, "name pool range-10-0-0-0-24 in spec.shareWith of pool lan"}},
		{"a pool with a domain", wb, "", poolSeen{usable: whole, domain: "vlan10"}, []string{byHand, "name pool range-10-0-0-0-24 in spec.shareWith of pool lan"}},
		{"another segment by its word alone", wb, "tenure.dev/domain=default-domain", poolSeen{usable: whole, domain: "vlan10"}, []string{byHand}},
		{"another segment", wb, "", poolSeen{usable: whole, domain: "vlan10", shareWith: []string{"range-10-0-0-0-24"}}, nil},
		{"another pool that the controller has made", wb, "tenure.dev/domain=default-domain", poolSeen{usable: whole, domain: "lan", implicit: true}, nil},
		{"one domain", wb, "tenure.dev/domain=default-domain", poolSeen{usable: whole}, []string{byHand}},
		{"network_name", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, "", poolSeen{usable: whole}, []string{"would get pool blue", byHand}},
		{"host-local", hl, "", poolSeen{usable: whole}, []string{"would get pool old", byHand, "name pool old in spec.shareWith of pool lan"}},
		{"host-local, another segment", hl, "", poolSeen{usable: whole, shareWith: []string{"old"}}, nil},
		{"the rest of the subnet", `{"type":"host-local","subnet":"10.0.0.0/24","rangeEnd":"10.0.0.127"}`, "", poolSeen{usable: half}, nil},
		{"one address of it", `{"type":"host-local","subnet":"10.0.0.0/24","rangeEnd":"10.0.0.128"}`, "", poolSeen{usable: half}, []string{byHand}},
	} {
		lan := aDefinition("lan", `{"type":"tenure","pool":"lan"}`)
		lan.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")} // as readPools fills them in
		old := aDefinition("old", tt.old)
		old.Domain = strings.TrimPrefix(tt.annotation, "tenure.dev/domain=")
		got := inTheWay(t, foreignState{definitions: []foreign.Definition{lan, old}, pools: map[string]poolSeen{"lan": tt.lan}}, old.IPAM, "ns/old")
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: in the way is %q; want %q in it", tt.name, got, want)
			}
		}
		if len(tt.want) == 0 && got != "" {
			t.Errorf("%s: in the way is %q; want nothing", tt.name, got)
		}
	}
}

// TestTwoPoolsToBeMade (I1): of two definitions that are both to be switched, and would get two
// pools of one range, one goes to the pool of the other.
func TestTwoPoolsToBeMade(t *testing.T) {
	read := func(name, network string) foreign.Definition {
		return foreign.ReadDefinition("ns", name, `{"name":"`+network+`","type":"macvlan","ipam":{"type":"host-local","subnet":"10.0.0.0/24"}}`, nil)
	}
	for _, tt := range []struct{ of, pool, want string }{
		{"a", "", `definition ns/b would get pool b, and pool a, which ns/a has, gives the same addresses: write its ipam section by hand as {"type": "tenure", "pool": "a"}`},
		{"a", "b", `definition ns/a would get pool a, and pool b, which ns/b has, gives the same addresses: write its ipam section by hand as {"type": "tenure", "pool": "b"}`},
		{"b", "", ""}, // both are of one network, and share its pool
	} {
		got := inTheWay(t, foreignState{definitions: []foreign.Definition{read("a", tt.of), read("b", "b")}, pools: map[string]poolSeen{tt.pool: {implicit: true}}}, foreign.TypeHostLocal, "ns/a")
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" || strings.Contains(got, "; definition") {
			t.Errorf("networks %s and b: in the way is %q; want %q alone", tt.of, got, tt.want)
		}
	}
}

// TestSharesWithAnother: a definition of another IPAM that all pools of the segment name in
// spec.shareWith is not in the way, nor one whose ranges cannot be read.
func TestSharesWithAnother(t *testing.T) {
	definitions := []foreign.Definition{
		aDefinition("lan", `{"type":"host-local","subnet":"10.0.0.0/24"}`), aDefinition("static", `{"type":"static","addresses":[{"address":"10.0.0.7/24"}]}`),
		aDefinition("file", `{"type":"whereabouts"}`),
	}
	for _, tt := range []struct {
		with []string
		want []string
	}{
		{[]string{"ns/static", "ns/file"}, nil},
		{[]string{"ns/static"}, []string{"definition ns/file"}},
		{nil, []string{"definition ns/file", "definition ns/static"}},
	} {
		got := inTheWay(t, foreignState{definitions: definitions, pools: map[string]poolSeen{"lan": {shareWith: tt.with}}}, foreign.TypeHostLocal, "ns/lan")
		if strings.Count(got, "definition ns/") != len(tt.want) || slices.ContainsFunc(tt.want, func(w string) bool { return !strings.Contains(got, w) }) {
			t.Errorf("spec.shareWith %q: in the way is %q; want %q", tt.with, got, tt.want)
		}
	}
}
