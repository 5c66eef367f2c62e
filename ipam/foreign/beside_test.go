package foreign

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// another is a pool of 10.0.0.0/24 beside lan.
func another(t *testing.T, name, domain string, implicit bool) *Pool {
	t.Helper()
	p := &Pool{Name: protocol.PoolName(name), Object: protocol.Pool{Bits4: 28}, Domain: domain, Implicit: implicit, Whole: shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.0/24"})}
	if poolspec.InDefaultDomain(name, domain) {
		p.Domain, p.Unnamed = "", true
	}
	return p
}

// TestBeside (I1): a definition that was another IPAM's has only its one word changed, and gets a
// second pool of the same addresses, or names one. What its pods have by the other IPAM is kept of
// both pools, unless they are of two domains, and people say so: they have written both, or the
// definitions of one of them have its domain as their annotation.
func TestBeside(t *testing.T) {
	const unnamed, blue, hostLocal = `{"type":"tenure","range":"10.0.0.0/24"}`, `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`, `{"type":"tenure","subnet":"10.0.0.0/24"}`
	const cidr, second = `{"type":"tenure","range":"10.0.0.0/24","enable_overlapping_ranges":false}`, `{"type":"tenure","pool":"second"}`
	for _, tt := range []struct {
		name       string
		domain     string // of lan
		implicit   bool   // is lan
		ipam       string
		annotation string
		beside     *Pool // nil: it is yet to be made
		want       bool
		own        string // the annotation of lan's own definition
	}{
		{"ranges without a name", "", false, unnamed, "", another(t, "range-10-0-0-0-24", "default-domain", true), true, ""},
		{"ranges without a name, beside a domain", "vlan10", false, unnamed, "", another(t, "range-10-0-0-0-24", "default-domain", true), true, ""},
		{"ranges without a name, of a pool that is yet to be made", "vlan10", false, unnamed, "", nil, true, ""},
		{"ranges without a name, of a person's pool", "", false, unnamed, "", another(t, "second", "default-domain", false), true, ""},
		{"ranges without a name, of a person's pool beside a domain", "vlan10", false, unnamed, "", another(t, "second", "default-domain", false), false, ""},
		{"ranges without a name that say so", "vlan10", false, unnamed, "default-domain", another(t, "range-10-0-0-0-24", "default-domain", true), false, ""},
		{"network_name", "", false, blue, "", another(t, "blue", "blue", true), true, ""},
		{"network_name, beside a domain", "vlan10", false, blue, "", another(t, "blue", "blue", true), true, ""},
		{"network_name, of a pool that is yet to be made", "", false, blue, "", nil, true, ""},
		{"network_name that is a domain", "vlan10", false, blue, "blue", another(t, "blue", "blue", true), false, ""},
		{"network_name, of a person's pool", "vlan10", false, blue, "", another(t, "blue", "vlan20", false), false, ""},
		{"network_name, of a person's pool of the domain", "vlan10", false, blue, "", another(t, "blue", "vlan10", false), true, ""},
		{"host-local", "", false, hostLocal, "", another(t, "net2", "net2", true), true, ""},
		{"host-local, another domain by its word", "", false, hostLocal, "net2", another(t, "net2", "net2", true), false, ""},
		{"host-local, of a person's pool", "vlan10", false, hostLocal, "", another(t, "net2", "vlan20", false), false, ""},
		{"CIDR", "", false, cidr, "", another(t, "10-0-0-0-24", "10-0-0-0-24", true), true, ""},
		{"people's pools of two domains", "vlan10", false, second, "", another(t, "second", "vlan20", false), false, ""},
		{"people's pools, one with a domain", "", false, second, "", another(t, "second", "vlan20", false), false, ""},
		{"people's pools without a domain", "", false, second, "", another(t, "second", "", false), true, ""},
		{"people's pools of one domain", "vlan10", false, second, "", another(t, "second", "vlan10", false), true, ""},
		{"a pool that the controller has made, beside a person's", "lan", true, second, "", another(t, "second", "vlan20", false), true, ""},
		{"a pool that the controller has made, beside a person's by its word", "lan", true, second, "vlan20", another(t, "second", "vlan20", false), false, ""},
		{"ranges without a name, and lan's own say of which domain it is", "vlan10", false, unnamed, "", another(t, "range-10-0-0-0-24", "default-domain", true), false, "vlan10"},
		{"a pool that is yet to be made, and lan's own say of which domain it is", "vlan10", false, hostLocal, "", nil, false, "vlan10"},
		{"lan's own say another domain than lan's", "vlan10", false, unnamed, "", another(t, "range-10-0-0-0-24", "default-domain", true), true, "vlan20"},
		{"lan's own say of which domain it is, and the other is of it", "vlan10", false, second, "", another(t, "second", "vlan10", false), true, "vlan10"},
	} {
		own := network("net", `{"type":"tenure","pool":"lan"}`, tt.own)
		d := network("net2", tt.ipam, tt.annotation)
		if d.Fault != "" {
			t.Fatalf("%s: %s", tt.name, d.Fault)
		}
		p := pod("p", "ns/net2", "10.0.0.5")
		hidden := p
		hidden.Shows = nil
		silent := map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}}
		for by, f := range map[string]Facts{
			"status": {Pods: []Pod{p}, Reports: silent},
			"record": {Pods: []Pod{hidden}, Reports: silent, Records: []Record{{Addr: netip.MustParseAddr("10.0.0.5"), Object: "10.0.0.0-24", PodNamespace: "ns", PodName: "p"}}},
			"node":   {Pods: []Pod{hidden}, Reports: seenBy("n1", sighting("10.0.0.5", "p", "net2"))},
		} {
			pool := openings(lan(t))
			pool.Domain, pool.Implicit = tt.domain, tt.implicit
			all := []*Pool{&pool}
			if tt.beside != nil {
				all = append(all, tt.beside)
			}
			Among(all)
			f.Definitions, f.Agents = []Definition{own, d}, map[protocol.NodeName]bool{"n1": true}
			if keep, _, _ := weighed(pool, f); (fmt.Sprint(keep) == "[10.0.0.5 p]") != tt.want || len(keep) > 1 {
				t.Errorf("%s, by %s: kept is %q; want it kept: %v", tt.name, by, keep, tt.want)
			}
		}
	}
}

