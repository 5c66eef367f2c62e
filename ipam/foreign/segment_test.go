package foreign

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// made is the implicit pool that the controller makes of a definition, with the ranges of lan.
func made(t *testing.T, d Definition) Pool {
	t.Helper()
	p := openings(lan(t))
	p.Name, p.Implicit = protocol.PoolName(d.PoolsThen[0]), true
	if p.Unnamed = d.Unnamed; !d.Unnamed {
		p.Domain = d.PoolsThen[0]
	}
	return p
}

// network is a definition whose network has its name.
func network(name, ipam, domain string) Definition {
	return ReadDefinition("ns", name, fmt.Sprintf(`{"name":%q,"type":"macvlan","ipam":%s}`, name, ipam), map[string]string{"tenure.dev/domain": domain})
}

// TestSegmentOfOwnDefinitions: whatever a definition says of its segment, it is of that of its own
// pool. What running pods have by it is kept, and the pool waits for another that says the same.
func TestSegmentOfOwnDefinitions(t *testing.T) {
	for _, tt := range []struct{ ipam, then, domain string }{
		{`{"type":"IPAM","range":"10.0.0.0/24","network_name":"blue"}`, "whereabouts", ""},
		{`{"type":"IPAM","range":"10.0.0.0/24","network_name":"blue.net"}`, "whereabouts", ""},
		{`{"type":"IPAM","range":"10.0.0.0/24","network_name":"blue","enable_overlapping_ranges":false}`, "whereabouts", ""},
		{`{"type":"IPAM","range":"10.0.0.0/24"}`, "whereabouts", "vlan20"},
		{`{"type":"IPAM","range":"10.0.0.0/24"}`, "whereabouts", "default-domain"},
		{`{"type":"IPAM","range":"10.0.0.0/24","pool":"lan"}`, "whereabouts", "vlan20"},
		{`{"type":"IPAM","subnet":"10.0.0.0/24"}`, "host-local", ""},
		{`{"type":"IPAM","subnet":"10.0.0.0/24"}`, "host-local", "vlan10"},
	} {
		own := network("net", strings.Replace(tt.ipam, "IPAM", "tenure", 1), tt.domain)
		if own.Fault != "" { // a pool that is named has no range
			own = network("net", `{"type":"tenure","pool":"lan"}`, tt.domain)
		}
		still := network("still", strings.Replace(tt.ipam, "IPAM", tt.then, 1), tt.domain)
		p := made(t, own)
		keep, _, _ := weighed(p, Facts{
			Definitions: []Definition{own}, Pods: []Pod{pod("p", "ns/net", "10.0.0.5")}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: seenBy("n1", sighting("10.0.0.5", "p", "net")),
		})
		if fmt.Sprint(keep) != "[10.0.0.5 p]" {
			t.Errorf("%s of domain %q: kept is %q; want what its pod has", tt.ipam, tt.domain, keep)
		}
		if by, _ := p.Others([]Definition{own, still}); len(by) != 1 {
			t.Errorf("%s of domain %q: pool %s waits for %v; want the other definition", tt.ipam, tt.domain, p.Name, by)
		}
	}
}

