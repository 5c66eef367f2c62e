package foreign

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

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
// the first pool, unless people say that the networks are two: they have written both pools, with
// two domains, or the owner of one says that it shares nothing with the other.
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
		share      string // lan's owner says of it that it shares nothing
	}{
		{"ranges without a name", "", false, unnamed, "", another(t, "range-10-0-0-0-24", "default-domain", true), true, ""},
		{"ranges without a name, beside a domain", "vlan10", false, unnamed, "", another(t, "range-10-0-0-0-24", "default-domain", true), true, ""},
		{"ranges without a name, of a pool that is yet to be made", "vlan10", false, unnamed, "", nil, true, ""},
		{"ranges without a name, of a pool that is yet to be made, and shares nothing", "vlan10", false, unnamed, "", nil, false, "range-10-0-0-0-24"},
		{"ranges without a name, of a person's pool", "", false, unnamed, "", another(t, "second", "default-domain", false), true, ""},
		{"ranges without a name, of a person's pool beside a domain", "vlan10", false, unnamed, "", another(t, "second", "default-domain", false), false, ""},
		{"ranges without a name that say so", "vlan10", false, unnamed, "default-domain", another(t, "range-10-0-0-0-24", "default-domain", true), false, ""},
		{"ranges without a name, of a pool that shares nothing", "", false, unnamed, "", another(t, "range-10-0-0-0-24", "default-domain", true), false, "range-10-0-0-0-24"},
		{"network_name", "", false, blue, "", another(t, "blue", "blue", true), true, ""},
		{"network_name, beside a domain", "vlan10", false, blue, "", another(t, "blue", "blue", true), true, ""},
		{"network_name, of a pool that is yet to be made", "", false, blue, "", nil, true, ""},
		{"network_name that is a domain", "vlan10", false, blue, "blue", another(t, "blue", "blue", true), false, ""},
		{"network_name, of a person's pool", "vlan10", false, blue, "", another(t, "blue", "vlan20", false), false, ""},
		{"network_name, of a person's pool of the domain", "vlan10", false, blue, "", another(t, "blue", "vlan10", false), true, ""},
		{"network_name, beside a pool that the controller has made", "lan", true, blue, "", another(t, "blue", "blue", true), true, ""},
		{"network_name, of a pool that is yet to be made, beside one that the controller has made", "lan", true, blue, "", nil, true, ""},
		{"host-local", "", false, hostLocal, "", another(t, "net2", "net2", true), true, ""},
		{"host-local, another domain by its word", "", false, hostLocal, "net2", another(t, "net2", "net2", true), false, ""},
		{"host-local, of a person's pool", "vlan10", false, hostLocal, "", another(t, "net2", "vlan20", false), false, ""},
		{"CIDR", "", false, cidr, "", another(t, "10-0-0-0-24", "10-0-0-0-24", true), true, ""},
		{"people's pools of two domains", "vlan10", false, second, "", another(t, "second", "vlan20", false), false, ""},
		{"people's pools, one with a domain", "", false, second, "", another(t, "second", "vlan20", false), false, ""},
		{"people's pools without a domain", "", false, second, "", another(t, "second", "", false), true, ""},
		{"people's pools without a domain, one shares nothing with the other", "", false, second, "", another(t, "second", "", false), false, "second"},
		{"people's pools of one domain", "vlan10", false, second, "", another(t, "second", "vlan10", false), true, ""},
		{"a pool that the controller has made, beside a person's", "lan", true, second, "", another(t, "second", "vlan20", false), true, ""},
		{"a pool that the controller has made, beside a person's by its word", "lan", true, second, "vlan20", another(t, "second", "vlan20", false), false, ""},
	} {
		own := network("net", `{"type":"tenure","pool":"lan"}`, "")
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
			pool.Domain, pool.Implicit, pool.ShareWith = tt.domain, tt.implicit, []string{tt.share}
			all := []*Pool{&pool}
			if tt.beside != nil {
				all = append(all, tt.beside)
			}
			Among(all, []Definition{own, d})
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
	d := network("net2", `{"type":"tenure","range":"10.0.0.0/24"}`, "")
	d.Changed = now.Add(-time.Second)
	definitions = []Definition{switched, d}
	Among([]*Pool{&p, second}, definitions)
	return &p, definitions
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

// TestBesides (I1): of pools that may be of one segment one goes first: it is open, or about to be;
// or it has been open; or it is the oldest. The others do not give its addresses.
func TestBesides(t *testing.T) {
	none := func(_, _ *Pool) {}
	person, made := another(t, "second", "", false), another(t, "second", "second", true)
	for _, tt := range []struct {
		name       string
		second     *Pool // an hour older than lan
		change     func(lan, second *Pool)
		lan, other string // what lan has beside it, and what second has
	}{
		{"both are about to be made", person, none, "second first", "lan"},
		{"both are about to be made, of one age", person, func(lan, second *Pool) { second.Made = lan.Made }, "second", "lan first"},
		{"the older is open", person, func(_, second *Pool) { second.Opens, second.Fresh = true, false }, "second first", "lan"},
		{"the younger is open", person, func(lan, _ *Pool) { lan.Opens, lan.Fresh, lan.Begins = true, false, false }, "second", "lan first"},
		{"the younger is about to be opened", person, func(lan, _ *Pool) { lan.Opens = true }, "second", "lan first"},
		{"the younger has been open", person, func(lan, _ *Pool) { lan.Fresh = false }, "second", "lan first"},
		{"both are open", person, func(lan, second *Pool) { lan.Opens, second.Opens = true, true }, "second first", "lan first"},
		{"both have been open, the younger is", person, func(lan, second *Pool) {
			lan.Opens, lan.Begins, lan.Fresh, second.Begins, second.Fresh = true, false, false, false, false
		}, "second first", "lan first"},
		{"the older is closed for a while, the younger has been stopped", person, func(lan, second *Pool) {
			lan.Begins, lan.Fresh, second.Begins, second.Fresh = true, false, false, false
		}, "second first", "lan first"},
		{"the younger is closed for a while, the older has been stopped", person, func(lan, second *Pool) { lan.Begins, lan.Fresh, second.Fresh = false, false, false }, "second first", "lan first"},
		{"the controller has made one", made, none, "second first", "lan"},
		{"the controller has made both, of two networks", made, func(lan, _ *Pool) { lan.Implicit, lan.Domain = true, "lan" }, "", ""},
		{"the owner of one says that it shares nothing", made, func(lan, second *Pool) { second.Opens, lan.ShareWith = true, []string{"second"} }, "", ""},
		{"two domains", another(t, "second", "vlan6", false), none, "", ""},
		{"one domain that is named: the reconciler sees to it", another(t, "second", "vlan5", false), func(lan, second *Pool) { lan.Domain, lan.Named, second.Named = "vlan5", "vlan5", "vlan5" }, "", ""},
		{"the default domain, which one names", another(t, "second", "default-domain", false), func(_, second *Pool) { second.Named = "default-domain" }, "second first", "lan"},
		{"they part the range", person, func(lan, second *Pool) {
			lan.Whole = shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.128/25"}})
			second.Whole = shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.0/25"}})
		}, "", ""},
	} {
		first, second := openings(lan(t)), *tt.second
		first.Fresh, second.Fresh, first.Begins, second.Begins, first.Made, second.Made = true, true, true, true, now, now.Add(-time.Hour)
		tt.change(&first, &second)
		Among([]*Pool{&first, &second}, []Definition{switched, network("net2", `{"type":"tenure","pool":"second"}`, "")})
		for _, side := range []struct {
			of   *Pool
			want string
		}{{&first, tt.lan}, {&second, tt.other}} {
			var got []string
			for _, b := range side.of.Besides() {
				got = append(got, b.Pool)
				if b.First {
					got = append(got, "first")
				}
				if b.Definition == "" || b.Lease != "" || b.Implicit != side.of.among.byName[protocol.PoolName(b.Pool)].Implicit {
					t.Errorf("%s: pool %s has %+v beside it", tt.name, side.of.Name, b)
				}
			}
			taken := len(side.of.Taken().Ranges()) > 0
			if strings.Join(got, " ") != side.want || taken != strings.Contains(side.want, "first") {
				t.Errorf("%s: pool %s has %q beside it, and others give its addresses: %v; want %q", tt.name, side.of.Name, got, taken, side.want)
			}
		}
	}
}

// TestBothWithhold: of addresses that edits add to two open pools the older one gets them.
func TestBothWithhold(t *testing.T) {
	first, second := lan(t), *another(t, "second", "", false)
	first.Made, second.Made = now, now.Add(-time.Hour)
	added := shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.0/24", Start: "10.0.0.200"}).Usable()
	first.Opens, first.Withheld, second.Opens, second.Withheld = true, added, true, added
	Among([]*Pool{&first, &second}, nil)
	a := netip.MustParseAddr("10.0.0.201")
	if !first.Taken().Contains(a) || second.Taken().Contains(a) {
		t.Errorf("of what both withhold others have of lan %v, and of second, which is older, %v; want true, false", first.Taken().Contains(a), second.Taken().Contains(a))
	}
}

// TestLingering (I1): a pool is not opened while another one still keeps addresses of it by a
// lease: the other's ranges have moved away, or exclude what somebody has.
func TestLingering(t *testing.T) {
	granted, published, away := lease(protocol.Holder{}), lease(protocol.Holder{Node: "n1"}), lease(protocol.Holder{Node: "n1"})
	granted.Grants = []protocol.Grant{{Addr: netip.MustParseAddr("10.0.0.5"), To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c"}}}
	kept := lease(protocol.Holder{})
	kept.Grants = []protocol.Grant{{Addr: netip.MustParseAddr("10.0.0.5"), To: protocol.Grantee{Kind: protocol.GranteePod, UID: "p", Node: "n1"}}}
	ceded := lease(protocol.Holder{})
	ceded.Published.Allocations = []string{"10.0.0.5 ns/p net1"}
	published.Published.Allocations = []string{"10.0.0.5 ns/p net1"}
	away.Block = netip.MustParsePrefix("10.9.0.0/28")
	half := poolspec.RangeText{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.0/25"}}
	for _, tt := range []struct {
		name   string
		ranges poolspec.RangeText // of second; none: its spec is faulty
		domain string             // of second
		lease  protocol.Lease
		want   bool
	}{
		{"it excludes since a moment ago what a node may have given", half, "just edited", lease(protocol.Holder{Node: "n1"}), true},
		{"its spec is faulty", poolspec.RangeText{}, "", lease(protocol.Holder{Node: "n1"}), true},
		{"its ranges have moved", poolspec.RangeText{CIDR: "10.9.0.0/24"}, "", lease(protocol.Holder{Node: "n1"}), true},
		{"the lease is of other addresses", poolspec.RangeText{CIDR: "10.9.0.0/24"}, "", away, false},
		{"it excludes what nobody has", half, "", lease(protocol.Holder{Node: "n1"}), false},
		{"it excludes what a pod has", half, "", published, true},
		{"it excludes what a pod had by a lease that is the cluster's now", half, "", ceded, false},
		{"it excludes what a claim has", half, "", granted, true},
		{"its ranges have moved, and it keeps what a pod has by another IPAM", poolspec.RangeText{CIDR: "10.9.0.0/24"}, "", kept, false},
		{"it is of another segment", half, "vlan6", granted, false},
	} {
		first, second := openings(lan(t)), another(t, "second", tt.domain, false)
		first.Begins = true
		if second.Edited = now.Add(-saidWithin); tt.domain == "just edited" {
			second.Domain, second.Edited = "", now.Add(-saidWithin+time.Second)
		}
		if second.Whole = nil; tt.ranges.CIDR != "" {
			second.Whole = shapeOf(t, tt.ranges)
		}
		definitions := []Definition{switched}
		Among([]*Pool{&first, second}, definitions)
		answered := map[protocol.NodeName]protocol.Report{"n1": {}}
		_, _, found := weighed(first, Facts{Definitions: definitions, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: answered, Leases: map[protocol.PoolName][]protocol.Lease{"second": {tt.lease}}})
		if len(found.Lingering) > 0 != tt.want || (found.Stage == StageOthers) != tt.want {
			t.Errorf("%s: %+v, stage %d; want that it waits: %v", tt.name, found.Lingering, found.Stage, tt.want)
		}
		if tt.want && (!found.Lingering[0].First || !strings.Contains(found.Lingering[0].Lease, "10.0.0.0/28")) {
			t.Errorf("%s: says %+v", tt.name, found.Lingering[0])
		}
	}
	gives := map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.5"), Pod: protocol.PodRef{UID: "p"}, Network: "net2", IPAM: Type}}}}
	// A node is asked what it has given of a block that the other pool has now excluded in part.
	for _, tt := range []struct {
		says  map[protocol.NodeName]protocol.Report
		stage Stage
		own   bool // the node holds the address of lan, too
		dead  bool
	}{
		{nil, StageReports, false, false},
		{nil, StageOthers, false, true},
		{map[protocol.NodeName]protocol.Report{"n1": {}}, StageClear, false, false},
		{gives, StageOthers, false, false},
		{gives, StageClear, true, false},
	} {
		p, second := openings(lan(t)), another(t, "second", "", false)
		second.Whole, p.Begins = shapeOf(t, half), true
		leases := map[protocol.PoolName][]protocol.Lease{"second": {lease(protocol.Holder{Node: "n1"})}}
		if tt.own {
			leases["lan"] = leases["second"]
		}
		Among([]*Pool{&p, second}, nil)
		_, _, found := weighed(p, Facts{Agents: map[protocol.NodeName]bool{"n1": !tt.dead}, Reports: tt.says, Leases: leases})
		if found.Asks["n1"] == tt.dead || found.Stage != tt.stage {
			t.Errorf("the node says %+v, is dead %v: asks %v, stage %d; want %d", tt.says, tt.dead, found.Asks, found.Stage, tt.stage)
		}
	}

	// What a pool has had it has, also while it is closed for a while.
	for _, tt := range []struct {
		name     string
		withheld []string
		want     bool
	}{{"it was open", nil, false}, {"it was open, and withholds others", []string{"10.0.0.200"}, false}, {"it was open, and withholds one", []string{"10.0.0.5"}, true}} {
		p, second := openings(lan(t)), another(t, "second", "", false)
		second.Whole = shapeOf(t, half)
		if tt.withheld != nil {
			p.Withheld = setOf(t, tt.withheld...)
		}
		Among([]*Pool{&p, second}, nil)
		_, _, found := weighed(p, Facts{Leases: map[protocol.PoolName][]protocol.Lease{"second": {published}}})
		if len(found.Lingering) > 0 != tt.want {
			t.Errorf("%s: %+v; want that it waits: %v", tt.name, found.Lingering, tt.want)
		}
	}
}

// setOf is some addresses.
func setOf(t *testing.T, addrs ...string) *netipx.IPSet {
	t.Helper()
	var b netipx.IPSetBuilder
	for _, a := range addrs {
		b.Add(netip.MustParseAddr(a))
	}
	set, err := b.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestLingeringByALeaseNotRead (I1): a pool has lost addresses by an edit, and its node has given
// one of them by a lease that was made since the leases were read.
func TestLingeringByALeaseNotRead(t *testing.T) {
	p, o := openings(lan(t)), another(t, "old", "", false)
	p.Fresh, p.Begins, p.Unnamed, o.Unnamed = true, true, true, true
	o.Whole = shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.128/25"})
	o.Edited, o.Opens = now.Add(-3*time.Second), true
	gives := sighting("10.0.0.5", "x", "oldnet")
	gives.IPAM, gives.Pool = Type, "old"
	facts := Facts{
		Definitions: []Definition{switched, readNetwork("ns", "oldnet", "oldnet", `{"type":"tenure","pool":"old"}`)},
		Pods:        []Pod{pod("x", "ns/oldnet", "10.0.0.5")}, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: seenBy("n1", gives),
	}
	Among([]*Pool{o, &p}, facts.Definitions)
	if _, _, f := weighed(p, facts); len(f.Lingering) != 1 || f.Lingering[0].Pool != "old" {
		t.Errorf("stage %d, beside %+v; want that it waits for pool old", f.Stage, f.Lingering)
	}
}