// besides are lan, which is about to be opened, and a second pool of its addresses, which a
// definition has got that was another IPAM's until a moment ago.
func besides(t *testing.T) (lans *Pool, definitions []Definition) {
	t.Helper()
	p, second := openings(lan(t)), another(t, "range-10-0-0-0-24", "default-domain", true)
	p.Domain = "vlan10"
	Among([]*Pool{&p, second})
	d := network("net2", `{"type":"tenure","range":"10.0.0.0/24"}`, "")
	d.Changed = now.Add(-time.Second)
	return &p, []Definition{switched, d}
}

// TestBesideIsTenures: what the second pool has given is not kept of the first one, as its node or
// a lease says, also against a record of the other IPAM that is older.
func TestBesideIsTenures(t *testing.T) {
	tenures := sighting("10.0.0.5", "p", "net2")
	tenures.IPAM = Type
	says := map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}, Has: []protocol.Sighting{tenures}}}
	held := lease(protocol.Holder{Node: "n1"})
	told := held
	told.Published.Allocations = []string{"10.0.0.5 ns/p net1"}
	elsewhere := lease(protocol.Holder{Node: "n2"})
	record := []Record{{Addr: netip.MustParseAddr("10.0.0.5"), Object: "10.0.0.0-24", PodNamespace: "ns", PodName: "p"}}
	shows := pod("p", "ns/net2", "10.0.0.5")
	for _, tt := range []struct {
		name  string
		facts Facts
		lease protocol.Lease // of the second pool
		dead  bool           // is the node
		want  string
	}{
		{"its node says so", Facts{Reports: says}, held, false, "[]"},
		{"its node says so, and a record is older", Facts{Reports: says, Records: record}, held, false, "[]"},
		{"its node says so, without the lease, against a record", Facts{Reports: says, Records: record}, elsewhere, false, "[10.0.0.5 p]"},
		{"its node says nothing, and a lease does", Facts{}, told, true, "[]"},
		{"nobody says so", Facts{}, held, true, "[10.0.0.5 p]"},
	} {
		p, definitions := besides(t)
		f := tt.facts
		f.Definitions, f.Pods, f.Agents = definitions, []Pod{shows}, map[protocol.NodeName]bool{"n1": !tt.dead}
		f.Leases = map[protocol.PoolName][]protocol.Lease{"range-10-0-0-0-24": {tt.lease}}
		if keep, _, found := weighed(*p, f); fmt.Sprint(keep) != tt.want || found.Stage != StageClear {
			t.Errorf("%s: kept is %q, stage %d, %q; want %s", tt.name, keep, found.Stage, found.Why, tt.want)
		}
	}
}

