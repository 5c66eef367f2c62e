package foreign

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestPending: a pod that was bound before is waited for until its status or its ADD here
// tells, and no longer than a sandbox can take.
func TestPending(t *testing.T) {
	late := pod("late", "ns/net", "")
	late.Bound = now.Add(time.Minute)
	facts := Facts{
		Definitions: []Definition{switched}, Agents: map[protocol.NodeName]bool{"n1": true},
		Pods:    []Pod{pod("hangs", "ns/net", ""), pod("has", "ns/net", "10.0.0.5"), pod("other", "ns/elsewhere", ""), pod("asks", "ns/net", ""), late},
		Reports: map[protocol.NodeName]protocol.Report{"n1": {Asked: map[string][]protocol.UID{"net": {"asks"}}}},
	}
	p := lan(t)
	if _, _, found := weighed(p, facts); found.Stage != StagePods || !strings.Contains(found.Why, ": ns/hangs (definition ns/net). ") {
		t.Errorf("stage %d, %q; want that it waits for pod hangs", found.Stage, found.Why)
	}
	facts.Reports["n2"] = protocol.Report{Asked: map[string][]protocol.UID{"net": {"hangs"}}}
	facts.Agents["n2"] = true
	p.CheckAll = true // every node is asked
	if _, _, found := weighed(p, facts); found.Stage != StagePods {
		t.Errorf("stage %d, %q; want that another node's word on pod hangs does not count", found.Stage, found.Why)
	}
	for after, want := range map[time.Duration]Stage{
		9 * time.Minute:         StagePods, // the kubelet gives a sandbox four minutes, and CRI-O its network five more
		AddWithin + time.Second: StageClear,
	} {
		p.Since = now.Add(-after)
		if _, _, found := weighed(p, facts); found.Stage != want {
			t.Errorf("stage %d, %q after %v; want %d", found.Stage, found.Why, after, want)
		}
	}
}

// TestPendingThoughItShowsSomething: what a pod's status shows may be a text of somebody's, or of a
// sandbox before. Anybody can end the sandbox of a pod of theirs, which is then made anew.
func TestPendingThoughItShowsSomething(t *testing.T) {
	shows := func(addrs ...string) Pod {
		p := pod("p", "ns/net", "")
		for _, a := range addrs {
			p.Shows = append(p.Shows, npwg.Shown{Definition: "ns/net", Addrs: []netip.Addr{netip.MustParseAddr(a)}})
		}
		return p
	}
	twice := func(p Pod) Pod {
		p.Selected = append(p.Selected, "ns/net")
		return p
	}
	seen := func(a, ipam string) protocol.Sighting {
		return protocol.Sighting{Addr: netip.MustParseAddr(a), Pod: shows().PodRef, Sandbox: "box", Network: "net", IPAM: ipam}
	}
	for _, tt := range []struct {
		name    string
		pod     Pod
		has     []protocol.Sighting
		tellsNo bool
		want    Stage
	}{
		{"its node has seen it", shows("10.0.0.5"), []protocol.Sighting{seen("10.0.0.5", TypeHostLocal)}, false, StageClear},
		{"its node has seen nothing", shows("10.0.0.5"), nil, false, StagePods},
		{"its node has seen another address", shows("10.0.0.5"), []protocol.Sighting{seen("10.0.0.6", TypeHostLocal)}, false, StagePods},
		{"its node cannot tell", shows("10.0.0.5"), nil, true, StageClear},
		{"Tenure has given it", shows("10.0.0.5"), []protocol.Sighting{seen("10.0.0.5", Type)}, false, StageClear},
		{"it is of no pool", shows("10.9.0.5"), nil, false, StageClear},
		{"it selects the network twice, and shows one", twice(shows("10.0.0.5")), []protocol.Sighting{seen("10.0.0.5", TypeHostLocal)}, false, StagePods},
		{"its node has seen one of two", twice(shows("10.0.0.5", "10.0.0.6")), []protocol.Sighting{seen("10.0.0.5", TypeHostLocal)}, false, StagePods},
		{"its node has seen both", twice(shows("10.0.0.5", "10.0.0.6")), []protocol.Sighting{seen("10.0.0.5", TypeHostLocal), seen("10.0.0.6", TypeHostLocal)}, false, StageClear},
	} {
		r := protocol.Report{Has: tt.has, Running: []protocol.UID{"p"}}
		if tt.tellsNo {
			r.Running = nil
		}
		facts := Facts{
			Definitions: []Definition{switched}, Agents: map[protocol.NodeName]bool{"n1": true}, Pods: []Pod{tt.pod},
			Reports: map[protocol.NodeName]protocol.Report{"n1": r},
		}
		if _, _, found := weighed(lan(t), facts); found.Stage != tt.want {
			t.Errorf("%s: stage %d, %q; want %d", tt.name, found.Stage, found.Why, tt.want)
		}
	}
}

