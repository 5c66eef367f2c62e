package ports

import (
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
)

const (
	macA, macB = "fa:16:3e:00:00:0a", "fa:16:3e:00:00:0b"
	machine    = "0a000000-0000-0000-0000-000000000001"
)

var (
	pairA = neutron.Pair{Addr: "10.9.0.5", MAC: macA}
	pairB = neutron.Pair{Addr: "10.9.0.6", MAC: macB}
)

// nodesPort is the port of the machine.
func nodesPort(pairs ...neutron.Pair) []neutron.ServerPort {
	return []neutron.ServerPort{{ID: "vm", Server: machine, Pairs: pairs}}
}

// TestPairsAreOfThePort: a node's port allows what the claim's port has in Neutron. What the claim's
// annotation tells counts for nothing.
func TestPairsAreOfThePort(t *testing.T) {
	for _, told := range []string{`{"id":"a","mac":"` + macB + `","network":"net"}`, `{"id":"a","mac":"nonsense","network":"net"}`, `{`, ""} {
		c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA)}, servers: nodesPort()}
		p, kc := newPorts(t, c, pairsPool(), virtual("vm", machine), claimOf("ua", "10.9.0.5/24", told), useOf("ua", "vm"))
		if _, bad, err := p.allow(t.Context(), c, pairsPool()); err != nil || !bad.None() {
			t.Fatal(bad, err)
		}
		if got := c.pairs(); !slices.Equal(got, []neutron.Pair{pairA}) {
			t.Errorf("told %s: the node's port allows %v; want %v", told, got, pairA)
		}
		if err := kc.Delete(t.Context(), useOf("ua", "vm")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.allow(t.Context(), c, pairsPool()); err != nil {
			t.Fatal(err)
		}
		if got := c.pairs(); len(got) > 0 {
			t.Errorf("told %s: the node's port allows %v still", told, got)
		}
	}
}