// TestSegmentOfADomain: a definition says by the annotation of which pool's domain it is. A
// network_name tells it apart where the pool's own definitions all have one: the pool's domain says
// nothing of it.
func TestSegmentOfADomain(t *testing.T) {
	whereabouts := func(network, domain string) Definition {
		return ReadDefinition("ns", "theirs", fmt.Sprintf(`{"name":"theirs","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":%q}}`, network), map[string]string{"tenure.dev/domain": domain})
	}
	tenures := func(ipam string) func(*testing.T) (Pool, Definition) {
		return func(t *testing.T) (Pool, Definition) {
			d := network("net", ipam, "")
			return made(t, d), d
		}
	}
	persons := func(domain string) func(*testing.T) (Pool, Definition) {
		return func(t *testing.T) (Pool, Definition) {
			p := openings(lan(t))
			if p.Domain = domain; poolspec.InDefaultDomain("lan", domain) {
				p.Domain, p.Unnamed = "", true
			}
			return p, switched
		}
	}
	annotated := func(t *testing.T) (Pool, Definition) {
		p, _ := persons("vlan10")(t)
		return p, network("net", `{"type":"tenure","pool":"lan"}`, "vlan10")
	}
	described := func(t *testing.T) (Pool, Definition) {
		p, _ := persons("vlan10")(t)
		p.Name = "blue"
		return p, network("net", `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`, "")
	}
	blue, hostLocal := tenures(`{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`), tenures(`{"type":"tenure","subnet":"10.0.0.0/24"}`)
	cidr, unnamed := tenures(`{"type":"tenure","range":"10.0.0.0/24","enable_overlapping_ranges":false}`), tenures(`{"type":"tenure","range":"10.0.0.0/24"}`)
	for _, tt := range []struct {
		name            string
		of              func(*testing.T) (Pool, Definition)
		network, domain string
		other           bool
	}{
		{"the same network_name", blue, "blue", "", false},
		{"another network_name", blue, "red", "", true},
		{"none, beside a network_name", blue, "", "", false},
		{"an annotation of the network_name", blue, "", "blue", false},
		{"another annotation", blue, "", "vlan20", true},
		{"an annotation of the default domain, beside a network_name", blue, "", "default-domain", true},
		{"a network_name beside host-local's", hostLocal, "blue", "", false},
		{"an annotation beside host-local's", hostLocal, "", "vlan20", true},
		{"a network_name beside a CIDR's pool", cidr, "blue", "", false},
		{"a network_name beside a definition without", unnamed, "blue", "", false},
		{"an annotation beside a definition without", unnamed, "", "vlan20", true},
		{"an annotation of the default domain", unnamed, "", "default-domain", false},
		{"the person's domain", persons("vlan10"), "", "vlan10", false},
		{"another than the person's domain", persons("vlan10"), "", "vlan20", true},
		{"the person's domain as the network_name", persons("vlan10"), "vlan10", "", false},
		{"another network_name than the person's domain", persons("vlan10"), "blue", "", false},
		{"a network_name beside an annotation", annotated, "blue", "", false},
		{"another network_name, and a person's pool that a definition describes", described, "red", "", false},
		{"the default domain, and a pool without", persons(""), "", "default-domain", false},
		{"the default domain, and a person's pool of it", persons("default-domain"), "", "default-domain", false},
		{"a network_name, and a pool without a domain", persons(""), "blue", "", false},
		{"an annotation, and a pool without a domain", persons(""), "", "vlan20", true},
	} {
		p, own := tt.of(t)
		if by, _ := p.Others([]Definition{own, whereabouts(tt.network, tt.domain)}); (len(by) == 0) != tt.other {
			t.Errorf("%s: it is of another segment: %v; want %v", tt.name, len(by) == 0, tt.other)
		}
	}
}

// TestStrangersNameNoSegment (I1): a person's pool waits for a definition of whereabouts', also if
// somebody else writes one that names the pool and has another network_name, or describes it.
func TestStrangersNameNoSegment(t *testing.T) {
	theirs := network("w", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, "")
	for _, ipam := range []string{`{"type":"tenure","pool":"lan2","network_name":"zzz"}`, `{"type":"tenure","range":"10.0.0.0/16","network_name":"lan2"}`} {
		p := openings(lan(t))
		p.Name, p.Domain, p.Named, p.Fresh, p.Begins = "lan2", "wire2", "wire2", true, true
		p.MayUse = func(namespace string) bool { return namespace == "ns" }
		stranger := ReadDefinition("other", "x", `{"name":"x","type":"macvlan","ipam":`+ipam+`}`, nil)
		facts := Facts{
			Definitions: []Definition{theirs, stranger}, Pods: []Pod{pod("p", "ns/w", "10.0.0.5")}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: seenBy("n1", sighting("10.0.0.5", "p", "w")),
		}
		by, _ := p.Others(facts.Definitions)
		if keep, _, _ := weighed(p, facts); len(by) != 1 || len(keep) != 1 {
			t.Errorf("%s: it waits for %v, and keeps %q; want ns/w, and what its pod has", ipam, by, keep)
		}
	}
}

// TestSegmentOfNobody: where no definition is left of an implicit pool, no network_name is another.
func TestSegmentOfNobody(t *testing.T) {
	blue := network("net", `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`, "")
	red := network("red", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"red"}`, "")
	if by, _ := made(t, blue).Others([]Definition{red}); len(by) != 1 {
		t.Errorf("a pool of which nobody says what it is waits for %v; want ns/red", by)
	}
}

// TestOtherSegmentsKeepNothing: what pods have on another segment's network, with the same numbers,
// is not kept, and keeps the pool from nothing.
func TestOtherSegmentsKeepNothing(t *testing.T) {
	blue := network("net", `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`, "")
	for _, other := range []Definition{
		network("red", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"red"}`, ""),
		network("red", `{"type":"tenure","range":"10.0.0.0/24","network_name":"red"}`, ""),
		network("red", `{"type":"host-local","subnet":"10.0.0.0/24"}`, "vlan20"),
	} {
		keep, conflicts, found := weighed(made(t, blue), Facts{
			Definitions: []Definition{blue, other}, Pods: []Pod{pod("p", "ns/red", "10.0.0.5")}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: seenBy("n1", sighting("10.0.0.5", "p", "red")),
			Records: []Record{{Addr: netip.MustParseAddr("10.0.0.5"), Object: "10.0.0.0-24", PodNamespace: "ns", PodName: "p"}},
		})
		if len(keep)+len(conflicts) > 0 || found.Stage != StageClear {
			t.Errorf("beside %s of %s it keeps %q, conflicts %q, and waits: %s", other, other.IPAM, keep, conflicts, found.Why)
		}
	}
}

