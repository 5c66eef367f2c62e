package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		p.Shows = append(p.Shows, foreign.Shown{Definition: definition, Interface: "net1", Addrs: []netip.Addr{netip.MustParseAddr(a)}})
	}
	return p
}

func aRecord(addr, pod string) foreign.Record {
	return foreign.Record{Source: "whereabouts ippool wb/p", Addr: netip.MustParseAddr(addr), PodNamespace: "ns", PodName: pod}
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
	want := moveReport{
		From: "whereabouts", To: "tenure",
		Segments: []moveSegment{
			{Ranges: []string{"10.0.0.0/24"}, Switch: []string{"ns/vlan"}, Pools: []string{"blue"}, Findings: nil},
			{
				Ranges: []string{"10.0.0.0/24", "10.0.0.0/25"}, Switch: []string{"ns/lan", "ns/part"}, Pools: []string{"default-domain"}, Pods: 5, Addresses: 5,
				Findings: []string{
					"10.0.0.2 is recorded for several pods: ns/b, ns/twin. It is kept for the one that runs",
					"10.0.0.2 is shown by several running pods: ns/b, ns/twin. Nobody's is taken away; delete all but one",
					"10.0.0.3 is shown by pod ns/c and recorded for nobody: it is kept",
					"10.0.0.4 is recorded (whereabouts ippool wb/p) for pod ns/gone, which is gone: it is not kept",
					"10.0.0.5 is recorded (whereabouts ippool wb/p) for pod ns/c, whose status shows other addresses: all of them are kept",
				},
			},
			{
				Ranges: []string{"10.1.0.0/24"}, Switch: []string{"ns/mixed"}, Pools: []string{"default-domain"},
				InTheWay: []string{"definition ns/static names static, which may give addresses of the segment: move it too, part the ranges, or set its annotation tenure.dev/domain if it is another segment"},
			},
		},
		Faulty: []string{got.Faulty[0]}, Damaged: seen.damaged,
	}
	for i := range got.Segments { // records have no segment of their own: those of a network with a name are seen in each
		if got.Segments[i].Switch[0] == "ns/vlan" {
			got.Segments[i].Findings = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(got.Faulty) != 1 || !strings.HasPrefix(got.Faulty[0], "ns/bad: ") {
		t.Errorf("faulty are %q; want ns/bad with its reason", got.Faulty)
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
			"old": {}, "default-domain": {}, "own": {}, "waits": {waits: true},
			"kept": {kept: []netip.Addr{netip.MustParseAddr("10.4.0.1"), netip.MustParseAddr("10.9.0.1")}},
		},
	}
	got := segmentsOf(seen, "host-local", "tenure")
	want := moveReport{From: "host-local", To: "tenure", Segments: []moveSegment{
		{
			Ranges: []string{"10.0.0.0/24", "10.0.0.128/25"}, Switch: []string{"ns/old"}, Switched: []string{"ns/beside"}, Pools: []string{"default-domain", "old"},
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