// TestPendingOfTwoNetworks: an ADD for one network of a pod does not tell that another IPAM is done
// with the next one, also of a network that every pod has without selecting it. A meta-plugin has
// read all definitions before the first ADD.
func TestPendingOfTwoNetworks(t *testing.T) {
	first := definition("first", `{"type":"tenure","pool":"another"}`)
	apart := definition("apart", `{"type":"bridge"}`)
	second := definition("second", `{"type":"tenure","pool":"lan"}`)
	named := ReadDefinition("ns", "named", `{"name":"net","type":"macvlan","ipam":{"type":"tenure","pool":"another"}}`, nil)
	for _, tt := range []struct {
		selected, asked string
		want            Stage
	}{
		{"net", "net", StageClear},
		{"net", "every", StagePods},
		{"first,net", "first", StagePods},
		{"first,net", "net", StageClear},
		{"net,net", "net", StageClear},
		{"net,second", "net", StagePods},
		{"net,second", "net,second", StageClear},
		{"apart,net", "net", StageClear},
		{"gone,net", "net", StagePods},
		{"named,net", "net", StagePods},
		{"net,named", "net", StagePods},
	} {
		p := pod("p", "", "")
		p.Selected = nil
		for name := range strings.SplitSeq(tt.selected, ",") {
			p.Selected = append(p.Selected, "ns/"+name)
		}
		asked := map[string][]protocol.UID{}
		for network := range strings.SplitSeq(tt.asked, ",") {
			asked[network] = []protocol.UID{"p"}
		}
		facts := Facts{
			Definitions: []Definition{switched, first, apart, second, named}, Agents: map[protocol.NodeName]bool{"n1": true}, Pods: []Pod{p},
			Reports: map[protocol.NodeName]protocol.Report{"n1": {Asked: asked}},
		}
		if _, _, found := weighed(lan(t), facts); found.Stage != tt.want {
			t.Errorf("of a pod of %s the ADDs for %s have come: stage %d, %q; want %d", tt.selected, tt.asked, found.Stage, found.Why, tt.want)
		}
	}
}

// TestPendingThatRetries: a pod of several networks of the pool, which has asked Tenure for one of
// them, is not waited for as long as others: its other ADDs come once the first has been answered.
func TestPendingThatRetries(t *testing.T) {
	second := definition("second", `{"type":"tenure","pool":"lan"}`)
	for _, tt := range []struct {
		asked string
		after time.Duration
		want  Stage
	}{
		{"net", 2 * time.Minute, StagePods}, {"net", 3 * time.Minute, StageClear}, {"every", 3 * time.Minute, StagePods},
	} {
		p := pod("p", "", "")
		p.Selected = []string{"ns/net", "ns/second"}
		of := lan(t)
		of.Since = now.Add(-tt.after)
		_, _, found := weighed(of, Facts{
			Definitions: []Definition{switched, second}, Agents: map[protocol.NodeName]bool{"n1": true}, Pods: []Pod{p},
			Reports: map[protocol.NodeName]protocol.Report{"n1": {Asked: map[string][]protocol.UID{tt.asked: {"p"}}}},
		})
		if found.Stage != tt.want {
			t.Errorf("%v after it asked for %s: stage %d, %q; want %d", tt.after, tt.asked, found.Stage, found.Why, tt.want)
		}
	}
}

// TestWhatToDoIsSaid: however long what a node says is, the reason goes on with what to do.
func TestWhatToDoIsSaid(t *testing.T) {
	p := lan(t)
	p.CheckAll = true
	for _, r := range []protocol.Report{
		{Unread: strings.Repeat("x", 90<<10)}, {Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "net"}, Why: strings.Repeat("x", 90<<10)}}},
	} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if r, _, err = protocol.ParseReport(string(text)); err != nil {
			t.Fatal(err)
		}
		_, _, found := weighed(p, Facts{
			Definitions: []Definition{switched}, Agents: map[protocol.NodeName]bool{"n1": true}, Pods: []Pod{pod("p", "ns/net", "10.0.0.5")},
			Reports: map[protocol.NodeName]protocol.Report{"n1": r},
		})
		if why := found.Why[:min(len(found.Why), 8<<10)]; !strings.HasPrefix(why, "what pods have may be where an agent cannot read it: node n1: xxx") || !strings.Contains(why, "kubectl annotate ippools lan") {
			t.Errorf("it says %.200q, in %d bytes; want what to do", found.Why, len(found.Why))
		}
	}
	if _, _, found := weighed(lan(t), Facts{Definitions: []Definition{switched}, Pods: []Pod{pod("hangs", "ns/net", "")}}); !strings.Contains(found.Why, ": ns/hangs (definition ns/net). Each is waited for until") {
		t.Errorf("it says %q; want what to do", found.Why)
	}
}

