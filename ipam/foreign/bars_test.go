package foreign

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	return Pool{Name: "lan", Whole: shape, New: shape.Usable(), Since: now.Add(-time.Second)}
}

// open is lan once it is open, and was a while ago.
func open(p Pool) Pool {
	p.New, p.Since = nil, now.Add(-time.Hour)
	return p
}

// soon is lan a minute after it has taken addresses over; kept says whether there were any.
func soon(p Pool, kept bool) Pool {
	p = open(p)
	p.Since, p.Kept = now.Add(-time.Minute), kept
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
		p.Shows = []Shown{{Definition: definition, Interface: "net1", Addrs: []netip.Addr{netip.MustParseAddr(addr)}}}
	}
	return p
}

func lease(holder protocol.Holder, grants ...protocol.Grant) protocol.Lease {
	return protocol.Lease{Pool: "lan", Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: holder, Grants: grants}
}

func grant(addr string, kind protocol.GranteeKind, uid protocol.UID) protocol.Grant {
	return protocol.Grant{Addr: netip.MustParseAddr(addr), To: protocol.Grantee{Kind: kind, UID: uid, Namespace: "ns", Name: string(uid)}}
}

func TestFind(t *testing.T) {
	of := func(node string) protocol.Holder { return protocol.Holder{Node: protocol.NodeName(node)} }
	tells := func(l protocol.Lease, text string) protocol.Lease { l.Published.Allocations = []string{text}; return l }
	young := pod("p", "ns/net", "10.0.0.5")
	young.Bound = now
	for _, tt := range []struct {
		name      string
		pool      func(Pool) Pool
		lives     bool // the agent of node n1
		pods      []Pod
		records   []Record
		reports   map[protocol.NodeName]protocol.Report
		leases    []protocol.Lease
		subs      []protocol.SubLease
		want      []string // "address pod"
		conflicts []string
	}{
		{name: "a pod of a definition that was switched", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 p"}},
		{name: "a pod of a definition that was not", pods: []Pod{pod("p", "ns/theirs", "10.0.0.5")}, want: []string{"10.0.0.5 p"}},
		{name: "a definition that is gone", pods: []Pod{pod("p", "ns/gone", "10.0.0.5")}, want: []string{"10.0.0.5 p"}},
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
		{name: "in a block of its node, which has not told: it is asked", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{lease(of("n1"))}, want: []string{"10.0.0.5 p"}},
		{
			name: "granted to a request for the pod", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{lease(protocol.Holder{Cluster: true}, grant("10.0.0.5", protocol.GranteeSubLease, "r"))},
			subs: []protocol.SubLease{{Meta: protocol.Meta{UID: "r"}, Request: &protocol.Request{Pod: protocol.PodRef{UID: "p"}}}},
		},
		{
			name: "in use by another pod, on another node", pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, leases: []protocol.Lease{tells(lease(of("n2")), "10.0.0.5 ns/q net1")},
			want: []string{"10.0.0.5 p"}, conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n2"},
		},
		{
			name: "two pods of another IPAM: nobody's is taken away", pods: []Pod{pod("p", "ns/net", "10.0.0.5"), pod("q", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 p", "10.0.0.5 q"},
			conflicts: []string{"10.0.0.5 belongs to pod ns/p on node n1, which another IPAM has given it to and to pod ns/q on node n1, which another IPAM has given it to"},
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
			reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}, Unseen: []protocol.Unseen{{Why: "too many"}}}},
		},
		{
			name: "what is kept already stays kept", lives: true, pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, want: []string{"10.0.0.5 p"},
			leases: []protocol.Lease{lease(protocol.Holder{Cluster: true}, grant("10.0.0.5", protocol.GranteePod, "p"))},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := lan(t)
			if tt.pool != nil {
				p = tt.pool(p)
			}
			bars, conflicts := Find(Facts{
				Now: now, Pools: []Pool{p}, Definitions: []Definition{switched, theirs, vlan}, Pods: tt.pods, Records: tt.records, Reports: tt.reports,
				Leases: map[protocol.PoolName][]protocol.Lease{"lan": tt.leases}, SubLeases: tt.subs, Lives: map[protocol.NodeName]bool{"n1": tt.lives},
			})
			var got, said []string
			for _, b := range bars {
				got = append(got, b.Addr.String()+" "+string(b.To.UID))
			}
			for _, c := range conflicts {
				said = append(said, c.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) || !slices.Equal(said, tt.conflicts) {
				t.Errorf("kept %q, conflicts %q; want %q and %q", got, said, tt.want, tt.conflicts)
			}
		})
	}
}

// TestEnded: an address is kept while any one sign says that its pod has it.
func TestEnded(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.5")
	kept := []Bar{{Pool: "lan", Addr: addr, To: pod("p", "ns/net", "10.0.0.5").grantee()}}
	quiet := map[protocol.NodeName]protocol.Report{"n1": {ID: "x"}}
	for _, tt := range []struct {
		name  string
		facts Facts
		dead  bool
		want  bool
	}{
		{"its pod shows it", Facts{Pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, Reports: quiet}, false, false},
		{"the other IPAM has a record", Facts{Records: []Record{{Addr: addr, PodNamespace: "ns", PodName: "p"}}, Reports: quiet}, false, false},
		{"its node has not answered", Facts{}, false, false},
		{"its node could not read all", Facts{Reports: map[protocol.NodeName]protocol.Report{"n1": {Unread: "something"}}}, false, false},
		{"a force-deleted pod still runs", Facts{Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}}}, false, false},
		{"nothing is left of it", Facts{Reports: quiet}, false, true},
		{"its node counts as dead", Facts{}, true, true},
	} {
		if got := len(Ended(tt.facts, kept, func(protocol.NodeName) bool { return tt.dead })) > 0; got != tt.want {
			t.Errorf("%s: ended is %v; want %v", tt.name, got, tt.want)
		}
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
		{"static", definition("d", `{"type":"static","addresses":[{"address":"10.0.0.77/24"}]}`), nil, "10.0.0.77-10.0.0.77"},
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

// The order of what is found does not depend on the order in which pods are read.
func TestFindOrdersTwoPodsOfOneAddress(t *testing.T) {
	one, two := pod("one", "ns/net", "10.0.0.2"), pod("two", "ns/net", "10.0.0.2")
	for _, pods := range [][]Pod{{one, two}, {two, one}} {
		bars, conflicts := Find(Facts{Now: now, Pools: []Pool{lan(t)}, Definitions: []Definition{switched}, Pods: pods})
		if len(bars) != 2 || bars[0].To.UID != "one" || bars[1].To.UID != "two" || len(conflicts) != 1 {
			t.Errorf("found %v with conflicts %v, want one, two, and a conflict", bars, conflicts)
		}
	}
}
