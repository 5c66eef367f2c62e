package foreign

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// lan is a pool of 10.0.0.0/24 that is about to be opened, of which 10.0.0.9 is excluded.
func lan(t *testing.T) Pool {
	t.Helper()
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.9"}}}})
	if err != nil {
		t.Fatal(err)
	}
	return Pool{Name: "lan", Object: protocol.Pool{Bits4: 28}, Whole: shape, New: shape.Usable(), Since: now.Add(-time.Second)}
}

// open is lan once it is open, and was a while ago.
func open(p Pool) Pool {
	p.New, p.Since = nil, now.Add(-time.Hour)
	return p
}

// soon is lan a minute after it has taken addresses over; kept says whether there were any.
func soon(p Pool, kept bool) Pool {
	p = open(p)
	if p.Since = now.Add(-time.Minute); kept {
		p.Kept = map[netip.Addr]protocol.Grantee{netip.MustParseAddr("10.0.0.200"): {Kind: protocol.GranteePod, UID: "another"}}
	}
	return p
}

// keeps is lan with an address that is kept for a pod already.
func keeps(to protocol.Grantee) func(Pool) Pool {
	return func(p Pool) Pool {
		p.Kept = map[netip.Addr]protocol.Grantee{netip.MustParseAddr("10.0.0.5"): to}
		return p
	}
}

// openings is lan, of which all nodes are asked.
func openings(p Pool) Pool { p.CheckAll = true; return p }

// ofTheirs is a pod that selects and shows what is another IPAM's.
func ofTheirs(p Pod) Pod {
	p.Selected, p.Shows = []string{"ns/theirs"}, slices.Clone(p.Shows)
	p.Shows[0].Definition = "ns/theirs"
	return p
}

func definition(name, ipam string) Definition {
	return ReadDefinition("ns", name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"macvlan","ipam":%s}`, name, ipam), nil)
}

var (
	switched = definition("net", `{"type":"tenure","pool":"lan"}`)
	theirs   = definition("theirs", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":""}`)
	vlan     = ReadDefinition("ns", "vlan", `{"name":"vlan","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`, map[string]string{"tenure.dev/domain": "vlan20"})
)

// pod selects a definition, was bound an hour ago, and shows an address of it, if that is
// not empty.
func pod(name, definition, addr string) Pod {
	p := Pod{PodRef: protocol.PodRef{Namespace: "ns", Name: name, UID: protocol.UID(name)}, Node: "n1", Bound: now.Add(-time.Hour), Selected: []string{definition}}
	if addr != "" {
		p.Shows = []npwg.Shown{{Definition: definition, Interface: "net1", Addrs: []netip.Addr{netip.MustParseAddr(addr)}}}
	}
	return p
}

func lease(holder protocol.Holder, grants ...protocol.Grant) protocol.Lease {
	return protocol.Lease{Pool: "lan", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: holder, Grants: grants}
}

// sighting is what a node has seen of a pod, by host-local.
func sighting(addr string, pod protocol.UID, network string) protocol.Sighting {
	return protocol.Sighting{Addr: netip.MustParseAddr(addr), Pod: protocol.PodRef{Namespace: "ns", Name: string(pod), UID: pod}, Sandbox: "box-" + string(pod), Network: network, IPAM: "host-local"}
}

// strangers are what a node has seen of n pods that nobody knows, of another network.
func strangers(n int) (all []protocol.Sighting) {
	for i := range n {
		all = append(all, sighting("10.0.2.1", protocol.UID(fmt.Sprint("stranger-", i)), "else"))
	}
	return all
}

// keptStrangers are what is kept for n pods of node n1 that nobody knows.
func keptStrangers(n int) (all []Kept) {
	for i := range n {
		all = append(all, Kept{Pool: "else", Addr: netip.MustParseAddr("10.0.2.1"), To: protocol.Grantee{Kind: protocol.GranteePod, UID: protocol.UID(fmt.Sprint("kept-", i)), Node: "n1"}})
	}
	return all
}

// keptMany are n addresses that are kept for pod p.
func keptMany(n int) (all []Kept) {
	for _, a := range many(n) {
		all = append(all, Kept{Pool: "lan", Addr: a, To: pod("p", "", "").grantee()})
	}
	return all
}

// many are n addresses of lan, from 10.0.0.100 on.
func many(n int) (all []netip.Addr) {
	for a := netip.MustParseAddr("10.0.0.100"); len(all) < n; a = a.Next() {
		all = append(all, a)
	}
	return all
}

// seenMany are n addresses that a node has seen of pod p.
func seenMany(n int) (all []protocol.Sighting) {
	for _, a := range many(n) {
		all = append(all, sighting(a.String(), "p", "else"))
	}
	return all
}

// seenBy is the report of a node, on which the pods that it has seen run, and p.
func seenBy(node protocol.NodeName, has ...protocol.Sighting) map[protocol.NodeName]protocol.Report {
	return map[protocol.NodeName]protocol.Report{node: {Has: has, Running: []protocol.UID{"p", has[0].Pod.UID}}}
}

func grant(addr string, kind protocol.GranteeKind, uid protocol.UID) protocol.Grant {
	return protocol.Grant{Addr: netip.MustParseAddr(addr), To: protocol.Grantee{Kind: kind, UID: uid, Namespace: "ns", Name: string(uid)}}
}

// weighed is what is found of p by f: what is kept, as "address pod", the conflicts, and the rest.
func weighed(p Pool, f Facts) (keep, conflicts []string, found Finding) {
	f.Now = now
	found = Gather(f).Weigh(&p)
	for _, b := range found.Keep {
		keep = append(keep, b.Addr.String()+" "+string(b.To.UID))
	}
	for _, c := range found.Conflicts {
		conflicts = append(conflicts, c.String())
	}
	return keep, conflicts, found
}