// TestHandSwitched: of a person's pool, whatever its domain, one of two definitions of whereabouts'
// is switched by hand: its network_name goes, since the pool is named. The pool waits for the other
// definition, and keeps what that one's pods have.
func TestHandSwitched(t *testing.T) {
	still := definition("still", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`)
	for _, domain := range []string{"", "vlan10"} {
		p := openings(lan(t))
		p.Domain, p.Unnamed = domain, domain == ""
		if by, _ := p.Others([]Definition{switched, still}); len(by) != 1 {
			t.Errorf("domain %q: the pool waits for %v; want ns/still", domain, by)
		}
		keep, _, _ := weighed(p, Facts{
			Definitions: []Definition{switched, still}, Pods: []Pod{pod("p", "ns/still", "10.0.0.5")}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: seenBy("n1", sighting("10.0.0.5", "p", "still")),
			Records: []Record{{Addr: netip.MustParseAddr("10.0.0.5"), Object: "blue-10.0.0.0-24", PodNamespace: "ns", PodName: "p"}},
		})
		if fmt.Sprint(keep) != "[10.0.0.5 p]" {
			t.Errorf("domain %q: kept is %q; want what the pod has", domain, keep)
		}
	}
}

// TestUnexplained: an address that a pod has, and that the pod's definition would not give it now,
// is kept as one of a definition of which nothing is known. The pod has asked for it, or has it by
// what the definition was before.
func TestUnexplained(t *testing.T) {
	static := func(ipam string) Definition {
		return ReadDefinition("ns", "other", `{"name":"other","type":"macvlan","capabilities":{"ips":true},"ipam":`+ipam+`}`, nil)
	}
	second := network("second", `{"type":"whereabouts","range":"10.0.0.0/24"}`, "vlan20")
	record := []Record{{Addr: netip.MustParseAddr("10.0.0.5"), Object: "10.0.0.0-24", PodNamespace: "ns", PodName: "p"}}
	for _, tt := range []struct {
		name     string
		d        Definition
		domain   string // of the pool
		selected []string
		want     bool
	}{
		{name: "static, asked for", d: static(`{"type":"static"}`), want: true},
		{name: "static, asked for beside its own", d: static(`{"type":"static","addresses":[{"address":"192.168.1.5/24"}]}`), want: true},
		{name: "whereabouts, asked for", d: definition("other", `{"type":"whereabouts","range":"192.168.1.0/24"}`), want: true},
		{name: "Tenure's, of another range before", d: definition("other", `{"type":"tenure","range":"192.168.1.0/24"}`), want: true},
		{name: "Tenure's, of a pool that has other addresses or is not there", d: definition("other", `{"type":"tenure","pool":"missing"}`), want: true},
		{name: "Tenure's, of another domain's pool of the same addresses", d: definition("other", `{"type":"tenure","pool":"twin"}`)},
		{name: "another segment by its word", d: network("other", `{"type":"whereabouts","range":"192.168.1.0/24"}`, "vlan20")},
		{name: "a network_name beside a person's domain", d: definition("other", `{"type":"whereabouts","range":"192.168.1.0/24","network_name":"blue"}`), domain: "vlan10", want: true},
		{name: "a second definition of another segment explains it", d: definition("other", `{"type":"whereabouts","range":"192.168.1.0/24"}`), selected: []string{"ns/other", "ns/second"}},
	} {
		p := pod("p", "ns/other", "10.0.0.5")
		hidden := p
		hidden.Shows = nil
		for _, selected := range []*Pod{&p, &hidden} {
			if tt.selected != nil {
				selected.Selected, selected.Shows = tt.selected, nil
			}
		}
		seen := seenBy("n1", sighting("10.0.0.5", "p", "other"))
		if tt.selected != nil {
			seen = seenBy("n1", sighting("10.0.0.5", "p", "second"))
		}
		silent := map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}}
		proofs := map[string]Facts{
			"status": {Pods: []Pod{p}, Reports: silent},
			"record": {Pods: []Pod{hidden}, Reports: silent, Records: record},
			"node":   {Pods: []Pod{hidden}, Reports: seen},
		}
		for by, f := range proofs {
			pool := openings(lan(t))
			pool.Domain = tt.domain
			Among([]*Pool{&pool, another(t, "twin", "vlan20", false)}, nil)
			f.Agents = map[protocol.NodeName]bool{"n1": true}
			f.Definitions = []Definition{switched, tt.d, second}
			if keep, _, _ := weighed(pool, f); (fmt.Sprint(keep) == "[10.0.0.5 p]") != tt.want || len(keep) > 1 {
				t.Errorf("%s, by %s: kept is %q; want it kept: %v", tt.name, by, keep, tt.want)
			}
		}
	}
}

// shapeOf is the shape of a pool of one range.
func shapeOf(t *testing.T, r poolspec.RangeText) *allocator.Shape {
	t.Helper()
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{r}})
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// TestUnexplainedBesidePartOfASubnet: a definition whose ranges, or whose pool, have a part of a
// subnet explains no address of the rest. That rest may be another pool, which keeps what the
// definition's pods have of it.
func TestUnexplainedBesidePartOfASubnet(t *testing.T) {
	rest := shapeOf(t, poolspec.RangeText{CIDR: "10.0.0.0/24", Start: "10.0.0.128", End: "10.0.0.254"})
	whole := poolspec.RangeText{CIDR: "10.0.0.0/24"}
	for _, tt := range []struct {
		ipam string
		part poolspec.RangeText
		want string
	}{
		{`{"type":"tenure","pool":"part"}`, whole, "[]"},
		{`{"type":"tenure","pool":"part"}`, poolspec.RangeText{CIDR: "10.0.0.0/24", Start: "10.0.0.1", End: "10.0.0.127"}, "[10.0.0.200 p]"},
		{`{"type":"tenure","pool":"part"}`, poolspec.RangeText{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.128/25"}}, "[10.0.0.200 p]"},
		{`{"type":"tenure","range":"10.0.0.0/24"}`, poolspec.RangeText{CIDR: "10.0.1.0/24"}, "[10.0.0.200 p]"},
		{`{"type":"tenure","range":"10.0.0.0/24","range_end":"10.0.0.127"}`, poolspec.RangeText{CIDR: "10.0.1.0/24"}, "[10.0.0.200 p]"},
		{`{"type":"tenure","range":"10.0.0.0/24","exclude":["10.0.0.128/25"]}`, poolspec.RangeText{CIDR: "10.0.1.0/24"}, "[10.0.0.200 p]"},
		{`{"type":"tenure","subnet":"10.0.0.0/24","rangeEnd":"10.0.0.127"}`, poolspec.RangeText{CIDR: "10.0.1.0/24"}, "[10.0.0.200 p]"},
	} {
		p := openings(Pool{Name: "rest", Domain: "lan", Object: protocol.Pool{Bits4: 28}, Whole: rest, New: rest.Usable(), Since: now.Add(-time.Second), Fresh: true})
		Among([]*Pool{&p, {Name: "part", Whole: shapeOf(t, tt.part)}}, nil)
		keep, _, _ := weighed(p, Facts{
			Definitions: []Definition{definition("net", tt.ipam), definition("new", `{"type":"tenure","pool":"rest"}`)},
			Pods:        []Pod{pod("p", "ns/net", "10.0.0.200")}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: seenBy("n1", sighting("10.0.0.200", "p", "net")),
			Records: []Record{{Addr: netip.MustParseAddr("10.0.0.200"), Object: "10.0.0.0-24", PodNamespace: "ns", PodName: "p"}},
		})
		if fmt.Sprint(keep) != tt.want {
			t.Errorf("%s, pool part has %v: pool rest keeps %q; want %s", tt.ipam, tt.part, keep, tt.want)
		}
	}
}

// TestBars: a pod can have an address of a pool that its namespace may not use, by a definition of
// static, and may have asked for it. Few such addresses are kept, and none from a pod that has it
// by a definition of the pool: that is said all the same.
func TestBars(t *testing.T) {
	a, static := netip.MustParseAddr("10.0.0.5"), definition("other", `{"type":"static"}`)
	bars, victim := pod("e", "ns/other", "10.0.0.5"), pod("v", "ns/net", "10.0.0.5")
	bars.Node = "n2"
	has := []protocol.Sighting{sighting("10.0.0.5", "e", "other")}
	for _, a := range many(40) {
		has = append(has, sighting(a.String(), "e", "other"))
	}
	facts := Facts{
		Definitions: []Definition{switched, static}, Pods: []Pod{victim, bars}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true},
		Reports: map[protocol.NodeName]protocol.Report{
			"n1": {Running: []protocol.UID{"v"}, Has: []protocol.Sighting{sighting("10.0.0.5", "v", "net")}}, "n2": {Running: []protocol.UID{"e"}, Has: has},
		},
	}
	recorded := facts
	recorded.Reports = map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"v"}}, "n2": facts.Reports["n2"]}
	recorded.Records = []Record{{Addr: a, Object: "10.0.0.0-24", PodNamespace: "ns", PodName: "v"}}
	alone := facts
	alone.Pods, alone.Reports = []Pod{bars}, map[protocol.NodeName]protocol.Report{"n1": {}, "n2": facts.Reports["n2"]}
	for _, tt := range []struct {
		name  string
		facts Facts
		may   bool
		kept  protocol.Grantee
		want  string
		keeps int
	}{
		{"seen", facts, false, protocol.Grantee{}, "10.0.0.5 v", 16},
		{"recorded", recorded, false, protocol.Grantee{}, "10.0.0.5 v", 16},
		{"seen and kept", facts, false, victim.grantee(), "10.0.0.5 v", 16},
		{"kept for the other pod before", facts, false, bars.grantee(), "10.0.0.5 several/e", 16},
		{"of nobody else", alone, false, protocol.Grantee{}, "10.0.0.5 e", 16},
		{"of nobody else, and kept", alone, false, bars.grantee(), "10.0.0.5 e", 16},
		{"of a namespace that may use the pool", facts, true, protocol.Grantee{}, "10.0.0.5 several/e", 41},
	} {
		for stage, p := range map[string]Pool{"opening": openings(lan(t)), "open": open(lan(t))} {
			p.MayUse = func(string) bool { return tt.may }
			p.Kept = map[netip.Addr]protocol.Grantee{netip.MustParseAddr("10.0.0.139"): bars.grantee()}
			if tt.kept.UID != "" {
				p.Kept[a] = tt.kept
			}
			keep, conflicts, _ := weighed(p, tt.facts)
			if len(keep) != tt.keeps || keep[0] != tt.want || keep[len(keep)-1] != "10.0.0.139 e" {
				t.Errorf("%s, %s: kept are %d, %q; want %s among %d", tt.name, stage, len(keep), keep, tt.want, tt.keeps)
			}
			if (len(conflicts) > 0) != (len(tt.facts.Pods) > 1) {
				t.Errorf("%s, %s: conflicts %q; want 10.0.0.5 where two pods have it", tt.name, stage, conflicts)
			}
		}
	}
}

// TestNamesakeExplainsNothing: another segment has lan's addresses. Whoever writes a definition of
// lan that is called as that segment's network does not make what its pods have one of lan's.
func TestNamesakeExplainsNothing(t *testing.T) {
	theirs := ReadDefinition("b", "storage", `{"name":"storage","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`, map[string]string{"tenure.dev/domain": "vlan20"})
	for _, ipam := range []string{`{"type":"tenure","pool":"lan"}`, `{"type":"tenure","range":"10.0.0.0/30"}`} {
		s, p, pool := pod("s", "b/storage", "10.0.0.5"), pod("p", "ns/net", "10.0.0.5"), openings(lan(t))
		s.Namespace, s.Node = "b", "n2"
		facts := Facts{
			Definitions: []Definition{switched, theirs, ReadDefinition("evil", "x", `{"name":"storage","type":"macvlan","ipam":`+ipam+`}`, nil)},
			Pods:        []Pod{p, s}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true},
			Reports: map[protocol.NodeName]protocol.Report{
				"n1": {Running: []protocol.UID{"p"}, Has: []protocol.Sighting{sighting("10.0.0.5", "p", "net")}},
				"n2": {Running: []protocol.UID{"s"}, Has: []protocol.Sighting{sighting("10.0.0.5", "s", "storage"), sighting("10.0.0.6", "s", "storage")}},
			},
		}
		Among([]*Pool{&pool}, facts.Definitions)
		if keep, conflicts, _ := weighed(pool, facts); fmt.Sprint(keep) != "[10.0.0.5 p]" || len(conflicts) > 0 {
			t.Errorf("%s: it keeps %q, conflicts %q; want what pod p has", ipam, keep, conflicts)
		}
	}
}
