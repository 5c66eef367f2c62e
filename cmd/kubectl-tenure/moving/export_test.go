package moving

import (
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
