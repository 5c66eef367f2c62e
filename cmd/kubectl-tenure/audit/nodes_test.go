package audit

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var lookedAt = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// goneNode is a cluster in which a node that is gone uses a claim, and holds a block.
func goneNode(quiet time.Duration) State {
	grant := protocol.Grant{Addr: netip.MustParseAddr("10.0.1.5"), To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c"}}
	return State{
		Now:   lookedAt,
		Pools: []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}, {Pool: protocol.Pool{Meta: protocol.Meta{Name: "q", UID: "q"}}}},
		Leases: []protocol.Lease{
			{Meta: protocol.Meta{Name: "l"}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Node: "n"}, Store: "s"},
			{Meta: protocol.Meta{Name: "m"}, Pool: "q", PoolUID: "q", Block: netip.MustParsePrefix("10.0.1.0/28"), Holder: protocol.Holder{Cluster: true}, Grants: []protocol.Grant{grant}},
		},
		SubLeases:     []protocol.SubLease{{Meta: protocol.Meta{Name: "u", UID: "u"}, Node: "n", Store: "s", Use: &protocol.Use{Claim: protocol.ClaimRef{UID: "c"}}}},
		Registrations: map[protocol.NodeName]protocol.Registration{"n": {Node: "n", Store: "s", Term: 1, Fence: 16 * time.Minute, Beat: lookedAt.Add(-quiet)}},
	}
}

// A node that was removed as it should be is no fault before the controller had its
// time; one that goes on to beat is.
func TestGoneNode(t *testing.T) {
	for _, tt := range []struct {
		name           string
		quiet, between time.Duration // the last heartbeat of the second look is by between later than the first's
		confirmed      bool
		wrong          bool
		says           string
	}{
		{"removed a moment ago", 10 * time.Second, 0, false, false, "If heartbeats go on"},
		{"removed", 7 * time.Minute, 0, false, false, "takes them over at about"},
		{"removed, and its pool asks", 7 * time.Minute, 0, true, false, "release-node"},
		{"it beats", 10 * time.Second, 4 * time.Minute, false, true, "still beats"},
		{"past its fence", time.Hour, 0, false, true, "tenure-controller"},
		{"past its fence, and the pool of a claim asks", time.Hour, 0, true, true, "of which 1 are of pools with takeOver: Confirmed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first, second := goneNode(tt.quiet+tt.between), goneNode(tt.quiet)
			first.Pools[1].Confirmed, second.Pools[1].Confirmed = tt.confirmed, tt.confirmed
			found := Lasting(Look(first), Look(second), time.Second)
			if len(found) != 1 || found[0].Rule != NodeGone || found[0].Wrong != tt.wrong || !strings.Contains(found[0].What+found[0].Remedy, tt.says) {
				t.Errorf("found %+v; want one NodeGone, wrong %v, that says %q", found, tt.wrong, tt.says)
			}
		})
	}
}

// Two looks that find an address with other owners each have found two lists that were
// read one after the other, not one fault that lasts.
func TestLastingTellsOwnersApart(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.5")
	base := func() State {
		return State{
			Now:           lookedAt,
			Pools:         []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
			Leases:        []protocol.Lease{{Meta: protocol.Meta{Name: "l"}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Node: "n"}, Store: "s"}},
			Nodes:         map[protocol.NodeName]protocol.Node{"n": {UID: "n"}},
			Registrations: map[protocol.NodeName]protocol.Registration{"n": {Store: "s"}},
		}
	}
	pods := func(uids ...protocol.UID) State {
		s := base()
		for _, uid := range uids {
			s.Pods = append(s.Pods, Pod{PodRef: protocol.PodRef{Namespace: "ns", Name: string(uid), UID: uid}, Node: "n", Attachments: []Attachment{{Interface: "net1", Pools: []protocol.PoolName{"p"}, Addrs: []netip.Addr{addr}}}})
		}
		return s
	}
	granted := func(uid protocol.UID) State {
		s := base()
		s.Leases[0].Grants = []protocol.Grant{{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: uid}}}
		return s
	}
	published := func(text string) State {
		s := base()
		s.Leases[0].Published.Allocations = []string{text}
		return s
	}
	for _, tt := range []struct {
		name        string
		first, then State
	}{
		{"two owners", pods("a", "b"), pods("b", "c")},
		{"a grant", granted("a"), granted("b")},
		{"an allocation", published("10.0.0.5 ns/a net1"), published("10.0.0.5 ns/b net1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if found := Lasting(Look(tt.then), Look(tt.then), time.Hour); len(found) != 1 || !found[0].Wrong {
				t.Errorf("what stays is %+v; want one that is wrong", found)
			}
			if found := Lasting(Look(tt.first), Look(tt.then), time.Hour); len(found) > 0 {
				t.Errorf("what changes hands is %+v", found)
			}
		})
	}
}