// TestPendingAfterADefinitionWasWritten: a definition that was written a moment ago may have been
// another IPAM's until then, although the pool has been open for long.
func TestPendingAfterADefinitionWasWritten(t *testing.T) {
	p := lan(t)
	p.Since = now.Add(-time.Hour)
	for _, tt := range []struct {
		changed time.Time
		want    Stage
	}{{now.Add(-time.Second), StagePods}, {now.Add(-AddWithin - time.Second), StageClear}, {time.Time{}, StageClear}} {
		d := switched
		d.Changed = tt.changed
		if _, _, found := weighed(p, Facts{Definitions: []Definition{d}, Pods: []Pod{pod("hangs", "ns/net", "")}}); found.Stage != tt.want {
			t.Errorf("written at %v: stage %d, %q; want %d", tt.changed, found.Stage, found.Why, tt.want)
		}
	}
}

// TestPendingAfterADefinitionIsGone: another has its place, of another name, and an ADD by the one
// that is gone may be under way.
func TestPendingAfterADefinitionIsGone(t *testing.T) {
	const ago = time.Minute
	gone := ReadDefinition("ns", "net", `{"name":"net","type":"macvlan","ipam":{"type":"host-local","subnet":"10.0.0.0/24"}}`, nil)
	apart := ReadDefinition("ns", "net", `{"name":"net","type":"macvlan","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}`, nil)
	ours := ReadDefinition("ns", "net", `{"name":"net","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`, nil)
	for _, tt := range []struct {
		name  string
		gone  Definition
		since time.Duration
		bound time.Duration
		want  Stage
	}{
		{"bound before", gone, ago, ago + time.Second, StagePods},
		{"bound since", gone, ago, ago - skew - time.Second, StageClear},
		{"gone for long", gone, AddWithin + time.Second, AddWithin + time.Minute, StageClear},
		{"of other addresses", apart, ago, ago + time.Second, StageClear},
		{"Tenure's", ours, ago, ago + time.Second, StageClear},
	} {
		in := switched
		in.Name, in.Since, in.Changed = "net-v2", now.Add(-time.Hour), now.Add(-time.Second)
		tt.gone.Changed = now.Add(-tt.since)
		p := pod("p", "ns/net", "")
		p.Bound = now.Add(-tt.bound)
		if _, _, found := weighed(lan(t), Facts{Definitions: []Definition{in}, Former: []Definition{tt.gone}, Pods: []Pod{p}}); found.Stage != tt.want {
			t.Errorf("%s: stage %d, %q; want %d", tt.name, found.Stage, found.Why, tt.want)
		}
	}
}

// TestPendingOfNewDefinitions: a definition that has always been Tenure's, and whose name no other
// one had, has no pod wait that was bound since.
func TestPendingOfNewDefinitions(t *testing.T) {
	const ago = time.Minute
	for _, tt := range []struct {
		name  string
		ipam  string
		since time.Time // of the definition
		bound time.Duration
		want  Stage
	}{
		{"bound since", Type, now.Add(-ago), ago - skew - time.Second, StageClear},
		{"bound before, when another may have had the name", Type, now.Add(-ago), ago + time.Second, StagePods},
		{"bound so soon that clocks do not tell", Type, now.Add(-ago), ago - skew + time.Second, StagePods},
		{"of a definition of which nobody knows since when", Type, time.Time{}, ago - skew - time.Second, StagePods},
		{"of another IPAM's definition", TypeWhereabouts, now.Add(-ago), ago - skew - time.Second, StagePods},
	} {
		d := switched
		d.IPAM, d.Since, d.Changed = tt.ipam, tt.since, now.Add(-time.Second)
		p := pod("p", "ns/net", "")
		p.Bound = now.Add(-tt.bound)
		if _, _, found := weighed(lan(t), Facts{Definitions: []Definition{d}, Pods: []Pod{p}}); found.Stage != tt.want {
			t.Errorf("%s: stage %d, %q; want %d", tt.name, found.Stage, found.Why, tt.want)
		}
	}
}