// keptFromAll are n addresses that are kept from all, mostSeen in the name of each sandbox of n1.
func keptFromAll(n int) (all []Kept) {
	for i, a := range many(n) {
		box := stray("n1", protocol.Sighting{Sandbox: fmt.Sprint("box-", i/mostSeen)})
		all = append(all, Kept{Pool: "else", Addr: a, To: box.grantee().ToSeveral()})
	}
	return all
}

// Who has the token of one agent can name an address of two made-up sandboxes at once, which is
// kept from all then: of no more addresses than it can of one each.
func TestNodeNamesTwoSandboxesForEach(t *testing.T) {
	of := func(box string) protocol.Sighting {
		return protocol.Sighting{Addr: netip.MustParseAddr("10.0.0.5"), Sandbox: box, Network: "net", IPAM: "host-local"}
	}
	for _, tt := range []struct {
		name string
		kept []Kept
		a, b string
		want []string
	}{
		{"two new ones", nil, "box-a", "box-b", []string{"10.0.0.5 several/box-a"}},
		{"one that has as many as can be, and a new one", keptFromAll(mostSeen), "box-0", "box-a", []string{"10.0.0.5 box-a"}},
		{"two new ones, beside as many as can be", keptFromAll(mostSeen * mostStrays), "box-a", "box-b", nil},
	} {
		got, _, found := weighed(openings(lan(t)), Facts{
			Definitions: []Definition{switched}, Pods: []Pod{pod("p", "ns/net", "")}, Reports: seenBy("n1", of(tt.a), of(tt.b)),
			Kept: tt.kept, Agents: map[protocol.NodeName]bool{"n1": true},
		})
		if !slices.Equal(got, tt.want) || strings.Contains(found.Why, "more than can be") != (tt.kept != nil) {
			t.Errorf("%s: kept %q, %q; want %q", tt.name, got, found.Why, tt.want)
		}
	}
}

// Any user can have a pod select one network as often as an annotation can. What it gets then is
// kept for it, and no pool waits for anything.
func TestPodOfManyAddresses(t *testing.T) {
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/16"}, {CIDR: "fd00::/64"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := Pool{Name: "lan", Object: protocol.Pool{Bits4: 28, Bits6: 124}, Whole: shape, New: shape.Usable(), CheckAll: true}
	var seen []protocol.Sighting
	v4, v6 := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00::1:1")
	for range npwg.MaxSelections {
		seen = append(seen, sighting(v4.String(), "p", "net"), sighting(v6.String(), "p", "net"))
		v4, v6 = v4.Next(), v6.Next()
	}
	f := Facts{Definitions: []Definition{switched}, Agents: map[protocol.NodeName]bool{"n1": true}, Pods: []Pod{pod("p", "ns/net", "")}, Reports: seenBy("n1", seen...)}
	if keep, _, found := weighed(p, f); len(keep) != len(seen) || found.Stage != StageClear {
		t.Errorf("kept %d addresses, stage %d, %q; want %d, and that nothing is waited for", len(keep), found.Stage, found.Why, len(seen))
	}
}

// What is more than can be has those pools wait that it is of, and no others of that node.
func TestMoreThanCanBeOfAnotherPool(t *testing.T) {
	for _, tt := range []struct {
		addr, network string
		waits         bool
	}{{"10.0.0.5", "net", true}, {"10.0.0.5", "else", false}, {"10.0.1.5", "net", false}} {
		_, _, found := weighed(openings(lan(t)), Facts{
			Definitions: []Definition{switched}, Pods: []Pod{pod("p", "ns/else", ""), pod("q", "ns/net", "10.0.0.8")}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: seenBy("n1", append(seenMany(mostSeen), sighting(tt.addr, "p", tt.network))...),
		})
		if strings.Contains(found.Why, "more than can be") != tt.waits {
			t.Errorf("one more of %v on network %s: it waits, stage %d, since %q; want that it does: %v", tt.addr, tt.network, found.Stage, found.Why, tt.waits)
		}
	}
}

// Whose pod it is, its node says: what another says of a pod of that UID is said of another pod.
func TestPodOfTwoNodes(t *testing.T) {
	static := pod("p", "ns/net", "")
	static.UID, static.Runtime = "mirror", "p"
	other := many(mostSeen)
	for i, known := range []*Pod{nil, &static} {
		for _, recorded := range []bool{true, false} {
			f := Facts{Definitions: []Definition{switched}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true}}
			f.Reports = map[protocol.NodeName]protocol.Report{
				"n1": {Running: []protocol.UID{"p"}, Has: []protocol.Sighting{sighting("10.0.0.5", "p", "net")}},
				"n2": {Running: []protocol.UID{"p"}, Has: []protocol.Sighting{sighting("10.0.0.5", "p", "net")}},
			}
			if known != nil {
				f.Pods = []Pod{*known}
			}
			if recorded && known != nil { // and its node has no agent
				f.Records = []Record{{Addr: netip.MustParseAddr("10.0.0.5"), PodNamespace: "ns", PodName: "p", Source: "whereabouts"}}
				delete(f.Agents, "n1")
				delete(f.Reports, "n1")
			}
			if got, conflicts, _ := weighed(openings(lan(t)), f); len(got) != 1 || !strings.Contains(got[0], "several/") || len(conflicts) != 1 {
				t.Errorf("%d, recorded %v: kept %q, conflicts %v; want it kept from all", i, recorded, got, conflicts)
			}
		}
	}
	f := Facts{Definitions: []Definition{switched}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true}, Reports: seenBy("n1", sighting("10.0.0.250", "p", "net"))}
	var made []protocol.Sighting
	for _, a := range other {
		made = append(made, sighting(a.String(), "p", "else"))
	}
	f.Reports["n2"] = protocol.Report{Running: []protocol.UID{"p"}, Has: made}
	if got, _, found := weighed(openings(lan(t)), f); !slices.Equal(got, []string{"10.0.0.250 p"}) || found.Why != "" {
		t.Errorf("beside as many of another node: kept %q, %q", got, found.Why)
	}
}

