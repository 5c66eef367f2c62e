package foreign

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// onTwo is pod p of n1, which has 10.0.0.5 on two networks: on that of lan, and on that of pool
// lan-a, which has the same addresses on another VLAN.
func onTwo() Pod {
	p := pod("p", "ns/net", "10.0.0.5")
	p.Selected = append(p.Selected, "ns/a")
	p.Shows = append(p.Shows, npwg.Shown{Definition: "ns/a", Interface: "net2", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}})
	return p
}

// twoVLANs is what a look knows of lan, of domain b, and of lan-a, of domain a.
func twoVLANs(t *testing.T, p *Pool, f Facts) Facts {
	t.Helper()
	p.Domain = "b"
	f.Definitions = []Definition{switched, definition("a", `{"type":"tenure","pool":"lan-a"}`)}
	Among([]*Pool{p, another(t, "lan-a", "a", false)}, f.Definitions)
	f.Agents = map[protocol.NodeName]bool{"n1": true}
	return f
}

// TestGivenOnAnotherNetwork (I1): what Tenure gives a pod on one VLAN says nothing of what another
// IPAM gave it on another one, where both have the same addresses. Nor does it of a pool that was
// never open. A network that no definition has may be the pool's, if the node holds the address.
func TestGivenOnAnotherNetwork(t *testing.T) {
	for _, tt := range []struct {
		name               string
		network            string // on which n1 says that Tenure gave it, and of which pool; "" is none
		fresh, held        bool
		byStatus, byOthers bool // whether it is kept: what the status shows, or what n1 has seen of another IPAM
	}{
		{"on none", "", false, false, true, true},
		{"of another VLAN, before lan was ever open", "a", true, false, true, true},
		{"of another VLAN", "a", false, false, true, true},
		{"of another VLAN, and the node holds the address of lan, too", "a", false, true, true, true},
		{"of lan", "net", false, false, false, false},
		{"of lan, and the node holds the address", "net", false, true, false, false},
		{"of lan's network, before lan was ever open", "net", true, false, false, true},
		{"of another pool, as the node says", "net lan-a", false, true, true, true},
		{"of lan, as the node says, on a network that no definition has", "was lan", false, false, false, false},
		{"of a network that no definition has", "was", false, false, true, true},
		{"of a network that no definition has, and the node holds the address", "was", false, true, false, false},
	} {
		for _, others := range []bool{false, true} {
			pool := openings(lan(t))
			pool.Fresh = tt.fresh
			report := protocol.Report{Running: []protocol.UID{"p"}}
			if tt.network != "" {
				network, pool, _ := strings.Cut(tt.network, " ")
				ours := sighting("10.0.0.5", "p", network)
				ours.IPAM, ours.Pool = Type, protocol.PoolName(pool)
				report.Has = append(report.Has, ours)
			}
			want := tt.byStatus
			if others {
				report.Has, want = append(report.Has, sighting("10.0.0.5", "p", "net")), tt.byOthers
			}
			facts := twoVLANs(t, &pool, Facts{Pods: []Pod{onTwo()}, Reports: map[protocol.NodeName]protocol.Report{"n1": report}})
			if tt.held {
				facts.Leases = map[protocol.PoolName][]protocol.Lease{"lan": {lease(protocol.Holder{Node: "n1"})}}
			}
			if keep, _, _ := weighed(pool, facts); slices.Equal(keep, []string{"10.0.0.5 p"}) != want || len(keep) > 1 {
				t.Errorf("%s, seen of another IPAM %v: kept is %q; want it kept: %v", tt.name, others, keep, want)
			}
		}
	}
}

// TestPendingOnAnotherNetwork: a pod is waited for although its node has seen the address that its
// status shows, if it has seen it on another VLAN alone. The status may be somebody's text.
func TestPendingOnAnotherNetwork(t *testing.T) {
	for _, tt := range []struct {
		network, ipam string
		want          Stage
	}{
		{"net", TypeHostLocal, StageClear},
		{"net", Type, StageClear},
		{"a", TypeHostLocal, StagePods},
		{"a", Type, StagePods},
	} {
		pool := openings(lan(t))
		seen := sighting("10.0.0.5", "p", tt.network)
		seen.IPAM = tt.ipam
		facts := twoVLANs(t, &pool, Facts{Pods: []Pod{onTwo()}, Reports: seenBy("n1", seen)})
		was := readNetwork("evil", "x", "a", `{"type":"host-local","subnet":"10.0.0.0/24"}`)
		was.Changed = now.Add(-time.Minute)
		for _, former := range [][]Definition{nil, {was}} { // one that is gone, and that the pod does not select
			facts.Former = former
			if _, _, found := weighed(pool, facts); found.Stage != tt.want {
				t.Errorf("seen on %s, by %s, beside %v: stage %d, %q; want %d", tt.network, tt.ipam, former, found.Stage, found.Why, tt.want)
			}
		}
	}
}

