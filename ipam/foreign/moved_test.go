package foreign

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// implicitly is made as [Among] takes it, an hour old.
func implicitly(t *testing.T, d Definition) *Pool {
	t.Helper()
	p := made(t, d)
	p.Implicit, p.Named, p.Made, p.Edited = true, p.domain(), now.Add(-time.Hour), now.Add(-time.Hour)
	return &p
}

// begins is such a pool that was just made, and is about to be opened.
func begins(t *testing.T, d Definition) *Pool {
	t.Helper()
	p := implicitly(t, d)
	p.Fresh, p.Begins, p.Made = true, true, now
	return p
}

// of is a lease of 10.0.0.0/28 of another pool, which node n1 holds.
func of(p *Pool) protocol.Lease {
	l := lease(protocol.Holder{Node: "n1"})
	l.Pool = p.Name
	return l
}

// TestDefinitionMoves (I1): a definition of Tenure's gets other keys while its pods run, and with
// them another pool of the same addresses. That one is not opened while there are leases of the
// first: the definition's pods have these addresses on the same network.
func TestDefinitionMoves(t *testing.T) {
	const (
		plain = `{"type":"tenure","range":"10.0.0.0/24"}`
		blue  = `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`
		red   = `{"type":"tenure","range":"10.0.0.0/24","network_name":"red"}`
		alone = `{"type":"tenure","range":"10.0.0.0/24","enable_overlapping_ranges":false}`
	)
	for _, tt := range []struct{ name, was, is string }{
		{"it gets a network_name", plain, blue},
		{"it loses its network_name", blue, plain},
		{"another network_name", red, blue},
		{"a pool of its range alone", plain, alone},
		{"host-local's keys", plain, `{"type":"tenure","subnet":"10.0.0.0/24"}`},
	} {
		was, is := definition("net", tt.was), definition("net", tt.is)
		old, p := implicitly(t, was), begins(t, is)
		old.Opens = true
		facts := Facts{
			Definitions: []Definition{is}, Former: []Definition{was},
			Leases: map[protocol.PoolName][]protocol.Lease{old.Name: {of(old)}},
		}
		Among([]*Pool{old, p}, facts.Definitions)
		_, _, f := weighed(*p, facts)
		if f.Stage != StageOthers || len(f.Lingering) != 1 {
			t.Fatalf("%s: stage %d, beside %+v; want that it waits", tt.name, f.Stage, f.Lingering)
		}
		b := f.Lingering[0]
		if b.Pool != string(old.Name) || !b.First || !b.Ends || !strings.Contains(b.Lease, "10.0.0.0/28") {
			t.Errorf("%s: it waits for %+v; want the lease of pool %s", tt.name, b, old.Name)
		}
		p.ShareWith = []string{string(old.Name)}
		if _, _, f := weighed(*p, facts); f.Stage != StageClear {
			t.Errorf("%s, and shares nothing: stage %d, %q", tt.name, f.Stage, f.Why)
		}
		p.ShareWith, facts.Leases = nil, nil
		if _, _, f := weighed(*p, facts); f.Stage != StageClear {
			t.Errorf("%s, and nothing is leased: stage %d, %q", tt.name, f.Stage, f.Why)
		}
	}
}

// TestOneOfTwoDefinitionsMoves (I1): one of two definitions of a pool gets a pool of its own. That
// one is not opened while a pod of this definition has an address by the first pool. Else both
// pools give their addresses side by side: they are two networks.
func TestOneOfTwoDefinitionsMoves(t *testing.T) {
	const blue = `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`
	read := func(name, network, ipam string) Definition {
		return ReadDefinition("ns", name, fmt.Sprintf(`{"name":%q,"type":"macvlan","ipam":%s}`, network, ipam), nil)
	}
	stays := read("stays", "net", `{"type":"tenure","range":"10.0.0.0/24"}`)
	moves, alone := read("moves", "net", blue), read("moves", "alone", blue)
	selects := func(names ...string) Pod {
		p := pod("p", "ns/"+names[0], "")
		for _, name := range names[1:] {
			p.Selected = append(p.Selected, "ns/"+name)
		}
		return p
	}
	shows := func(p Pod, name string) Pod {
		p.Shows = pod("p", "ns/"+name, "10.0.0.5").Shows
		return p
	}
	for _, tt := range []struct {
		name    string
		is      Definition // what moves
		pod     Pod
		network string // on which n1 has given the pod an address
		addr    string
		want    bool
	}{
		{"of its network", alone, selects("moves"), "alone", "10.0.0.5", true},
		{"of its network, without selecting it", alone, selects("else"), "alone", "10.0.0.5", true},
		{"of a network that the other one has, too", moves, selects("moves"), "net", "10.0.0.5", true},
		{"of the other one, whose network it has, too", moves, selects("stays"), "net", "10.0.0.5", false},
		{"of either, without selecting it", moves, selects("else"), "net", "10.0.0.5", false},
		{"of the other one beside it", alone, selects("stays", "moves"), "net", "10.0.0.5", false},
		{"of the network that it had", alone, shows(selects("moves"), "moves"), "net", "10.0.0.5", true},
		{"of the other network", alone, shows(selects("stays", "moves"), "stays"), "net", "10.0.0.5", false},
		{"of its network, by another block", alone, selects("moves"), "alone", "10.0.0.55", false},
	} {
		old, p := implicitly(t, stays), begins(t, tt.is)
		old.Opens = true
		given := sighting(tt.addr, "p", tt.network)
		given.IPAM = Type
		facts := Facts{
			Definitions: []Definition{stays, tt.is}, Pods: []Pod{tt.pod},
			Agents:  map[protocol.NodeName]bool{"n1": true},
			Reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{given}}},
			Leases:  map[protocol.PoolName][]protocol.Lease{old.Name: {of(old)}},
		}
		Among([]*Pool{old, p}, facts.Definitions)
		_, _, f := weighed(*p, facts)
		if len(f.Lingering) > 0 != tt.want || (f.Stage == StageOthers) != tt.want || !f.Asks["n1"] {
			t.Errorf("a pod has an address %s: stage %d, beside %+v, asks %v; want that it waits: %v",
				tt.name, f.Stage, f.Lingering, f.Asks, tt.want)
		}
		// The node may have given it by this pool.
		p.Fresh, facts.Leases[p.Name] = false, []protocol.Lease{of(p)}
		if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 {
			t.Errorf("%s, by the pool's own lease: beside %+v", tt.name, f.Lingering)
		}
	}
}