// A pool that was never open has given nothing: neither a node's lease nor its word is in the way
// of a record.
func TestLeaseOfAPoolThatWasNeverOpen(t *testing.T) {
	by := sighting("10.0.0.5", "p", "net")
	by.IPAM = Type
	published := lease(protocol.Holder{Node: "n1"})
	published.Published.Allocations = []string{"10.0.0.5 ns/p net1"}
	for _, fresh := range []bool{true, false} {
		for _, f := range []Facts{
			{Reports: seenBy("n1", by), Leases: map[protocol.PoolName][]protocol.Lease{"lan": {lease(protocol.Holder{Node: "n1"})}}},
			{Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}}, Leases: map[protocol.PoolName][]protocol.Lease{"lan": {published}}},
		} {
			f.Definitions, f.Pods, f.Agents = []Definition{switched}, []Pod{pod("p", "ns/net", "")}, map[protocol.NodeName]bool{"n1": true}
			f.Records = []Record{{Addr: netip.MustParseAddr("10.0.0.5"), PodNamespace: "ns", PodName: "p", Source: "whereabouts"}}
			p := openings(lan(t))
			p.Fresh = fresh
			if got, _, _ := weighed(p, f); (len(got) == 1) != fresh {
				t.Errorf("never open: %v: kept %q", fresh, got)
			}
		}
	}
}

// A pod that passes for the mirror of another's static pod does not use up what that may have.
func TestTwoMirrors(t *testing.T) {
	thief, victim := pod("a", "ns/net", ""), pod("b", "ns/net", "10.0.0.5")
	thief.Runtime, victim.Runtime = "static", "static"
	for i := range mostShown {
		thief.Shows = append(thief.Shows, npwg.Shown{Definition: "ns/net", Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.0.0.", 100+i))}})
	}
	f := Facts{
		Definitions: []Definition{switched}, Pods: []Pod{thief, victim}, Agents: map[protocol.NodeName]bool{"n1": true},
		Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"static"}}},
	}
	if got, _, _ := weighed(lan(t), f); len(got) != mostShown+1 || got[0] != "10.0.0.5 static" {
		t.Errorf("kept %q; want 10.0.0.5, too", got)
	}
}

// A lease of an earlier pool of that name, or of blocks of another size, neither says whose an
// address is nor hides the lease that does.
func TestLeaseOfAnotherPool(t *testing.T) {
	grant := protocol.Grant{Addr: netip.MustParseAddr("10.0.0.5"), To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "claim"}}
	ours := lease(protocol.Holder{Cluster: true}, grant)
	earlier, within := ours, lease(protocol.Holder{Node: "n2"})
	earlier.PoolUID, within.Block = "earlier", netip.MustParsePrefix("10.0.0.4/30")
	for _, tt := range []struct {
		name   string
		leases []protocol.Lease
		kept   bool
	}{
		{"of the pool", []protocol.Lease{ours}, false},
		{"of an earlier pool", []protocol.Lease{earlier}, true},
		{"of the pool, beside one of another size", []protocol.Lease{ours, within}, false},
	} {
		f := Facts{
			Definitions: []Definition{switched}, Pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, Leases: map[protocol.PoolName][]protocol.Lease{"lan": tt.leases},
			SubLeases: []protocol.SubLease{{Node: "n1", Use: &protocol.Use{Claim: protocol.ClaimRef{UID: "claim"}, Pod: protocol.PodRef{UID: "p"}}}},
		}
		if got, _, _ := weighed(lan(t), f); (len(got) == 1) != tt.kept {
			t.Errorf("%s: kept %q", tt.name, got)
		}
	}
}

