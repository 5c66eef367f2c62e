package moving

import (
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/foreign"
)

// TestRecorderKnowsAllPods: whereabouts' record of a pod that runs is left alone, also
// where the pod selects no network: its default network may be whereabouts'.
func TestRecorderKnowsAllPods(t *testing.T) {
	e := exporting{moving: moving{Session: &session.Session{}}, state: foreignState{pods: []foreign.Pod{aPod("a", "ns/lan")}, idle: map[string]bool{"ns/b": true}}}
	if w := e.recorder(); !w.running["ns/a"] || !w.running["ns/b"] || w.running["ns/c"] {
		t.Errorf("pods that run: %v; want ns/a and ns/b", w.running)
	}
}

// TestStatusWithCIDRs: whereabouts' reconciler takes a record away whose address it does not find
// in the pod's status, as that very text. Where the status has CIDRs, nothing is exported.
func TestStatusWithCIDRs(t *testing.T) {
	with := aPod("with", "ns/lan", "10.0.0.5")
	with.Shows[0].CIDRs = true
	seen := foreignState{whereabouts: true, pods: []foreign.Pod{aPod("without", "ns/lan", "10.0.0.6"), with}}
	report := moveReport{Segments: []moveSegment{{Switch: []string{"ns/lan"}}, {Switch: []string{"ns/other"}}}}
	obstruct(&report, seen)
	if why := report.Segments[0].InTheWay; len(why) != 1 || !strings.Contains(why[0], "(statusIPs: CIDR): ns/with. ") || !strings.Contains(why[0], "Set statusIPs to Address") {
		t.Errorf("in the way of lan: %v", why)
	}
	if why := report.Segments[1].InTheWay; len(why) > 0 {
		t.Errorf("in the way of another network: %v", why)
	}
}

// TestRacksStayWithTenure: whereabouts has no ranges for some nodes alone, nor a subnet for each
// node, and a pool that has them is not exported.
func TestRacksStayWithTenure(t *testing.T) {
	seen := foreignState{whereabouts: true, pools: map[string]poolSeen{"racks": {selective: true}, "rail": {perNode: true}, "lan": {}}}
	report := moveReport{Segments: []moveSegment{{Pools: []string{"lan"}}, {Pools: []string{"racks"}}, {Pools: []string{"rail"}}}}
	obstruct(&report, seen)
	if why := report.Segments[0].InTheWay; len(why) > 0 {
		t.Errorf("in the way of lan: %v", why)
	}
	if why := report.Segments[1].InTheWay; len(why) != 1 || !strings.Contains(why[0], "pool racks has ranges for some nodes alone (nodeSelector)") {
		t.Errorf("in the way of racks: %v", why)
	}
	if why := report.Segments[2].InTheWay; len(why) != 1 || !strings.Contains(why[0], "pool rail gives each node a subnet of its own (spec.perNode)") {
		t.Errorf("in the way of rail: %v", why)
	}
}