// TestAsks: only those nodes are asked of whose pods something is to be known, and nobody
// where no definition, record or status of another IPAM touches what waits.
func TestAsks(t *testing.T) {
	all := []string{"n1", "n2", "n3"}
	wider := func(p Pool) Pool { // open, with 10.0.0.128-10.0.0.254 added
		var added netipx.IPSetBuilder
		added.AddPrefix(netip.MustParsePrefix("10.0.0.128/25"))
		added.Intersect(p.Whole.Usable())
		p = open(p)
		p.New, _ = added.IPSet()
		return p
	}
	opening := func(p Pool) Pool { p.CheckAll = true; return p }
	record := []Record{{Addr: netip.MustParseAddr("10.0.0.200"), PodNamespace: "ns", PodName: "gone"}}
	for _, tt := range []struct {
		name    string
		pool    func(Pool) Pool
		pods    []Pod
		records []Record
		want    []string
	}{
		{"a new pool without pods", opening, nil, nil, nil},
		{"a new pool, and a pod of another network", opening, []Pod{pod("p", "ns/else", "10.1.0.5")}, nil, nil},
		{"a new pool, and a pod that shows an address of it", opening, []Pod{pod("p", "ns/net", "10.0.0.5")}, nil, all},
		{"a new pool, and a pod that may be about to get one", opening, []Pod{pod("p", "ns/net", "")}, nil, all},
		{"a wider pool, and a pod of what it had", wider, []Pod{pod("p", "ns/net", "10.0.0.5")}, nil, nil},
		{"a wider pool, and a pod bound long ago that shows nothing", wider, []Pod{pod("p", "ns/net", "")}, nil, nil},
		{"a wider pool, and a pod that shows an address of what was added", wider, []Pod{pod("p", "ns/net", "10.0.0.200")}, nil, []string{"n1"}},
		{"a new pool of which whereabouts has objects, without pods", func(p Pool) Pool { p.CheckAll, p.Fenced = true, true; return p }, nil, nil, all},
		{"a wider pool of which whereabouts has objects, without pods", func(p Pool) Pool { p = wider(p); p.Fenced = true; return p }, nil, nil, all},
		{"a wider pool, and a record in what was added of a pod that nobody knows", wider, nil, record, all},
		{"an open pool of which nothing waits", open, []Pod{pod("p", "ns/net", "10.0.0.5")}, nil, nil},
		{"an open pool, and a pod that shows what is kept for a pod of another node", func(p Pool) Pool {
			there := pod("q", "", "")
			there.Node = "n2"
			return keeps(there.grantee())(open(p))
		}, []Pod{pod("p", "ns/theirs", "10.0.0.5")}, nil, []string{"n1", "n2"}},
		{"an open pool, and a pod of another IPAM's definition", open, []Pod{pod("p", "ns/theirs", "10.0.0.5")}, nil, []string{"n1"}},
	} {
		facts := Facts{
			Definitions: []Definition{switched, theirs}, Pods: tt.pods, Records: tt.records,
			Agents: map[protocol.NodeName]bool{"n1": true, "n2": true, "n3": true, "n4": false},
		}
		for _, answer := range []map[protocol.NodeName]protocol.Report{nil, {"n1": {Running: []protocol.UID{"p"}}}, seenBy("n1", sighting("10.0.0.5", "p", "net"))} {
			facts.Reports = answer
			_, _, found := weighed(tt.pool(lan(t)), facts)
			var nodes []string
			for node := range found.Asks {
				nodes = append(nodes, string(node))
			}
			if slices.Sort(nodes); !slices.Equal(nodes, tt.want) {
				t.Errorf("%s: asks %v; want %v, whatever n1 answers", tt.name, nodes, tt.want)
			}
		}
	}
}