func TestWeigh(t *testing.T) {
	of := func(node string) protocol.Holder { return protocol.Holder{Node: protocol.NodeName(node)} }
	tells := func(l protocol.Lease, text string) protocol.Lease { l.Published.Allocations = []string{text}; return l }
	recorded := []Record{{Addr: netip.MustParseAddr("10.0.0.5"), PodNamespace: "ns", PodName: "p", Source: "whereabouts"}}
	elsewhere := pod("q", "ns/net", "10.0.0.5")
	elsewhere.Node = "n2"
	young := pod("p", "ns/net", "10.0.0.5")
	young.Bound = now
	for _, tt := range []struct {
		name      string
		pool      func(Pool) Pool
		lives     bool // the agent of node n1
		others    bool // that of node n2
		pods      []Pod
		records   []Record
		reports   map[protocol.NodeName]protocol.Report
		leases    []protocol.Lease
		subs      []protocol.SubLease
		want      []string // "address pod"
		conflicts []string
		denied    bool // no namespace may use the pool
		kept      []Kept
		why       string // the pool waits, a part of it
	}{
		{name: "a pod of a definition that was switched", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 p"}},
		{name: "a pod of a definition that was not", pods: []Pod{pod("p", "ns/theirs", "10.0.0.5")}, want: []string{"10.0.0.5 p"}},
		{name: "a definition that is gone", pods: []Pod{pod("p", "ns/gone", "10.0.0.5")}},
		{name: "a definition that is gone, and whereabouts' record", pods: []Pod{pod("p", "ns/gone", "10.0.0.5")}, records: recorded, want: []string{"10.0.0.5 p"}},
		{
			name: "a definition that is gone, and its node has seen it", lives: true, pods: []Pod{pod("p", "ns/gone", "10.0.0.5")}, want: []string{"10.0.0.5 p"},
			reports: seenBy("n1", sighting("10.0.0.5", "p", "was")),
		},
		{
			name: "a definition that is gone, and its node has seen another", lives: true, pods: []Pod{pod("p", "ns/gone", "10.0.0.5")},
			reports: seenBy("n1", sighting("10.0.0.6", "p", "was")),
		},
		{name: "a namespace that may not use the pool", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, denied: true},
		{name: "a namespace that may not use the pool, and whereabouts' record", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, denied: true, records: recorded, want: []string{"10.0.0.5 p"}},
		{name: "another segment by its word", pods: []Pod{pod("p", "ns/vlan", "10.0.0.5")}},
		{name: "an address that the pool never gives", pods: []Pod{pod("p", "ns/net", "10.0.0.9"), pod("q", "ns/net", "10.0.1.5")}},
		{name: "whereabouts' record of a pod that has no status yet", pods: []Pod{pod("p", "ns/net", "")}, records: []Record{{Addr: netip.MustParseAddr("10.0.0.6"), PodNamespace: "ns", PodName: "p"}}, want: []string{"10.0.0.6 p"}},
		{name: "whereabouts' record of a pod that is gone", records: []Record{{Addr: netip.MustParseAddr("10.0.0.6"), PodNamespace: "ns", PodName: "p"}}},
		{
			name: "what a node has seen in a sandbox whose pod is gone", want: []string{"10.0.0.7 s1"},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.7"), Sandbox: "s1", Network: "net", IPAM: "host-local"}}}},
		},
		{
			name:    "what a node has seen of Tenure's own, and of another network",
			reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.7"), Network: "net", IPAM: "tenure"}, {Addr: netip.MustParseAddr("10.0.0.8"), Network: "cbr0", IPAM: "host-local"}}}},
		},
		{name: "Tenure's own, as its node has published", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{tells(lease(of("n1")), "10.0.0.5 ns/p net1")}},
		{
			name: "Tenure's own, as its node has reported", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{lease(of("n1"))},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.5"), Pod: protocol.PodRef{UID: "p"}, Network: "net", IPAM: "tenure"}}}},
		},
		{
			name: "whereabouts' record, and its node says that Tenure gave it of a block that is not its", pods: []Pod{pod("p", "ns/net", "")}, records: recorded, want: []string{"10.0.0.5 p"},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.5"), Pod: protocol.PodRef{UID: "p"}, Network: "net", IPAM: "tenure"}}}},
		},
		{
			name: "whereabouts' record, and its node says that Tenure gave it of its block", pods: []Pod{pod("p", "ns/net", "")}, records: recorded, leases: []protocol.Lease{lease(of("n1"))},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.5"), Pod: protocol.PodRef{UID: "p"}, Network: "net", IPAM: "tenure"}}}},
		},
		{name: "in a block of its node, which has not told: it is asked", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{lease(of("n1"))}, want: []string{"10.0.0.5 p"}},
		{
			name: "granted to a request for the pod", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{lease(protocol.Holder{Cluster: true}, grant("10.0.0.5", protocol.GranteeSubLease, "r"))},
			subs: []protocol.SubLease{{Meta: protocol.Meta{UID: "r"}, Node: "n1", Request: &protocol.Request{Pod: protocol.PodRef{UID: "p"}}}},
		},
		{
			name: "granted to a request for the pod, by the word of another node", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{lease(protocol.Holder{Cluster: true}, grant("10.0.0.5", protocol.GranteeSubLease, "r"))},
			subs: []protocol.SubLease{{Meta: protocol.Meta{UID: "r"}, Node: "n2", Request: &protocol.Request{Pod: protocol.PodRef{UID: "p"}}}}, want: []string{"10.0.0.5 p"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to sub-lease r"},
		},
		{
			name: "in use by another pod, on another node", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{tells(lease(of("n2")), "10.0.0.5 ns/q net1")},
			want: []string{"10.0.0.5 p"}, conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2"},
		},
		{
			name: "two pods show one address: it is kept from all", pods: []Pod{pod("p", "ns/net", "10.0.0.5"), pod("q", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 several/p"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n1, which another IPAM has given it to"},
		},
		{
			name: "whereabouts' record beats what another pod shows", pods: []Pod{pod("a", "ns/net", "10.0.0.5"), pod("p", "ns/net", "")}, records: recorded, want: []string{"10.0.0.5 p"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/a on node n1, which another IPAM has given it to and to pod ns/p on node n1, which another IPAM has given it to"},
		},
		{
			name: "what a node has seen beats what a pod of another node shows, which has not seen it", pods: []Pod{elsewhere, pod("p", "ns/net", "")}, want: []string{"10.0.0.5 p"},
			reports: map[protocol.NodeName]protocol.Report{"n1": seenBy("n1", sighting("10.0.0.5", "p", "net"))["n1"], "n2": {Running: []protocol.UID{"q"}}}, others: true,
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2, which another IPAM has given it to"},
		},
		{
			name: "what a node has seen, and what a pod shows where no agent lives: it is kept from all", pods: []Pod{elsewhere, pod("p", "ns/net", "")}, want: []string{"10.0.0.5 several/p"},
			reports:   seenBy("n1", sighting("10.0.0.5", "p", "net")),
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2, which another IPAM has given it to"},
		},
		{
			name: "a record and a node name two pods: it is kept from all", pods: []Pod{elsewhere, pod("p", "ns/net", "")}, records: recorded, want: []string{"10.0.0.5 several/q"},
			reports:   seenBy("n2", sighting("10.0.0.5", "q", "net")),
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2, which another IPAM has given it to"},
		},
		{
			name: "kept for a pod that shows it, and another has it by a record: it is kept from all", pods: []Pod{pod("a", "ns/net", "10.0.0.5"), pod("p", "ns/net", "")},
			records: recorded, pool: keeps(pod("a", "", "").grantee()), want: []string{"10.0.0.5 several/a"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/a on node n1, which another IPAM has given it to and to pod ns/p on node n1, which another IPAM has given it to"},
		},
		{
			name: "kept for a pod whose node has yet to answer, and a pod of another node shows it: it waits", lives: true, others: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5"), elsewhere},
			reports: map[protocol.NodeName]protocol.Report{"n2": {Running: []protocol.UID{"q"}}}, pool: keeps(pod("p", "", "").grantee()), want: []string{"10.0.0.5 p"},
			why: "the agents of nodes n1 have yet to say",
		},
		{
			name: "kept for a pod that its node has seen with it, and a pod of another node shows it", lives: true, others: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5"), elsewhere},
			reports: map[protocol.NodeName]protocol.Report{"n1": seenBy("n1", sighting("10.0.0.5", "p", "net"))["n1"], "n2": {Running: []protocol.UID{"q"}}},
			pool:    keeps(pod("p", "", "").grantee()), want: []string{"10.0.0.5 p"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2, which another IPAM has given it to"},
		},
		{
			name: "kept for a pod that its node has not seen with it, and a pod of another node shows it: it is kept from all", lives: true, others: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5"), elsewhere},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}, "n2": {Running: []protocol.UID{"q"}}},
			pool:    keeps(pod("p", "", "").grantee()), want: []string{"10.0.0.5 several/p"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2, which another IPAM has given it to"},
		},
		{name: "kept for a pod of which nothing is seen any more: the next one's", pods: []Pod{pod("p", "ns/net", "")}, records: recorded, pool: keeps(pod("a", "", "").grantee()), want: []string{"10.0.0.5 p"}},
		{name: "kept from all, as long as any pod has it", pods: []Pod{pod("p", "ns/net", "")}, records: recorded, pool: keeps(pod("q", "", "").grantee().ToSeveral()), want: []string{"10.0.0.5 several/q"}},
		{
			name: "a node says what a pod of another node has", pods: []Pod{func() Pod { q := elsewhere; q.Shows = nil; return q }()},
			reports: seenBy("n1", sighting("10.0.0.5", "q", "net")),
		},
		{
			name: "a node has seen more of a pod than can be", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, reports: seenBy("n1", append(seenMany(mostSeen), sighting("10.0.0.5", "p", "net"))...),
			why: "node n1: it reports more than can be: more than 2048 addresses of pod ns/p. Delete that pod",
		},
		{
			name: "a node has seen another sandbox of a pod that nobody knows, and as many as can be are kept", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")},
			kept: keptStrangers(mostStrays), reports: seenBy("n1", sighting("10.0.0.7", "stranger", "net")), why: "node n1: it reports more than can be",
		},
		{
			name: "a node has seen another address of a pod for which as many as can be are kept, and one that is", lives: true, pods: []Pod{pod("p", "ns/net", "")}, kept: keptMany(mostSeen), want: []string{"10.0.0.100 p"},
			reports: seenBy("n1", sighting("10.0.0.5", "p", "net"), sighting("10.0.0.100", "p", "net")), why: "node n1: it reports more than can be", pool: openings,
		},
		{name: "a pod shows another address than those that are kept for it, as many as can be", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, kept: keptMany(mostShown)},
		{name: "a pod shows an address that is kept for it, of as many as can be", pods: []Pod{pod("p", "ns/net", "10.0.0.100")}, kept: keptMany(mostShown), want: []string{"10.0.0.100 p"}},
		{
			name: "a node has seen what a pod has, and more is kept for pods that nobody knows than can be", lives: true, pods: []Pod{pod("p", "ns/net", "")},
			kept: keptStrangers(mostStrays + 1), reports: seenBy("n1", sighting("10.0.0.5", "p", "net")), want: []string{"10.0.0.5 p"},
		},
		{
			name: "what a node has seen, and what a pod of another node shows, which has yet to answer: it waits", others: true, pods: []Pod{elsewhere, pod("p", "ns/net", "")},
			reports: seenBy("n1", sighting("10.0.0.5", "p", "net")), why: "the agents of nodes n2 have yet to say",
		},
		{
			name: "what a pod shows, and a pod of another node, which has yet to answer: it waits", lives: true, others: true, pods: []Pod{elsewhere, pod("p", "ns/net", "10.0.0.5")},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}}, why: "the agents of nodes n2 have yet to say",
		},
		{
			name: "an open pool: what a pod shows, and a pod of another node, which has yet to answer: it is kept from all", pool: open, lives: true, others: true, pods: []Pod{ofTheirs(elsewhere), pod("p", "ns/theirs", "10.0.0.5")},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}}, want: []string{"10.0.0.5 several/p"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2, which another IPAM has given it to"},
		},
		{
			name: "what a node has seen, and what a pod of another node shows, which cannot tell of any pod: it is kept from all", others: true, pods: []Pod{elsewhere, pod("p", "ns/net", "")},
			reports: map[protocol.NodeName]protocol.Report{"n1": seenBy("n1", sighting("10.0.0.5", "p", "net"))["n1"], "n2": {}}, want: []string{"10.0.0.5 several/p"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2, which another IPAM has given it to"},
		},
		{
			name: "a node has seen a sandbox, of which its runtime does not tell the pod, and a pod of that node shows the same", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.5"), Sandbox: "box", Network: "net", IPAM: "host-local"}}}},
			want:    []string{"10.0.0.5 box"},
		},
		{
			name: "whereabouts' record, its node has seen the same, and a pod shows it whose node has yet to answer", others: true, pods: []Pod{elsewhere, pod("p", "ns/net", "")}, records: recorded,
			reports: seenBy("n1", sighting("10.0.0.5", "p", "net")), want: []string{"10.0.0.5 p"}, why: "the agents of nodes n2 have yet to say",
		},
		{
			name: "a node has seen what a pod that nobody knows has, for which a pod of another node passes", pods: []Pod{func() Pod { q := elsewhere; q.Shows, q.Runtime = nil, "s"; return q }()},
			reports: seenBy("n1", sighting("10.0.0.5", "s", "net")), want: []string{"10.0.0.5 s"},
		},
		{
			name: "a node has seen more sandboxes of pods that nobody knows than can be", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")},
			reports: seenBy("n1", append(strangers(mostStrays), sighting("10.0.0.7", "stranger", "net"))...), why: "node n1: it reports more than can be: more than 256 sandboxes",
		},
		{
			name: "a node tells of a sandbox without a name", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, why: "node n1: it reports that 10.0.0.7 is of a sandbox that it does not name",
			reports: seenBy("n1", protocol.Sighting{Addr: netip.MustParseAddr("10.0.0.7"), Network: "net", IPAM: "host-local"}),
		},
		{
			name: "a node tells of a sandbox whose name has no room in a lease", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, why: "node n1: it reports that 10.0.0.7",
			reports: seenBy("n1", sighting("10.0.0.7", protocol.UID(strings.Repeat("x", 65)), "net")),
		},
		{
			name: "a node tells of a sandbox that passes for several", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, why: "node n1: it reports that 10.0.0.7",
			reports: seenBy("n1", sighting("10.0.0.7", pod("p", "", "").grantee().ToSeveral().UID, "net")),
		},
		{
			name: "what a node has seen of a pod for whose mirror another passes", pods: []Pod{pod("p", "ns/net", ""), func() Pod { q := elsewhere; q.Shows, q.Runtime = nil, "p"; return q }()},
			reports: seenBy("n1", sighting("10.0.0.5", "p", "net")), want: []string{"10.0.0.5 p"},
		},
		{
			name: "a node cannot read a file of the network", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, why: "node n1: /results/net-c-net1 is damaged",
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}, Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "net"}, Why: "/results/net-c-net1 is damaged"}}}},
		},
		{
			name: "a node cannot read a file of the network, and the status tells all", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 p"},
			pool:    func(p Pool) Pool { p.TrustStatus = true; return p },
			reports: map[protocol.NodeName]protocol.Report{"n1": {Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "net"}, Why: "damaged"}}}},
		},
		{name: "an open pool: a pod of another IPAM that comes late", pool: open, pods: []Pod{pod("p", "ns/theirs", "10.0.0.5")}, want: []string{"10.0.0.5 p"}},
		{name: "an open pool: Tenure's own, which its node has not told", pool: open, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}},
		{
			name: "an open pool: one that was bound before, soon after", pool: func(p Pool) Pool { return soon(p, true) },
			pods: []Pod{pod("p", "ns/net", "10.0.0.5"), func() Pod { q := young; q.Shows = nil; return q }()}, want: []string{"10.0.0.5 p"},
		},
		{name: "an open pool, before which nothing of others was found", pool: func(p Pool) Pool { return soon(p, false) }, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}},
		{name: "a node that lives has yet to say what its pods have", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}},
		{
			name: "a node that lives says that the pod runs", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 p"},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}},
		},
		{
			name: "a node that lives says that the pod does not run any more", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")},
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"q"}}},
		},
		{
			name: "a node that lives says that it gave the address, which it has not published", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{lease(of("n1"))},
			reports: map[protocol.NodeName]protocol.Report{"n1": {
				Running: []protocol.UID{"p"}, Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.5"), Pod: protocol.PodRef{UID: "p"}, Network: "net", IPAM: "tenure"}},
			}},
		},
		{
			name: "a node that lives cannot say what its pods have", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")},
			why:     "too many",
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}, Unread: "too many"}},
		},
		{
			name: "what is kept already stays kept", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 p"},
			leases: []protocol.Lease{lease(protocol.Holder{Cluster: true}, grant("10.0.0.5", protocol.GranteePod, "p"))}, pool: keeps(pod("p", "", "").grantee()),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := lan(t)
			if tt.pool != nil {
				p = tt.pool(p)
			}
			if tt.denied {
				p.MayUse = func(string) bool { return false }
			}
			got, said, found := weighed(p, Facts{
				Definitions: []Definition{switched, theirs, vlan}, Pods: tt.pods, Records: tt.records, Reports: tt.reports,
				Leases: map[protocol.PoolName][]protocol.Lease{"lan": tt.leases}, SubLeases: tt.subs, Kept: tt.kept, Agents: map[protocol.NodeName]bool{"n1": tt.lives, "n2": tt.others},
			})
			if !slices.Equal(got, tt.want) || !slices.Equal(said, tt.conflicts) {
				t.Errorf("kept %q, conflicts %q; want %q and %q", got, said, tt.want, tt.conflicts)
			}
			if tt.why != "" && !strings.Contains(found.Why, tt.why) {
				t.Errorf("it waits, stage %d, since %q; want %q", found.Stage, found.Why, tt.why)
			}
		})
	}
}

