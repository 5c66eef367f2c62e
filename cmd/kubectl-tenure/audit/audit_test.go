package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Only what two looks find is reported; and what comes back by itself is wrong only
// once it should have.
func TestLasting(t *testing.T) {
	leak := Finding{Rule: GrantLeaked, Object: "iplease a", Address: "10.0.0.1", Remedy: "look"}
	elsewhere := Finding{Rule: GrantLeaked, Object: "iplease a", Address: "10.0.0.2"}
	broken := Finding{Rule: TwoOwners, Object: "ippool p", Wrong: true}
	outside := Finding{Rule: AddressOutside, Object: "iplease b"}
	now := []Finding{leak, broken, outside}
	for _, tt := range []struct {
		name   string
		before []Finding
		apart  time.Duration
		want   map[Rule]bool // whether it is wrong
	}{
		{"seen for the first time", []Finding{elsewhere}, time.Hour, map[Rule]bool{}},
		{"a moment apart", now, time.Second, map[Rule]bool{GrantLeaked: false, TwoOwners: true, AddressOutside: false}},
		{"its time apart", now, time.Minute, map[Rule]bool{GrantLeaked: true, TwoOwners: true, AddressOutside: false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[Rule]bool{}
			for _, f := range Lasting(tt.before, now, tt.apart) {
				got[f.Rule] = f.Wrong
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %v; want %v", got, tt.want)
			}
			for rule, wrong := range tt.want {
				if got[rule] != wrong {
					t.Errorf("%s is wrong: %v; want %v", rule, got[rule], wrong)
				}
			}
		})
	}
}

// In a live migration two pods on two nodes have one claim's address, and are one owner
// (N88): neither is a stranger while its node has registered its use.
func TestMigrationIsOneOwner(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.5")
	claim := protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c", Namespace: "ns", Name: "vm"}
	s := State{
		Pools:         []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
		Leases:        []protocol.Lease{{Meta: protocol.Meta{Name: "l"}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Cluster: true}, Grants: []protocol.Grant{{Addr: addr, To: claim}}}},
		Claims:        []Claim{{Claim: protocol.Claim{Meta: protocol.Meta{Name: "vm", UID: "c"}, Namespace: "ns", IPs: []netip.Prefix{netip.PrefixFrom(addr, 24)}}, Pools: []protocol.PoolName{"p"}}},
		Nodes:         map[protocol.NodeName]protocol.Node{"a": {UID: "a"}, "b": {UID: "b"}},
		Registrations: map[protocol.NodeName]protocol.Registration{"a": {Store: "sa"}, "b": {Store: "sb"}},
	}
	for i, node := range []protocol.NodeName{"a", "b"} {
		pod := protocol.PodRef{Namespace: "ns", Name: "vm-" + string(node), UID: protocol.UID("pod-" + node)}
		s.Pods = append(s.Pods, Pod{PodRef: pod, Node: node, Attachments: []Attachment{{Interface: "net1", Pools: []protocol.PoolName{"p"}, Addrs: []netip.Addr{addr}}}})
		s.SubLeases = append(s.SubLeases, protocol.SubLease{
			Meta: protocol.Meta{Name: protocol.UseName("c", i), UID: protocol.UID("u-" + node)}, Node: node, Store: protocol.StoreID("s" + node),
			Use: &protocol.Use{Claim: protocol.ClaimRef{Namespace: "ns", Name: "vm", UID: "c"}, Pod: pod, Interface: "net1"},
		})
	}
	if found := Look(s); len(found) > 0 {
		t.Errorf("a migration is found to be %+v", found)
	}
	s.SubLeases = s.SubLeases[:1]
	if found := Look(s); len(found) != 1 || found[0].Rule != TwoOwners {
		t.Errorf("without the second use: %+v; want TwoOwners", found)
	}
}