// TestBesideIsWaitedFor: a pool waits for pods of a definition beside its own that may be about to
// get an address by the other IPAM, and for files of that one's network, as for its own. A pod that
// has asked the second pool may have an ADD under way for the next network.
func TestBesideIsWaitedFor(t *testing.T) {
	both := pod("p", "ns/net2", "")
	both.Selected = []string{"ns/net2", "ns/net"}
	asked := func(networks ...string) protocol.Report {
		r := protocol.Report{Running: []protocol.UID{"p"}, Asked: map[string][]protocol.UID{}}
		for _, n := range networks {
			r.Asked[n] = []protocol.UID{"p"}
		}
		return r
	}
	unseen := protocol.Report{Running: []protocol.UID{"p"}, Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "net2"}, Why: "no right"}}}
	for _, tt := range []struct {
		name  string
		pod   Pod
		says  protocol.Report
		since time.Duration
		want  Stage
	}{
		{"it shows nothing", pod("p", "ns/net2", ""), asked(), time.Second, StagePods},
		{"it has asked", pod("p", "ns/net2", ""), asked("net2"), time.Second, StageClear},
		{"it shows what it has, and its node has not seen that", pod("p", "ns/net2", "10.0.0.5"), asked(), time.Second, StagePods},
		{"files cannot be read", pod("p", "ns/net2", "10.0.0.5"), unseen, time.Second, StageReports},
		{"it has asked for one of two", both, asked("net2"), 3 * time.Minute, StagePods},
	} {
		p, definitions := besides(t)
		p.Since, definitions[1].Changed = now.Add(-tt.since), now.Add(-tt.since)
		_, _, found := weighed(*p, Facts{Definitions: definitions, Pods: []Pod{tt.pod}, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{"n1": tt.says}})
		if found.Stage != tt.want || !found.Asks["n1"] {
			t.Errorf("%s: stage %d, %q, asks %v; want %d", tt.name, found.Stage, found.Why, found.Asks, tt.want)
		}
	}
}

// TestBesideIsSaid: while something is kept for pods of a definition beside the pool's own, the
// pool names it and its pool. Later it names the first such definition alone, and none whose pool
// gives other addresses of the range.
func TestBesideIsSaid(t *testing.T) {
	for _, tt := range []struct {
		selects string // by the pod that something is kept for; empty if nothing is kept
		apart   bool   // the second pool has the other half of the range
		keeps   bool
		want    string
	}{
		{"ns/net2", false, true, "[ns/net2 (pool range-10-0-0-0-24)]"},
		{"ns/net2", true, false, "[]"},
		{"ns/net", false, false, "[ns/net2 (pool range-10-0-0-0-24)]"},
		{"ns/net2,ns/net", false, false, "[ns/net2 (pool range-10-0-0-0-24)]"},
		{"ns/gone", false, false, "[ns/net2 (pool range-10-0-0-0-24)]"},
		{"", false, false, "[ns/net2 (pool range-10-0-0-0-24)]"},
		{"", true, false, "[]"},
	} {
		p, definitions := besides(t)
		if tt.apart {
			p.Whole = shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.128/25"}})
			p.among.byName["range-10-0-0-0-24"].Whole = shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.0/25"}})
		}
		more := definitions[1]
		more.Name = "net3"
		definitions = append(definitions, more)
		it := pod("p", "ns/net2", "10.0.0.5")
		it.Selected = strings.Split(tt.selects, ",")
		kept := *p
		if tt.selects != "" {
			kept = keeps(it.grantee())(kept)
		}
		_, _, found := weighed(kept, Facts{Definitions: definitions, Pods: []Pod{it}, Agents: map[protocol.NodeName]bool{"n1": true}})
		if fmt.Sprint(found.Beside) != tt.want {
			t.Errorf("a pod of %q has something kept, the pools are apart %v: said is %v; want %s", tt.selects, tt.apart, found.Beside, tt.want)
		}
		for _, b := range found.Beside {
			if b.Domain != poolspec.DefaultDomain || !b.Implicit || b.Keeps != tt.keeps {
				t.Errorf("a pod of %q has something kept: said is %+v; want the other pool's domain, and that something is kept for its pods, %v", tt.selects, b, tt.keeps)
			}
		}
	}
}