// TestEnded: an address is kept while any one sign says that its pod has it.
func TestEnded(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.5")
	quiet := map[protocol.NodeName]protocol.Report{"n1": {ID: "x"}}
	record := []Record{{Addr: addr, PodNamespace: "ns", PodName: "p"}}
	for _, tt := range []struct {
		name    string
		facts   Facts
		dead    bool
		want    bool // that it has ended
		several bool // and what is kept for several pods
	}{
		{"its pod shows it", Facts{Pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, Reports: quiet}, false, false, false},
		{"the other IPAM has a record", Facts{Pods: []Pod{pod("p", "ns/net", "")}, Records: record, Reports: quiet}, false, false, false},
		{"another pod shows it", Facts{Pods: []Pod{pod("q", "ns/net", "10.0.0.5")}, Reports: quiet}, false, true, false},
		{"its node has not answered", Facts{}, false, false, false},
		{"its node could not read all", Facts{Reports: map[protocol.NodeName]protocol.Report{"n1": {Unread: "something"}}}, false, false, false},
		{"its node could not read a file", Facts{Reports: map[protocol.NodeName]protocol.Report{"n1": {Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "net"}, Why: "damaged"}}}}}, false, false, false},
		{"a force-deleted pod still runs", Facts{Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}}}, false, false, false},
		{"its node still sees it in a sandbox", Facts{Reports: seenBy("n1", sighting("10.0.0.5", "p", "net"))}, false, false, false},
		{"nothing is left of it", Facts{Reports: quiet}, false, true, true},
		{"another node has not answered", Facts{Reports: quiet, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true}}, false, true, false},
		{"another node could not read all", Facts{Reports: map[protocol.NodeName]protocol.Report{"n1": {ID: "x"}, "n2": {Unread: "something"}}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true}}, false, true, true},
		{"its node counts as dead", Facts{}, true, true, false},
	} {
		tt.facts.Definitions = []Definition{switched}
		if tt.facts.Agents == nil {
			tt.facts.Agents = map[protocol.NodeName]bool{"n1": true}
		}
		ended := func(to protocol.Grantee) bool {
			e, p := Gather(tt.facts), lan(t)
			e.Weigh(&p)
			all, _ := e.Ended([]Kept{{Pool: "lan", Addr: addr, To: to}}, func(Kept) bool { return tt.dead }, never)
			return len(all) > 0
		}
		if one, several := ended(pod("p", "", "").grantee()), ended(pod("p", "", "").grantee().ToSeveral()); one != tt.want || several != tt.several {
			t.Errorf("%s: ended is %v, of several pods %v; want %v and %v", tt.name, one, several, tt.want, tt.several)
		}
	}
}