// A static pod's sub-lease names the UID that the kubelet knows, its mirror another.
func TestStaticPodIsItsMirror(t *testing.T) {
	s := State{
		Pools: []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
		Pods:  []Pod{{PodRef: protocol.PodRef{Namespace: "ns", Name: "static-a", UID: "mirror"}, MirrorOf: "hash", Node: "a"}},
		Nodes: map[protocol.NodeName]protocol.Node{"a": {UID: "a"}}, Registrations: map[protocol.NodeName]protocol.Registration{"a": {Store: "s"}},
		SubLeases: []protocol.SubLease{{
			Meta: protocol.Meta{Name: "r", UID: "r"}, Node: "a", Store: "s", Request: &protocol.Request{Pod: protocol.PodRef{Namespace: "ns", Name: "static-a", UID: "hash"}, Interface: "net1"},
		}},
	}
	if found := Look(s); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	s.Pods[0].MirrorOf = ""
	if found := Look(s); len(found) != 1 || found[0].Rule != SubLeaseLeaked {
		t.Errorf("of a pod that is no mirror: %+v; want SubLeaseLeaked", found)
	}
}

// TestLeasesOfUnequalSize: one that covers several finds each of them.
func TestLeasesOfUnequalSize(t *testing.T) {
	lease := func(name, block string) protocol.Lease {
		return protocol.Lease{Meta: protocol.Meta{Name: name}, Pool: "p", Block: netip.MustParsePrefix(block), Holder: protocol.Holder{Cluster: true}}
	}
	var got []string
	for _, f := range Look(State{Leases: []protocol.Lease{
		lease("small", "10.0.0.4/30"), lease("far", "10.0.0.12/30"), lease("large", "10.0.0.0/28"), lease("apart", "10.0.0.16/30"),
	}}) {
		if f.Rule == TwoLeases {
			got = append(got, f.Object)
		}
	}
	if want := "[iplease far iplease small]"; fmt.Sprint(got) != want {
		t.Errorf("got %v; want %s", got, want)
	}
}

// TestAddressOfALargerLease: the lease that has an address is found where smaller ones
// that do not have it lie between.
func TestAddressOfALargerLease(t *testing.T) {
	lease := func(name, block string, node protocol.NodeName) protocol.Lease {
		return protocol.Lease{
			Meta: protocol.Meta{Name: name}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix(block), Holder: protocol.Holder{Node: node}, Store: protocol.StoreID("s" + node),
		}
	}
	s := State{
		Pools: []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
		Leases: []protocol.Lease{
			lease("large", "10.0.0.0/28", "b"), lease("small", "10.0.0.4/30", "a"), lease("same", "10.0.0.0/30", "a"), lease("far", "10.0.0.12/30", "a"),
			lease("six", "fd00::/112", "b"), lease("small-six", "fd00::4/126", "a"),
		},
		Nodes: map[protocol.NodeName]protocol.Node{"a": {UID: "a"}, "b": {UID: "b"}}, Registrations: map[protocol.NodeName]protocol.Registration{"a": {Store: "sa"}, "b": {Store: "sb"}},
	}
	pod := func(name string, node protocol.NodeName, addrs ...string) {
		at := Attachment{Interface: "net1", Pools: []protocol.PoolName{"p"}}
		for _, a := range addrs {
			at.Addrs = append(at.Addrs, netip.MustParseAddr(a))
		}
		s.Pods = append(s.Pods, Pod{PodRef: protocol.PodRef{Namespace: "ns", Name: name, UID: protocol.UID(name)}, Node: node, Attachments: []Attachment{at}})
	}
	pod("large", "b", "10.0.0.1", "10.0.0.5", "10.0.0.9", "10.0.0.15", "fd00::9") // of one lease or of two
	pod("small", "a", "10.0.0.2", "10.0.0.7")
	rules := func() string {
		var got []string
		for _, f := range Look(s) {
			if f.Rule != TwoLeases {
				got = append(got, fmt.Sprint(f.Rule, " ", f.Address))
			}
		}
		return fmt.Sprint(got)
	}
	if got := rules(); got != "[]" {
		t.Errorf("found %s; want nothing but that the leases share addresses", got)
	}
	pod("another", "a", "10.0.0.9")
	if got := rules(); got != "[PodNotBacked 10.0.0.9 TwoOwners 10.0.0.9]" {
		t.Errorf("found %s; want an address that another has, and that is not node a's", got)
	}
}