// TestAsksOfNetworksThatPodsDoNotSelect: a pod that has a network by default does not select it.
// What its status shows is a reason to ask the nodes before the pool opens, and what a node has
// seen is kept. 10.0.0.9 is excluded of the pool.
func TestAsksOfNetworksThatPodsDoNotSelect(t *testing.T) {
	for addr, want := range map[string]bool{"10.0.0.5": true, "10.0.0.9": false, "10.1.0.5": false} {
		for name, pool := range map[string]func(Pool) Pool{"opens": openings, "is open": open} {
			f := Facts{
				Definitions: []Definition{switched}, Others: map[protocol.UID]bool{"p": true}, Shown: []netip.Addr{netip.MustParseAddr(addr)},
				Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{},
			}
			_, _, found := weighed(pool(lan(t)), f)
			asks := want && name == "opens"
			if found.Asks["n1"] != asks || (found.Stage == StageReports) != asks {
				t.Errorf("a pod shows %s, and the pool %s: asks %v, stage %v; want it to ask: %v", addr, name, found.Asks, found.Stage, asks)
			}
			f.Reports = seenBy("n1", sighting("10.0.0.5", "p", "net"))
			if keep, _, found := weighed(pool(lan(t)), f); asks && (fmt.Sprint(keep) != "[10.0.0.5 p]" || found.Stage != StageClear) {
				t.Errorf("its node has seen it: kept is %q, stage %v", keep, found.Stage)
			}
		}
	}
}

// TestUnseen: a pool waits where a node's agent cannot read what host-local may have given of it,
// until somebody says that the status of the pods tells all.
func TestUnseen(t *testing.T) {
	shelf := definition("shelf", `{"type":"tenure","ranges":[[{"subnet":"10.0.0.0/24"}]],"dataDir":"/srv/nfs"}`)
	shelf.Pools = []string{"lan"}
	facts := Facts{Definitions: []Definition{shelf, switched}, Pods: []Pod{pod("p", "ns/net", "")}, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{"n1": {Unseen: []protocol.Unseen{
		{HostLocal: protocol.HostLocal{Network: "shelf", DataDir: "/srv/nfs"}, Why: "cannot read /srv/nfs/shelf"},
		{HostLocal: protocol.HostLocal{Network: "else"}, Why: "is not of this segment"},
	}}}}
	p := lan(t)
	p.CheckAll = true
	if _, _, found := weighed(p, facts); found.Stage != StageReports || !strings.Contains(found.Why, "it: node n1: cannot read /srv/nfs/shelf. Have") {
		t.Errorf("stage %d, %q", found.Stage, found.Why)
	}
	facts.Definitions[0].Namespace, p.MayUse = "stranger", func(namespace string) bool { return namespace == "ns" }
	if _, _, found := weighed(p, facts); found.Stage != StagePods {
		t.Errorf("of a definition whose namespace may not use the pool: stage %d, %q", found.Stage, found.Why)
	}
	mays := facts
	mays.Pods = append(slices.Clone(facts.Pods), pod("q", "stranger/shelf", ""))
	if _, _, found := weighed(p, mays); found.Stage != StageReports {
		t.Errorf("of such a one, by which a pod that may use the pool gets its addresses: stage %d, %q", found.Stage, found.Why)
	}
	facts.Definitions[0].Namespace, p.MayUse, p.TrustStatus = "ns", nil, true
	if _, _, found := weighed(p, facts); found.Stage != StagePods {
		t.Errorf("after the word that the status tells all: stage %d, %q", found.Stage, found.Why)
	}
}

// TestLetIsNotWaitedFor: what a person says of a definition in spec.shareWith is the last word.
// Who writes that definition anew, or names what no agent can read, holds up nothing.
func TestLetIsNotWaitedFor(t *testing.T) {
	d := definition("theirs", `{"type":"host-local","subnet":"10.0.0.0/24","dataDir":"/proc/1/mem"}`)
	d.Changed = now.Add(-time.Minute)
	unread := protocol.Unseen{HostLocal: protocol.HostLocal{Network: "theirs", DataDir: d.DataDir}, Why: "no directory"}
	for _, tt := range []struct {
		name  string
		pods  []Pod
		says  protocol.Report
		share string
		want  Stage
	}{
		{"its pod shows nothing", []Pod{pod("p", "ns/theirs", "")}, protocol.Report{}, "", StagePods},
		{"its pod shows nothing", []Pod{pod("p", "ns/theirs", "")}, protocol.Report{}, "ns/theirs", StageClear},
		{"its files cannot be read", nil, protocol.Report{Unseen: []protocol.Unseen{unread}}, "", StageReports},
		{"its files cannot be read", nil, protocol.Report{Unseen: []protocol.Unseen{unread}}, "ns/theirs", StageClear},
	} {
		p := openings(lan(t))
		p.ShareWith = []string{tt.share}
		_, _, found := weighed(p, Facts{
			Definitions: []Definition{switched, d}, Pods: tt.pods, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: map[protocol.NodeName]protocol.Report{"n1": tt.says},
		})
		if found.Stage != tt.want {
			t.Errorf("%s, shared with %q: stage %d, %q; want %d", tt.name, tt.share, found.Stage, found.Why, tt.want)
		}
	}
}