// TestExplainedOnItsNetwork (I1): what a node has seen of a pod on a network, beyond what its
// definition gives, may be of the pool, although a definition of another VLAN that the pod selects
// has the address too.
func TestExplainedOnItsNetwork(t *testing.T) {
	for network, want := range map[string]string{"other": "[10.0.0.5 p]", "a": "[]"} {
		pool := openings(lan(t))
		p := pod("p", "ns/other", "")
		p.Selected = append(p.Selected, "ns/a")
		facts := twoVLANs(t, &pool, Facts{Pods: []Pod{p}, Reports: seenBy("n1", sighting("10.0.0.5", "p", network))})
		facts.Definitions = append(facts.Definitions, definition("other", `{"type":"host-local","subnet":"10.9.0.0/24"}`))
		if keep, _, _ := weighed(pool, facts); fmt.Sprint(keep) != want {
			t.Errorf("seen on network %s: kept is %q; want %s", network, keep, want)
		}
	}
}

// TestGivenBesideOnAnotherNetwork (I1): two pools that the controller has made are open, and may be
// of one segment. What the second has given a pod on its own network says nothing of the same
// number that another IPAM gave the pod on lan's network, and a record of a pod of both may be of
// either. Nor does it if a definition of another namespace gives lan's addresses to a network of
// that name.
func TestGivenBesideOnAnotherNetwork(t *testing.T) {
	namesake := readNetwork("other", "x", "net2", `{"type":"tenure","pool":"lan"}`)
	for _, by := range []string{"node", "status", "record"} {
		for _, on2 := range []string{"10.0.0.5", "10.0.0.6"} {
			pool, second := openings(lan(t)), another(t, "second", "second", true)
			pool.Fresh, pool.Implicit, pool.Domain = true, true, "lan"
			p := pod("p", "ns/net", "10.0.0.5")
			p.Selected = append(p.Selected, "ns/net2")
			ours := sighting(on2, "p", "net2")
			ours.IPAM = Type
			report := protocol.Report{Running: []protocol.UID{"p"}, Has: []protocol.Sighting{ours}}
			facts := Facts{Definitions: []Definition{switched, definition("net2", `{"type":"tenure","pool":"second"}`)}, Agents: map[protocol.NodeName]bool{"n1": true}}
			switch by {
			case "node":
				report.Has = append(report.Has, sighting("10.0.0.5", "p", "net"))
			case "record":
				p.Shows = nil
				facts.Records = []Record{{Addr: netip.MustParseAddr("10.0.0.5"), Object: "10.0.0.0-24", PodNamespace: "ns", PodName: "p"}}
			}
			p.Shows = append(p.Shows, npwg.Shown{Definition: "ns/net2", Interface: "net2", Addrs: []netip.Addr{netip.MustParseAddr(on2)}})
			facts.Pods, facts.Reports = []Pod{p}, map[protocol.NodeName]protocol.Report{"n1": report}
			for _, more := range [][]Definition{nil, {namesake}} {
				facts.Definitions = append(facts.Definitions, more...)
				Among([]*Pool{&pool, second}, facts.Definitions)
				if keep, conflicts, _ := weighed(pool, facts); !slices.Equal(keep, []string{"10.0.0.5 p"}) || len(conflicts) > 0 {
					t.Errorf("by %s, Tenure has given %s on net2, beside %v: kept is %q, conflicts %q; want 10.0.0.5", by, on2, more, keep, conflicts)
				}
			}
		}
	}
}

// TestGivenByAPoolOfTheSegment: what pods have by other pools, which may be of lan's segment, is
// Tenure's as well: it is not kept as another IPAM's.
func TestGivenByAPoolOfTheSegment(t *testing.T) {
	for _, ipam := range []string{`{"type":"tenure","subnet":"10.0.0.0/24"}`, `{"type":"tenure","pools":{"byNamespace":"tenure.dev/pool"}}`} {
		pool := openings(lan(t))
		pool.Fresh, pool.Begins, pool.Implicit, pool.Domain = true, true, true, "lan"
		pools := []*Pool{&pool}
		facts := Facts{
			Definitions: []Definition{readNetwork("ns", "lan", "lan", `{"type":"tenure","subnet":"10.0.0.0/24"}`)},
			Agents:      map[protocol.NodeName]bool{"n1": true, "n2": true}, Reports: map[protocol.NodeName]protocol.Report{},
		}
		for i, name := range []string{"b", "c"} {
			p, node := pod("pod-"+name, "ns/"+name, "10.0.0.5"), protocol.NodeName(fmt.Sprint("n", i+1))
			p.Node = node
			s := sighting("10.0.0.5", p.UID, name)
			s.IPAM, s.Pool = Type, protocol.PoolName(name)
			facts.Definitions, facts.Pods = append(facts.Definitions, readNetwork("ns", name, name, ipam)), append(facts.Pods, p)
			facts.Reports[node] = protocol.Report{Running: []protocol.UID{p.UID}, Has: []protocol.Sighting{s}}
			pools = append(pools, another(t, name, name, true))
		}
		Among(pools, facts.Definitions)
		if keep, conflicts, _ := weighed(pool, facts); len(keep)+len(conflicts) > 0 {
			t.Errorf("by %s: it keeps %q, conflicts %q; want nothing", ipam, keep, conflicts)
		}
	}
}