// What was kept for a sandbox, of which its node could not tell the pod, ends once the node can: it
// is the pod's by then.
func TestEndedOnceThePodIsTold(t *testing.T) {
	told := sighting("10.0.0.5", "p", "net")
	untold := told
	untold.Pod = protocol.PodRef{}
	byName := told
	byName.Pod.UID = ""
	for _, tt := range []struct {
		seen   protocol.Sighting
		passes bool // the look keeps the address for the pod
		want   bool
	}{{untold, true, false}, {byName, true, true}, {told, true, true}, {told, false, false}} {
		e := Gather(Facts{
			Definitions: []Definition{switched},
			Pods:        []Pod{pod("p", "ns/net", "")}, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{tt.seen}}},
		})
		p := lan(t)
		e.Weigh(&p)
		kept := Kept{Pool: "lan", Addr: told.Addr, To: stray("n1", untold).grantee()}
		if got, _ := e.Ended([]Kept{kept}, never, func(Kept) bool { return tt.passes }); (len(got) > 0) != tt.want {
			t.Errorf("its node says %+v, passed on: %v: %v ended, want %v", tt.seen, tt.passes, got, tt.want)
		}
	}
}

// TestSeveralEndBesideAnotherSegment: pods of another segment with the same numbers keep nothing.
func TestSeveralEndBesideAnotherSegment(t *testing.T) {
	kept := []Kept{{Pool: "lan", Addr: netip.MustParseAddr("10.0.0.5"), To: pod("gone", "", "").grantee().ToSeveral()}}
	for definition, want := range map[string]bool{"ns/vlan": true, "ns/net": false, "ns/gone": false} {
		p := lan(t)
		e := Gather(Facts{
			Now: now, Definitions: []Definition{switched, vlan}, Pods: []Pod{pod("p", definition, "10.0.0.5")},
			Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}},
		})
		e.Weigh(&p)
		if ended, _ := e.Ended(kept, never, never); (len(ended) > 0) != want {
			t.Errorf("a pod of %s shows it: %v ended, want %v", definition, ended, want)
		}
	}
}