// TestPoolsOverlap: a pool whose condition says that it shares addresses is wrong.
func TestPoolsOverlap(t *testing.T) {
	s := State{Pools: []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan"}}, Overlaps: "it shares addresses with beside"}, {Pool: protocol.Pool{Meta: protocol.Meta{Name: "apart"}}}}}
	if found := Look(s); len(found) != 1 || found[0].Rule != PoolsOverlap || found[0].Object != "ippool lan" || !found[0].Wrong {
		t.Errorf("found %+v; want PoolsOverlap of lan", found)
	}
}

// TestNotes: what is worth knowing, and is not wrong, however long it lasts.
func TestNotes(t *testing.T) {
	lan, other := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan"}}}, Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "other"}}}
	rail := lan
	lan.Strangers, rail.PinsTaken = "given to no pod: 10.0.0.9", "subnet 10.0.1.0/26 is pinned to node a, and node b has leased it"
	for rule, tt := range map[Rule]struct {
		s            State
		object, what string
	}{
		StrangerFound:    {State{Pools: []Pool{lan, other}}, "ippool lan", lan.Strangers},
		PinsTaken:        {State{Pools: []Pool{rail, other}}, "ippool lan", rail.PinsTaken},
		DefinitionFaulty: {State{Faulty: []Unreadable{{"network-attachment-definition ns/lan", "pool gone does not exist"}}}, "network-attachment-definition ns/lan", "pool gone does not exist"},
		NamesAbsent:      {State{Nameless: []Unreadable{{"service shop/db", "it has a cluster IP"}}}, "service shop/db", "it has a cluster IP"},
	} {
		found := Lasting(Look(tt.s), Look(tt.s), time.Hour)
		if len(found) != 1 || found[0].Rule != rule || found[0].Wrong || found[0].Object != tt.object || found[0].What != tt.what {
			t.Errorf("found %+v; want a NOTE %s of %s", found, rule, tt.object)
		}
	}
}

// TestSameOnEveryNode: an address that host-local may have given on two nodes is no proof that
// anything is wrong. One that Tenure has given to a second pod is.
func TestSameOnEveryNode(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.5")
	pod := func(node protocol.NodeName, hostLocal bool) Pod {
		return Pod{
			PodRef: protocol.PodRef{Namespace: "ns", Name: "on-" + string(node), UID: protocol.UID("on-" + node)}, Node: node,
			Attachments: []Attachment{{Interface: "net1", Pools: []protocol.PoolName{"p"}, Addrs: []netip.Addr{addr}, HostLocal: hostLocal}},
		}
	}
	kept := []protocol.Grant{{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteePod, UID: "on-a", Namespace: "ns", Name: "on-a", Node: "a"}}}
	claimed := []protocol.Grant{{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c", Namespace: "ns", Name: "c"}}}
	for _, tt := range []struct {
		name      string
		pods      []Pod
		grants    []protocol.Grant
		published []string
		wrong     bool
	}{
		{"on two nodes, kept for one", []Pod{pod("a", true), pod("b", true)}, kept, nil, false},
		{"of no network of host-local's", []Pod{pod("a", false), pod("b", false)}, kept, nil, true},
		{"the second by Tenure", []Pod{pod("a", true), pod("b", true)}, kept, []string{"10.0.0.5 ns/on-b net1"}, true},
		{"a claim's", []Pod{pod("a", true), pod("b", true)}, claimed, nil, true},
	} {
		s := State{
			Pools: []Pool{{Pool: protocol.Pool{Meta: protocol.Meta{Name: "p", UID: "p"}}}},
			Leases: []protocol.Lease{{
				Meta: protocol.Meta{Name: "l"}, Pool: "p", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Node: "b"}, Store: "sb", Grants: tt.grants,
				Published: protocol.Publication{Allocations: tt.published},
			}},
			Claims:        []Claim{{Claim: protocol.Claim{Meta: protocol.Meta{Name: "c", UID: "c"}, Namespace: "ns"}, Pools: []protocol.PoolName{"p"}}},
			Pods:          tt.pods,
			Nodes:         map[protocol.NodeName]protocol.Node{"a": {UID: "a"}, "b": {UID: "b"}},
			Registrations: map[protocol.NodeName]protocol.Registration{"a": {Store: "sa"}, "b": {Store: "sb"}},
		}
		i := slices.IndexFunc(Look(s), func(f Finding) bool { return f.Rule == TwoOwners })
		if i < 0 {
			t.Errorf("%s: %+v; want TwoOwners", tt.name, Look(s))
			continue
		}
		f := Look(s)[i]
		if f.Wrong != tt.wrong || strings.Contains(f.Remedy, "no pod has to be deleted") == tt.wrong {
			t.Errorf("%s: %+v; want it wrong: %v", tt.name, f, tt.wrong)
		}
	}
}
