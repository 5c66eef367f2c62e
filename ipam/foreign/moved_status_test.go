package foreign

import (
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestWhoseDefinitionMoved (I1): a pod of team has an address by pool lan1. Whether it has it by a
// definition that is of the new pool lan2 by now its status tells, and not what other namespaces
// call their networks, or which of two namespaces may use lan2.
func TestWhoseDefinitionMoved(t *testing.T) {
	read := func(namespace, name, pool string) Definition {
		return ReadDefinition(namespace, name, `{"type":"macvlan","ipam":{"type":"tenure","pool":"`+pool+`"}}`, nil)
	}
	stays := read("infra", "stays", "lan1")
	team := func(namespace string) bool { return namespace == "team" }
	for _, tt := range []struct {
		name           string
		moved, beside  Definition // of lan2, and another one
		selects, shows string
		may            func(string) bool
		lease          *protocol.Lease // what lan2 has of the block
		want           bool
	}{
		{name: "of a shared definition", moved: read("infra", "lan", "lan2"), selects: "infra/lan", shows: "infra/lan", want: true},
		{name: "of one whose namespace may not use the pool", moved: read("infra", "lan", "lan2"), selects: "infra/lan", shows: "infra/lan", may: team, want: true},
		{name: "beside one of its namespace that has the name", moved: read("infra", "lan", "lan2"), beside: ReadDefinition("team", "lan", `{"type":"macvlan","ipam":{"type":"dhcp"}}`, nil), selects: "infra/lan", shows: "infra/lan", want: true},
		{name: "and the pool has a lease elsewhere", moved: read("infra", "lan", "lan2"), selects: "infra/lan", shows: "infra/lan", lease: &protocol.Lease{Holder: protocol.Holder{Node: "n2"}}, want: true},
		{name: "and the cluster has a lease of the pool", moved: read("infra", "lan", "lan2"), selects: "infra/lan", shows: "infra/lan", lease: &protocol.Lease{Holder: protocol.Holder{Cluster: true}}, want: true},
		{name: "and the node has ceded it", moved: read("infra", "lan", "lan2"), selects: "infra/lan", shows: "infra/lan", lease: &protocol.Lease{Holder: protocol.Holder{Node: "n1"}, Ceded: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}, want: true},
		{name: "and the node may have given it by the pool", moved: read("infra", "lan", "lan2"), selects: "infra/lan", shows: "infra/lan", lease: &protocol.Lease{Holder: protocol.Holder{Node: "n1"}}},
		{name: "of one that stays", moved: read("team", "lan", "lan2"), beside: read("infra", "lan", "lan1"), selects: "infra/lan", shows: "infra/lan"},
		{name: "and selects one of another namespace that has the name", moved: read("victim", "lan", "lan2"), beside: read("infra", "lan", "lan1"), selects: "victim/lan"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old, p := implicitly(t, stays), begins(t, tt.moved)
			old.Implicit, p.Implicit = false, false
			old.Domain, old.Named, old.Unnamed, p.Domain, p.Named, p.Unnamed = "", "", true, "wire2", "wire2", false
			facts := movedFacts(old, p, stays, tt.moved, "x", "lan")
			if tt.beside.Name != "" {
				facts.Definitions = append(facts.Definitions, tt.beside)
			}
			Among([]*Pool{old, p}, facts.Definitions)
			p.MayUse = tt.may
			if tt.lease != nil {
				l := of(p)
				l.Holder, l.Ceded = tt.lease.Holder, tt.lease.Ceded
				p.Fresh, facts.Leases[p.Name] = false, []protocol.Lease{l}
			}
			x := &facts.Pods[0]
			x.Namespace, x.Selected, x.Shows = "team", []string{tt.selects}, nil
			if tt.shows != "" {
				x.Shows = pod("p", tt.shows, "10.0.0.5").Shows
			}
			facts.Reports["n1"].Has[0].Pod.Namespace = "team"
			if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 != tt.want {
				t.Errorf("stage %d, beside %+v; want that it waits: %v", f.Stage, f.Lingering, tt.want)
			}
		})
	}
}