// TestSeveralEndBesideANamesake (I1): an address that is kept from all stays so while a pod has it,
// as its node has seen on a network that its definition has no more. Whoever writes another
// definition of that network's name says nothing of the pod.
func TestSeveralEndBesideANamesake(t *testing.T) {
	kept := []Kept{{Pool: "lan", Addr: netip.MustParseAddr("10.0.0.5"), To: pod("gone", "", "").grantee().ToSeveral()}}
	for _, network := range []string{"renamed", "net"} {
		p := lan(t)
		facts := Facts{
			Now: now, Pods: []Pod{pod("p", "ns/net", "10.0.0.5")},
			Definitions: []Definition{readNetwork("ns", "net", network, `{"type":"tenure","pool":"lan"}`), ReadDefinition("other", "x", `{"name":"net","type":"macvlan","ipam":{"type":"static","addresses":[{"address":"10.0.0.5/24"}]}}`, map[string]string{"tenure.dev/domain": "y"})},
			Agents:      map[protocol.NodeName]bool{"n1": true}, Reports: seenBy("n1", sighting("10.0.0.5", "p", "net")),
		}
		e := Gather(facts)
		e.Weigh(&p)
		unclaimed := e.Unclaimed(kept)
		facts.Pods = nil // it was deleted by force
		forced := Gather(facts)
		forced.Weigh(&p)
		unclaimed = append(unclaimed, forced.Unclaimed(kept)...)
		e.claims = slices.DeleteFunc(e.claims, func(c claim) bool { return c.by == byStatus })
		if without := e.Unclaimed(kept); len(unclaimed)+len(without) > 0 {
			t.Errorf("its network is now %s: nobody has it: %v, without its status: %v", network, unclaimed, without)
		}
	}
}

// never is of no address.
func never(Kept) bool { return false }

// TestEndedThoughAnotherPoolIsUnseen: what cannot be read of a network of the pool may tell of what
// is kept, what cannot be read of another does not.
func TestEndedThoughAnotherPoolIsUnseen(t *testing.T) {
	p := lan(t)
	kept := []Kept{{Pool: "lan", Addr: netip.MustParseAddr("10.0.0.5"), To: pod("p", "", "").grantee()}}
	for _, tt := range []struct {
		network string
		trust   bool // a person says that the status tells all
		want    bool
	}{{"net", false, false}, {"net", true, true}, {"else", false, true}} {
		e := Gather(Facts{Now: now, Definitions: []Definition{switched}, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{
			"n1": {Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: tt.network}, Why: "damaged"}}},
		}})
		p.TrustStatus = tt.trust
		e.Weigh(&p)
		if ended, held := e.Ended(kept, never, never); (len(ended) > 0) != tt.want || (held[Word{"n1", "lan"}] == "damaged") == tt.want {
			t.Errorf("a file of network %s cannot be read, trust %v: %v ended, held up by %q, want %v", tt.network, tt.trust, ended, held, tt.want)
		}
	}
}