// What pods of a node say that is silent, not Ready or gone may be old: their addresses
// may have been taken over.
func TestOldWordsAreNotes(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.5")
	for name, change := range map[string]func(*State){
		"NotReady": func(s *State) { s.NotReady = map[protocol.NodeName]bool{"dead": true} },
		"silent": func(s *State) {
			s.Registrations["dead"] = protocol.Registration{Store: "d", Fence: time.Minute, Beat: lookedAt.Add(-time.Hour)}
		},
		"ended": func(s *State) { s.Registrations["dead"] = protocol.Registration{} },
		"gone":  func(s *State) { delete(s.Nodes, "dead") },
	} {
		t.Run(name, func(t *testing.T) {
			s := State{
				Now:           lookedAt,
				Pools:         []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
				Leases:        []protocol.Lease{{Meta: protocol.Meta{Name: "l"}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Node: "n"}, Store: "s"}},
				Nodes:         map[protocol.NodeName]protocol.Node{"n": {UID: "n"}, "dead": {UID: "dead"}},
				Registrations: map[protocol.NodeName]protocol.Registration{"n": {Store: "s"}, "dead": {Store: "d"}},
			}
			for _, node := range []protocol.NodeName{"n", "dead"} {
				s.Pods = append(s.Pods, Pod{PodRef: protocol.PodRef{Namespace: "ns", Name: string(node), UID: protocol.UID(node)}, Node: node, Attachments: []Attachment{{Interface: "net1", Pools: []protocol.PoolName{"p"}, Addrs: []netip.Addr{addr}}}})
			}
			if found := Look(s); len(found) != 2 || !found[0].Wrong || !found[1].Wrong {
				t.Fatalf("of nodes that live: %+v; want TwoOwners and PodNotBacked, wrong", found)
			}
			change(&s)
			found := Look(s)
			if len(found) != 2 || found[0].Wrong || found[1].Wrong {
				t.Errorf("found %+v; want TwoOwners and PodNotBacked as notes", found)
			}
		})
	}
}

func TestUnreadableIsAFinding(t *testing.T) {
	found := Look(State{Unreadable: []Unreadable{{"registration n", "turn"}}})
	if len(found) != 1 || found[0].Rule != NotUnderstood || !found[0].Wrong {
		t.Errorf("found %+v", found)
	}
}

// Nodes on which no agent has come up are worth a word, one for all of them.
func TestNodesWithoutAgents(t *testing.T) {
	s := State{
		Now: lookedAt, Nodes: map[protocol.NodeName]protocol.Node{}, NotReady: map[protocol.NodeName]bool{"off": true},
		Registrations: map[protocol.NodeName]protocol.Registration{"registered": {Node: "registered", Store: "s", Term: 1, Fence: time.Hour, Beat: lookedAt}},
		Pools:         []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
		Leases: []protocol.Lease{
			{Meta: protocol.Meta{Name: "l"}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Node: "holds"}, Store: "s"},
		},
	}
	node := func(name protocol.NodeName) { s.Nodes[name] = protocol.Node{UID: protocol.UID(name)} }
	for _, name := range []protocol.NodeName{"off", "registered", "holds"} {
		node(name)
	}
	noAgent := func() []Finding {
		return slices.DeleteFunc(Lasting(Look(s), Look(s), time.Hour), func(f Finding) bool { return f.Rule != NoAgent })
	}
	if found := noAgent(); len(found) > 0 {
		t.Errorf("found %+v; want nothing", found)
	}
	for _, name := range []protocol.NodeName{"g", "a", "b", "f", "c", "e", "d"} {
		node(name)
	}
	if found := noAgent(); len(found) != 1 || found[0].Wrong || !strings.HasPrefix(found[0].What, "7: a, b, c, d, e and 2 more.") {
		t.Errorf("found %+v; want one note of seven nodes", found)
	}
}

