package moving

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func aDefinition(name, ipam string, annotations ...string) foreign.Definition {
	of := map[string]string{}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		of[key] = value
	}
	return foreign.ReadDefinition("ns", name, `{"cniVersion":"1.0.0","name":"`+name+`","type":"macvlan","ipam":`+ipam+`}`, of)
}

func aPod(name, definition string, addrs ...string) foreign.Pod {
	p := foreign.Pod{PodRef: protocol.PodRef{Namespace: "ns", Name: name}, Selected: []string{definition}}
	for _, a := range addrs {
		p.Shows = append(p.Shows, npwg.Shown{Definition: definition, Interface: "net1", Addrs: []netip.Addr{netip.MustParseAddr(a)}})
	}
	return p
}

func aRecord(addr, pod string) foreign.Record {
	return foreign.Record{Source: "whereabouts ippool wb/p", Object: "10.0.0.0-24", Addr: netip.MustParseAddr(addr), PodNamespace: "ns", PodName: pod}
}

func aReservation(addr, pod string) foreign.Record {
	r := aRecord(addr, pod)
	r.Source, r.Object = "whereabouts reservation wb/r", addr
	return r
}

// TestSegments: definitions whose ranges overlap are one segment, unless they say that
// they are not; and each kind of contradiction has its line.
func TestSegments(t *testing.T) {
	seen := foreignState{
		definitions: []foreign.Definition{
			aDefinition("lan", `{"type":"whereabouts","range":"10.0.0.0/24"}`),
			aDefinition("part", `{"type":"whereabouts","range":"10.0.0.0/25"}`),
			aDefinition("vlan", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, "tenure.dev/domain=blue"),
			aDefinition("mixed", `{"type":"whereabouts","range":"10.1.0.0/24"}`),
			aDefinition("static", `{"type":"static","addresses":[{"address":"10.1.0.7/24"}]}`),
			aDefinition("bad", `{"type":"whereabouts","range":"10.2.0.0/33"}`),
		},
		pods: []foreign.Pod{
			aPod("a", "ns/lan", "10.0.0.1"), aPod("b", "ns/part", "10.0.0.2"), aPod("twin", "ns/part", "10.0.0.2"), aPod("c", "ns/lan", "10.0.0.3"),
			aPod("e", "ns/lan", "10.0.0.6"),
		},
		records: []foreign.Record{
			aRecord("10.0.0.1", "a"), aRecord("10.0.0.2", "b"), aRecord("10.0.0.2", "twin"), aRecord("10.0.0.4", "gone"), aRecord("10.0.0.5", "c"), aRecord("10.0.0.6", "e"),
		},
		damaged: []string{"whereabouts ippool wb/p: offset \"x\" is no place in 10.0.0.0/24"},
	}
	got := segmentsOf(seen, "whereabouts", "tenure")
	const unread = `definition ns/bad names whereabouts and may give addresses of the segment, since its ranges cannot be read ("10.2.0.0/33" in its ipam section is no range): ` +
		"correct it, or set its annotation tenure.dev/domain if it is another segment"
	want := moveReport{
		From: "whereabouts", To: "tenure",
		Segments: []moveSegment{
			{Ranges: []string{"10.0.0.0/24"}, Switch: []string{"ns/vlan"}, Pools: []string{"blue"}, Findings: nil},
			{
				Ranges: []string{"10.0.0.0/24", "10.0.0.0/25"}, Switch: []string{"ns/lan", "ns/part"}, Pools: []string{"range-10-0-0-0-24", "range-10-0-0-0-25"}, Pods: 5, Addresses: 5,
				Findings: []string{
					"10.0.0.2 is recorded for several pods: ns/b, ns/twin",
					"10.0.0.2 is shown by several running pods: ns/b, ns/twin. It is taken from none of them: delete all but one",
					"10.0.0.3 is shown by pod ns/c and recorded for nobody: it is kept",
					"10.0.0.4 is recorded (whereabouts ippool wb/p) for pod ns/gone, which is gone: it is not kept",
					"10.0.0.5 is recorded (whereabouts ippool wb/p) for pod ns/c, whose status shows 10.0.0.3: all of them are kept",
				},
				InTheWay: []string{unread},
			},
			{
				Ranges: []string{"10.1.0.0/24"}, Switch: []string{"ns/mixed"}, Pools: []string{"range-10-1-0-0-24"},
				InTheWay: []string{unread, "definition ns/static names static, which may give addresses of the segment: move it too, part the ranges, or set its annotation tenure.dev/domain if it is another segment"},
			},
		},
		Unread: []string{`ns/bad: "10.2.0.0/33" in its ipam section is no range`}, Damaged: seen.damaged,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestOnlyWhatMoves: of networks that are Tenure's already a report of an import has those
// alone that are on their way, and counts no pod of Tenure's as one of another IPAM.
func TestOnlyWhatMoves(t *testing.T) {
	seen := foreignState{
		definitions: []foreign.Definition{
			aDefinition("old", `{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}]]}`),
			aDefinition("beside", `{"type":"tenure","range":"10.0.0.128/25"}`),
			aDefinition("own", `{"type":"tenure","range":"10.1.0.0/24","network_name":"own"}`),
			aDefinition("waits", `{"type":"tenure","range":"10.2.0.0/24","network_name":"waits"}`),
			aDefinition("missing", `{"type":"tenure","range":"10.3.0.0/24","network_name":"missing"}`),
			aDefinition("kept", `{"type":"tenure","range":"10.4.0.0/24","network_name":"kept"}`),
		},
		pods: []foreign.Pod{
			aPod("a", "ns/old", "10.0.0.1"), aPod("b", "ns/beside", "10.0.0.129"), aPod("c", "ns/own", "10.1.0.1"), aPod("d", "ns/kept", "10.4.0.1"), aPod("e", "ns/kept", "10.4.0.2"),
		},
		pools: map[string]poolSeen{
			"old": {}, "range-10-0-0-128-25": {}, "own": {}, "waits": {waits: true},
			"kept": {kept: []v1alpha1.Grant{{Address: "10.4.0.1"}, {Address: "10.9.0.1"}}},
		},
	}
	got := segmentsOf(seen, "host-local", "tenure")
	want := moveReport{From: "host-local", To: "tenure", Segments: []moveSegment{
		{
			Ranges: []string{"10.0.0.0/24", "10.0.0.128/25"}, Switch: []string{"ns/old"}, Switched: []string{"ns/beside"}, Pools: []string{"old", "range-10-0-0-128-25"},
			Pods: 1, Addresses: 1,
		},
		{Ranges: []string{"10.2.0.0/24"}, Switched: []string{"ns/waits"}, Pools: []string{"waits"}},
		{Ranges: []string{"10.3.0.0/24"}, Switched: []string{"ns/missing"}, Pools: []string{"missing"}},
		{Ranges: []string{"10.4.0.0/24"}, Switched: []string{"ns/kept"}, Pools: []string{"kept"}, Kept: 1},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestFindings: what records and pods do not agree in is said, of each kind, and of each
// address once.
func TestFindings(t *testing.T) {
	lan, vlan := aDefinition("lan", `{"type":"whereabouts","range":"10.0.0.0/24"}`), aDefinition("vlan", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, "tenure.dev/domain=blue")
	const mark = "10.0.0.9"
	both := func(addr, pod string) func(*foreignState) {
		return func(s *foreignState) {
			s.records, s.reserved = append(s.records, aRecord(addr, pod)), append(s.reserved, aReservation(addr, pod))
		}
	}
	reserved := func(addr, pod string) func(*foreignState) {
		return func(s *foreignState) { s.reserved = append(s.reserved, aReservation(addr, pod)) }
	}
	runs := func(pods ...foreign.Pod) func(*foreignState) {
		return func(s *foreignState) { s.pods = append(s.pods, pods...) }
	}
	const inPool, inReservation = " is recorded (whereabouts ippool wb/p) for pod ", " is recorded (whereabouts reservation wb/r) for pod "
	for _, tt := range []struct {
		name string
		seen []func(*foreignState)
		want []string
	}{
		{"all agree", []func(*foreignState){runs(aPod("a", "ns/lan", mark)), both(mark, "a")}, nil},
		{"nothing is recorded at all", []func(*foreignState){runs(aPod("a", "ns/lan", mark))}, []string{mark + " is shown by pod ns/a and recorded for nobody: it is kept"}},
		{"the pod is gone", []func(*foreignState){both(mark, "gone")}, []string{mark + inPool + "ns/gone, which is gone: it is not kept"}},
		{"the pod has no network", []func(*foreignState){both(mark, "a"), func(s *foreignState) { s.idle = map[string]bool{"ns/a": true} }}, []string{
			mark + inPool + "ns/a, which runs but selects no network of the segment: it is not kept",
		}},
		{"the pod has another network", []func(*foreignState){both(mark, "a"), runs(aPod("a", "ns/vlan"))}, []string{
			mark + inPool + "ns/a, which runs but selects no network of the segment: it is not kept",
		}},
		{"the pod has no status", []func(*foreignState){both(mark, "a"), runs(aPod("a", "ns/lan"))}, []string{
			mark + inPool + "ns/a, whose status shows no address of the segment: it is kept",
		}},
		{"the status shows others", []func(*foreignState){both(mark, "a"), both("10.0.0.8", "a"), both("10.0.0.7", "a"), runs(aPod("a", "ns/lan", "10.0.0.7", "10.0.0.8"))}, []string{
			mark + inPool + "ns/a, whose status shows 10.0.0.7, 10.0.0.8: all of them are kept",
		}},
		{"two records, of pods that run", []func(*foreignState){both(mark, "a"), reserved(mark, "b"), runs(aPod("a", "ns/lan", mark), aPod("b", "ns/lan"))}, []string{
			mark + inReservation + "ns/b, whose status shows no address of the segment: it is kept",
			mark + " is recorded for several pods: ns/a, ns/b. It is taken from none of them: delete all but one of those that run",
		}},
		{"two records, one of a pod that is gone", []func(*foreignState){both(mark, "a"), reserved(mark, "gone"), runs(aPod("a", "ns/lan", mark))}, []string{
			mark + inReservation + "ns/gone, which is gone: it is not kept",
			mark + " is recorded for several pods: ns/a, ns/gone. It is kept for ns/a, which runs",
		}},
		{"two records, both of pods that are gone", []func(*foreignState){both(mark, "gone"), reserved(mark, "lost")}, []string{
			mark + inPool + "ns/gone, which is gone: it is not kept", mark + inReservation + "ns/lost, which is gone: it is not kept",
			mark + " is recorded for several pods: ns/gone, ns/lost. None of them has it any more",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := foreignState{definitions: []foreign.Definition{lan, vlan}}
			for _, f := range tt.seen {
				f(&seen)
			}
			report := segmentsOf(seen, "whereabouts", "tenure")
			slices.Sort(tt.want)
			for _, s := range report.Segments {
				want := tt.want
				if s.Switch[0] == "ns/vlan" { // the records are the other's, of the same addresses
					want = nil
				}
				if diff := cmp.Diff(want, s.Findings); diff != "" {
					t.Errorf("of %q -want +got\n%s", s.Switch, diff)
				}
			}
		})
	}
}

// TestFindingsOfWhatIsSwitched: what pods have by Tenure needs no record of whereabouts.
func TestFindingsOfWhatIsSwitched(t *testing.T) {
	seen := foreignState{definitions: []foreign.Definition{aDefinition("lan", `{"type":"tenure","range":"10.0.0.0/24"}`)}, pods: []foreign.Pod{aPod("a", "ns/lan", "10.0.0.9")}}
	report := segmentsOf(seen, "whereabouts", "tenure")
	if len(report.Segments) != 1 || len(report.Segments[0].Findings) > 0 {
		t.Fatalf("found %+v; want one segment, of which there is nothing to say", report.Segments)
	}
	lines := report.lines()
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "Nothing is left to switch") {
		t.Errorf("it ends with %q; want it to say that nothing is left", last)
	}
}

// TestTwoGateways: a report names definitions of one subnet that have two gateways, and says what
// to do if they are of two wires.
func TestTwoGateways(t *testing.T) {
	report := func(b string) (findings string) {
		for _, s := range segmentsOf(foreignState{definitions: []foreign.Definition{
			aDefinition("a", `{"type":"whereabouts","range":"10.0.0.0/24","gateway":"10.0.0.1"}`), aDefinition("b", b),
		}}, "whereabouts", "tenure").Segments {
			findings += strings.Join(s.Findings, "; ")
		}
		return findings
	}
	got := report(`{"type":"whereabouts","range":"10.0.0.0/24","gateway":"10.0.0.254"}`)
	for _, want := range []string{"ns/a has gateway 10.0.0.1 of 10.0.0.0/24", "ns/b has 10.0.0.254", "network_name", "tenure.dev/domain"} {
		if !strings.Contains(got, want) {
			t.Errorf("says %q; want %q in it", got, want)
		}
	}
	for _, b := range []string{
		`{"type":"whereabouts","range":"10.0.0.0/24","gateway":"10.0.0.1"}`, `{"type":"whereabouts","range":"10.0.0.0/24"}`,
	} {
		if got := report(b); got != "" {
			t.Errorf("of %s: %q; want nothing", b, got)
		}
	}
}

// TestWhatTenureRefuses: a definition that the other IPAM serves and Tenure refuses keeps its
// segment from being moved, also where it is the only one. One whose ranges cannot be read keeps
// every segment.
func TestWhatTenureRefuses(t *testing.T) {
	plain := aDefinition("plain", `{"type":"whereabouts","range":"10.0.0.0/24"}`)
	for _, tt := range []struct {
		name string
		of   []foreign.Definition
		want string // in the way of the only segment; "" if there is none
		say  string
	}{
		{"beside another", []foreign.Definition{plain, aDefinition("l3", `{"type":"whereabouts","range":"10.0.0.0/24","enable_l3":true}`)},
			"definition ns/l3 cannot name Tenure before it is corrected: ipam.enable_l3: is not supported", "in the way"},
		{"alone", []foreign.Definition{aDefinition("l3", `{"type":"whereabouts","range":"10.0.0.0/24","enable_l3":true}`)}, "ipam.enable_l3: is not supported", "in the way"},
		{"another's", []foreign.Definition{plain, aDefinition("hl", `{"type":"host-local","ranges":[[{"subnet":"x"}]]}`)}, "definition ns/hl names host-local and may give addresses of the segment, since its ranges cannot be read", "in the way"},
		{"nothing else", []foreign.Definition{aDefinition("none", `{"type":"whereabouts"}`)}, "",
			"Definition whose ranges cannot be read, by which whereabouts may give any address: ns/none: its ipam section has no range"},
	} {
		report := segmentsOf(foreignState{definitions: tt.of}, "whereabouts", "tenure")
		if text := strings.Join(report.lines(), "\n"); !strings.Contains(text, tt.say) || strings.Contains(text, "There is no definition") {
			t.Errorf("%s: says %q; want %q in it", tt.name, text, tt.say)
		}
		if len(report.Segments) != 1 {
			if tt.want != "" {
				t.Errorf("%s: segments %+v; want one", tt.name, report.Segments)
			}
			continue
		}
		if got := strings.Join(report.Segments[0].InTheWay, "; "); tt.want == "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: in the way is %q; want %q", tt.name, got, tt.want)
		}
	}
}

// TestLocalMode: what pods have by local mode no object of the cluster says. So it is neither
// exported nor passed over by an import.
func TestLocalMode(t *testing.T) {
	local, old := aDefinition("local", `{"type":"tenure","mode":"local","subnet":"10.0.0.0/24"}`), aDefinition("old", `{"type":"host-local","subnet":"10.0.0.0/25"}`)
	seen := foreignState{definitions: []foreign.Definition{local}, pods: []foreign.Pod{aPod("a", "ns/local", "10.0.0.9")}}
	for _, tt := range []struct{ from, to, then string }{{"tenure", "whereabouts", "write it for whereabouts by hand"}, {"host-local", "tenure", "remove its key mode by hand"}} {
		if tt.to == "tenure" {
			seen.definitions = append(seen.definitions, old)
		}
		report := segmentsOf(seen, tt.from, tt.to)
		if len(report.Segments) != 1 || len(report.Segments[0].InTheWay) != 1 || !strings.Contains(report.Segments[0].InTheWay[0], "definition ns/local has mode local") ||
			!strings.Contains(report.Segments[0].InTheWay[0], tt.then) {
			t.Errorf("from %s to %s: %+v; want ns/local in the way, and %q", tt.from, tt.to, report.Segments, tt.then)
		}
		if tt.to != "tenure" && report.Segments[0].Pods != 1 {
			t.Errorf("an export counts %d pods; want 1", report.Segments[0].Pods)
		}
	}
	if report := segmentsOf(foreignState{definitions: []foreign.Definition{local}}, "whereabouts", "tenure"); len(report.Segments) > 0 {
		t.Errorf("alone it is a segment of an import: %+v", report.Segments)
	}
	if report := segmentsOf(foreignState{definitions: []foreign.Definition{local}}, "status", "tenure"); len(report.ByHand) > 0 {
		t.Errorf("it is to be written for Tenure by hand: %q", report.ByHand)
	}
}

// TestSameOnEveryNode: what host-local has given on two nodes keeps the network from becoming one
// pool, and the report does not simply say that a pod is to be deleted.
func TestSameOnEveryNode(t *testing.T) {
	pod := func(name, node string) foreign.Pod {
		p := aPod(name, "ns/lan", "10.0.0.2")
		p.Node = protocol.NodeName(node)
		return p
	}
	const sub = `"subnet":"10.0.0.0/24"}`
	for _, tt := range []struct {
		name, ipam  string
		nodes       []string
		way, remark string
	}{
		{"two nodes", `{"type":"host-local",` + sub, []string{"a", "b"},
			"host-local gives the same addresses on every node: 10.0.0.2 to pod ns/0 on node a and to pod ns/1 on node b. If each node has a network of its own, such as a bridge, this cannot become one pool: leave it with host-local", ""},
		{"two nodes, switched by hand", `{"type":"tenure",` + sub, []string{"a", "b"}, "", "none if each has a network of its own"},
		{"one node", `{"type":"host-local",` + sub, []string{"a", "a"}, "", "It is taken from none of them: delete all but one"},
		{"one pod", `{"type":"host-local",` + sub, []string{"a"}, "", ""},
	} {
		seen := foreignState{definitions: []foreign.Definition{aDefinition("lan", tt.ipam)}}
		for i, node := range tt.nodes {
			seen.pods = append(seen.pods, pod(string(rune('0'+i)), node))
		}
		report := segmentsOf(seen, "host-local", "tenure")
		if len(report.Segments) != 1 {
			t.Fatalf("%s: segments %+v", tt.name, report.Segments)
		}
		s := report.Segments[0]
		if got := strings.Join(s.InTheWay, "; "); (got != "") != (tt.way != "") || !strings.Contains(got, tt.way) {
			t.Errorf("%s: in the way is %q; want %q", tt.name, got, tt.way)
		}
		if got := strings.Join(s.Findings, "; "); (got != "") != (tt.remark != "") || !strings.Contains(got, tt.remark) {
			t.Errorf("%s: it notes %q; want %q", tt.name, got, tt.remark)
		}
	}
}

// TestAskedForAddresses: of a definition by which pods get what they ask for, and that names no
// subnet, nobody knows of which segment it is: each that it may be of says so.
func TestAskedForAddresses(t *testing.T) {
	asked := func(name string, addresses string, annotations map[string]string) foreign.Definition {
		return foreign.ReadDefinition("ns", name, `{"name":"`+name+`","type":"macvlan","ipam":{"type":"static"`+addresses+`}}`, annotations)
	}
	seen := foreignState{definitions: []foreign.Definition{
		aDefinition("lan", `{"type":"whereabouts","range":"10.0.0.0/24"}`), asked("any", "", nil),
		asked("apart", "", map[string]string{"tenure.dev/domain": "vlan20"}), asked("elsewhere", `,"addresses":[{"address":"10.9.0.7/24"}]`, nil),
	}}
	got := segmentsOf(seen, "whereabouts", "tenure").Segments
	if len(got) != 1 || len(got[0].Findings) != 1 || !strings.HasPrefix(got[0].Findings[0], "ns/any names static, and gives a pod whichever address the pod asks for") {
		t.Errorf("segments %+v; want a note of ns/any", got)
	}
}

// TestAnnotationOfAnotherDomain: an annotation that names another domain than that of the pool
// which the definition gets is in the way.
func TestAnnotationOfAnotherDomain(t *testing.T) {
	pools := map[string]poolSeen{"mine": {domain: "vlan10"}, "lan": {}}
	for _, tt := range []struct {
		name, ipam, domain string
		want               string // the pool's domain; empty: nothing is in the way
	}{
		{"net", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue","enable_overlapping_ranges":false}`, "", ""},
		{"net", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, "blue", ""},
		{"net", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, "vlan10", "blue"},
		{"net", `{"type":"whereabouts","range":"10.0.0.0/24"}`, "vlan10", "default-domain"},
		{"net", `{"type":"whereabouts","range":"10.0.0.0/24"}`, "default-domain", ""},
		{"depot", `{"type":"host-local","subnet":"10.0.0.0/24"}`, "vlan10", "depot"},
		{"mine", `{"type":"host-local","subnet":"10.0.0.0/24"}`, "vlan10", ""},
		{"mine", `{"type":"host-local","subnet":"10.0.0.0/24"}`, "vlan20", "vlan10"},
		{"lan", `{"type":"host-local","subnet":"10.0.0.0/24"}`, "vlan10", "default-domain"},
		{"lan", `{"type":"host-local","subnet":"10.0.0.0/24"}`, "default-domain", ""},
	} {
		d := aDefinition(tt.name, tt.ipam, "tenure.dev/domain="+tt.domain)
		s := segmentsOf(foreignState{definitions: []foreign.Definition{d}, pools: pools}, d.IPAM, foreign.Type).Segments[0]
		want := fmt.Sprintf("definition ns/%s has the annotation tenure.dev/domain=%s, and its pool %s is of domain %s: ", tt.name, tt.domain, d.PoolsThen[0], tt.want)
		if got := strings.Join(s.InTheWay, "; "); (tt.want == "") != (got == "") || tt.want != "" && !strings.HasPrefix(got, want) {
			t.Errorf("%s, annotated %q: in the way is %q; want %q", tt.ipam, tt.domain, got, want)
		}
	}
}

// TestDefaultDomainIsNoOther: who names the default domain says what a definition without a name
// does.
func TestDefaultDomainIsNoOther(t *testing.T) {
	seen := foreignState{definitions: []foreign.Definition{
		aDefinition("a", `{"type":"whereabouts","range":"10.0.0.0/24"}`), aDefinition("b", `{"type":"whereabouts","range":"10.0.0.0/24"}`, "tenure.dev/domain=default-domain"),
		aDefinition("c", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, "tenure.dev/domain=blue"),
	}}
	if got := segmentsOf(seen, "whereabouts", "tenure").Segments; len(got) != 2 {
		t.Errorf("segments %+v; want one of a and b, and one of c", got)
	}
}