// TestEndedThoughMoreThanCanBeIsReported: what a node says beyond what can be is of others than
// those that something is kept for. So these end, and make room.
func TestEndedThoughMoreThanCanBeIsReported(t *testing.T) {
	e := Gather(Facts{Kept: keptStrangers(mostStrays), Agents: map[protocol.NodeName]bool{"n1": true}, Reports: seenBy("n1", strangers(1)...)})
	p := lan(t)
	p.Name = "else"
	e.Weigh(&p)
	if ended, _ := e.Ended(keptStrangers(mostStrays), never, never); len(ended) != mostStrays {
		t.Errorf("of %d that are gone %d have ended", mostStrays, len(ended))
	}
}

// TestOthers: a definition is in the way while another IPAM may give addresses of the pool
// by it.
func TestOthers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		d     Definition
		share []string
		want  string // what it may give
	}{
		{"Tenure's", switched, nil, ""},
		{"whereabouts", theirs, nil, "10.0.0.1-10.0.0.8,10.0.0.10-10.0.0.254"},
		{"a part", definition("d", `{"type":"whereabouts","range":"10.0.0.0/24","range_start":"10.0.0.9","range_end":"10.0.0.11"}`), nil, "10.0.0.10-10.0.0.11"},
		{"only what the pool excludes", definition("d", `{"type":"whereabouts","range":"10.0.0.0/24","range_start":"10.0.0.9","range_end":"10.0.0.9"}`), nil, ""},
		{"host-local", definition("d", `{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/28","rangeStart":"10.0.0.3"}]]}`), nil, "10.0.0.3-10.0.0.8,10.0.0.10-10.0.0.15"},
		{"static", definition("d", `{"type":"static","addresses":[{"address":"10.0.0.77/24"}]}`), nil, "10.0.0.1-10.0.0.8,10.0.0.10-10.0.0.254"},
		{"dhcp tells nothing", definition("d", `{"type":"dhcp"}`), nil, ""},
		{"another segment by its word", vlan, nil, ""},
		{"disjoint by the administrator's word", theirs, []string{"ns/theirs"}, ""},
	} {
		p := lan(t)
		p.ShareWith = tt.share
		by, gives := p.Others([]Definition{tt.d})
		var text []string
		for _, r := range gives.Ranges() {
			text = append(text, r.String())
		}
		if got := strings.Join(text, ","); got != tt.want || (len(by) > 0) != (tt.want != "") {
			t.Errorf("%s: by %v it may give %q; want %q", tt.name, by, got, tt.want)
		}
	}
}

// TestLongReportOfManyPods: what a node says is gone over once, and not for each address that a pod
// of the node shows.
func TestLongReportOfManyPods(t *testing.T) {
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/16"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := Pool{Name: "lan", Object: protocol.Pool{Bits4: 28}, Whole: shape, New: shape.Usable()}
	f := Facts{Now: now, Definitions: []Definition{theirs}, Agents: map[protocol.NodeName]bool{"n1": true}}
	a := netip.MustParseAddr("10.0.1.1")
	for i := range 500 {
		shows := pod(fmt.Sprint("p", i), "ns/theirs", "10.0.0.1")
		shows.Shows[0].Addrs = nil
		for range mostShown {
			shows.Shows[0].Addrs, a = append(shows.Shows[0].Addrs, a), a.Next()
		}
		f.Pods = append(f.Pods, shows)
	}
	report := protocol.Report{Running: []protocol.UID{"x"}}
	for i := range 60_000 {
		report.Has = append(report.Has, protocol.Sighting{
			Addr: netip.AddrFrom4([4]byte{11, 1, byte(i >> 8), byte(i)}), Pod: protocol.PodRef{Namespace: "ns", Name: "other"}, Sandbox: "s", IPAM: Type,
		})
	}
	var unseen protocol.Report // the same of files that cannot be read, of other networks
	for i := range 60_000 {
		unseen.Unseen = append(unseen.Unseen, protocol.Unseen{HostLocal: protocol.HostLocal{Network: fmt.Sprint("else-", i)}})
	}
	unseen.Running = report.Running
	for i := range 3000 {
		f.Kept = append(f.Kept, Kept{Pool: "lan", Addr: netip.AddrFrom4([4]byte{10, 0, 200, byte(i)}), To: protocol.Grantee{Kind: protocol.GranteePod, UID: protocol.UID(fmt.Sprint("gone-", i)), Node: "n1"}})
	}
	for _, r := range []protocol.Report{report, unseen} {
		f.Reports = map[protocol.NodeName]protocol.Report{"n1": r}
		begun := time.Now()
		e := Gather(f)
		if keep := e.Weigh(&p).Keep; len(keep) > 0 {
			t.Errorf("%d addresses are kept for pods that do not run", len(keep))
		}
		none := func(Kept) bool { return false }
		if ended, _ := e.Ended(f.Kept, none, none); len(ended) != len(f.Kept) {
			t.Errorf("of %d that are kept for pods that are gone %d have ended", len(f.Kept), len(ended))
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("it takes %v", took)
		}
	}
}

// TestManySelections: the cost of a pod is in proportion to what it selects and shows. One that
// selects a network as often as it may costs no more than many that select it less often.
func TestManySelections(t *testing.T) {
	const all = 32 * npwg.MaxSelections
	look := func(each int) time.Duration {
		f := Facts{Now: now, Definitions: []Definition{theirs}, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{"n1": {}}}
		for i := range all / each {
			p := pod(fmt.Sprint("p", i), "ns/theirs", "")
			p.Selected, p.Shows = slices.Repeat(p.Selected, each), slices.Repeat([]npwg.Shown{{Definition: "ns/theirs"}}, each)
			f.Pods = append(f.Pods, p)
		}
		p := lan(t)
		begun := time.Now()
		Gather(f).Weigh(&p)
		return time.Since(begun)
	}
	few, many := time.Hour, time.Hour
	for range 5 {
		few, many = min(few, look(16)), min(many, look(npwg.MaxSelections))
	}
	if t.Logf("%v with 16 selections each, %v with %d", few, many, npwg.MaxSelections); many > 4*few {
		t.Errorf("%d selections take %v with %d of them each, and %v with 16", all, many, npwg.MaxSelections, few)
	}
}