// TestPodsWithoutTheirNetworks: where a node has an agent, once that had time to say what it did.
func TestPodsWithoutTheirNetworks(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*Pod)
		want   bool
	}{
		"it lacks a network":          {func(*Pod) {}, true},
		"it has them":                 {func(p *Pod) { p.Lacks = nil }, false},
		"a moment ago":                {func(p *Pod) { p.Since = lookedAt.Add(-SaysWithin / 2) }, false},
		"it is being deleted":         {func(p *Pod) { p.Leaving = true }, false},
		"its node never had an agent": {func(p *Pod) { p.Node = "other" }, false},
	} {
		p := Pod{PodRef: protocol.PodRef{Namespace: "shop", Name: "web", UID: "u"}, Node: "n", Lacks: []string{"shop/lan"}, Since: lookedAt.Add(-time.Minute)}
		tt.change(&p)
		found := Look(State{
			Now: lookedAt, Pods: []Pod{p}, Nodes: map[protocol.NodeName]protocol.Node{"n": {UID: "n"}},
			Registrations: map[protocol.NodeName]protocol.Registration{"n": {Node: "n", Beat: lookedAt, Fence: time.Hour}},
		})
		got := len(found) == 1 && found[0].Rule == NotAttached && found[0].Wrong && strings.Contains(found[0].What, "shop/lan")
		if got != tt.want || !tt.want && len(found) > 0 {
			t.Errorf("%s: found %+v; want it found %t", what, found, tt.want)
		}
	}
}

// TestDevices: an address of a ResourceClaim's device has leaked when its pod is gone and the
// device is not allocated to the ResourceClaim any more. Of an earlier store's lease it is frozen.
func TestDevices(t *testing.T) {
	const text = "10.0.0.5 ns/p eth1 resourceclaim/nic"
	device := Device{"ns", "nic", "eth1"}
	for _, tt := range []struct {
		name  string
		store protocol.StoreID
		pods  []Pod
		letGo bool
		want  Rule
		says  string
	}{
		{"the pod is there", "s", []Pod{{PodRef: protocol.PodRef{Namespace: "ns", Name: "p", UID: "p"}}}, false, "", ""},
		{"it has the device", "s", nil, false, "", ""},
		{"it has let go", "s", nil, true, AllocationLeaked, "device eth1 of ResourceClaim ns/nic"},
		{"of an earlier store", "earlier", nil, true, StoreFrozen, "device eth1 of ResourceClaim ns/nic (10.0.0.5)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := State{
				Now:   lookedAt,
				Pools: []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
				Leases: []protocol.Lease{{
					Meta: protocol.Meta{Name: "l"}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Node: "n"}, Store: tt.store,
					Published: protocol.Publication{Allocations: []string{text}},
				}},
				Pods:          tt.pods,
				Nodes:         map[protocol.NodeName]protocol.Node{"n": {UID: "n"}},
				Registrations: map[protocol.NodeName]protocol.Registration{"n": {Store: "s", Former: []protocol.Former{{Store: "earlier"}}}},
			}
			if alone := s.Alone(); len(tt.pods) == 0 != slices.Equal(alone, []Device{device}) {
				t.Errorf("to be read are %v", alone)
			}
			s.LetGo = map[Device]bool{device: tt.letGo}
			found := Look(s)
			switch {
			case tt.want == "" && len(found) > 0:
				t.Errorf("found %+v; want nothing", found)
			case tt.want != "" && (len(found) != 1 || found[0].Rule != tt.want || !strings.Contains(found[0].What, tt.says)):
				t.Errorf("found %+v; want one %s that says %q", found, tt.want, tt.says)
			}
		})
	}
}
