package security_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A sitter is node-b's agent on its seat, with the credentials of its pod.
type sitter struct {
	api *kube.API
	protocol.Sitting
}

// beat reads the seat and writes it as the protocol says: it sits down, where it does not
// sit there.
func (s *sitter) beat(t *testing.T) error {
	now := protocol.Instant{Wall: time.Now()}
	seat, out, err := s.api.ReadSeat(t.Context(), s.Self.Node)
	if err != nil {
		return err
	}
	read := protocol.StepSeat(s.Sitting, protocol.SeatEvent{Now: now, Call: protocol.SeatRead, Outcome: out, Seat: seat})
	if read.Call != protocol.SeatUpdate {
		return fmt.Errorf("call %d after %+v: %s", read.Call, seat, read.Why)
	}
	if seat, out, err = s.api.UpdateSeat(t.Context(), read.Write); err != nil {
		return err
	}
	written := protocol.StepSeat(read.Next, protocol.SeatEvent{Now: now, Call: protocol.SeatUpdate, Outcome: out, Seat: seat})
	if !written.Accepted {
		return fmt.Errorf("not accepted: %s", written.Why)
	}
	s.Sitting = written.Next
	return nil
}

// TestSeatAfterAThief: whatever the policies let a stolen credential write on its seat,
// the agent can go on after it, and the controller end its term. What the agent writes
// they let it write.
func TestSeatAfterAThief(t *testing.T) {
	rc := boundTo(t, "tenured", podOn(t, system, "tenured-after", "node-b", "tenured"))
	i := newIntruder(t, "the agent of node-b", rc)
	agent := &sitter{api: kube.NewAPI(i.Client)}
	agent.Self = protocol.Identity{Node: "node-b", NodeUID: "u", Store: "own", Machine: "m", Boot: "next", Fence: time.Minute}
	thief := func(patch string) error { return i.patch(named("Lease", system, "node-b"), patch) }
	beat := func() error { return agent.beat(t) }
	controller := func(change func(protocol.Seat) protocol.Seat) error {
		api := kube.NewAPI(kc)
		seat, _, err := api.ReadSeat(t.Context(), "node-b")
		if err != nil {
			return err
		}
		_, _, err = api.UpdateSeat(t.Context(), change(seat))
		return err
	}
	endTerm := func() error {
		return controller(func(s protocol.Seat) protocol.Seat { return protocol.EndTerm(s, protocol.EvidenceSilence) })
	}

	i.mayDo(t, []attempt{
		{"sit down after another store", beat, ""},
		{"have its term ended", endTerm, ""},
		{"sit down where nobody sits, and others have sat", beat, ""},
		{"be asked to cede", func() error {
			return controller(func(s protocol.Seat) protocol.Seat {
				s.Recalls = []protocol.Recall{{ID: "r", Lease: "free.0a510001.32", Ranges: []string{"10.81.0.1-10.81.0.1"}}}
				s.Turn++
				return s
			})
		}, ""},
		{"beat on a seat with recalls", beat, ""},
		{"raise term and turn as far as they go", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/turn: "999999999999999999", tenure.dev/boot: none}}, spec: {holderIdentity: thief, leaseTransitions: 1000000000}}`)
		}, ""},
		{"sit down after that", beat, ""},
		{"beat after that", beat, ""},
		{"have its term ended after that", endTerm, ""},
		{"sit down once more", beat, ""},
	})
	if agent.Term != 1_000_000_003 || agent.Seen.Turn != 1_000_000_000_000_000_003 || len(agent.Seen.Former) == 0 {
		t.Errorf("the agent sits in term %d, its turn is %d, and %d have sat there; want the thief's, two terms and four turns later",
			agent.Term, agent.Seen.Turn, len(agent.Seen.Former))
	}
	i.breakIn(t, []attempt{
		{"raise a high term by two", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/turn: "1000000000000000004"}}, spec: {leaseTransitions: 1000000005}}`)
		}, "nor raise it above 1000000000 but by one"},
		{"raise a high turn by two", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/turn: "1000000000000000005"}}}`)
		}, "names its machine, its boot and its turn"},
		{"have the last turn that there is", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/turn: "9223372036854775807"}}}`)
		}, "names its machine, its boot and its turn"},
		{"garble a high turn", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/turn: "1000000000000000004x"}}}`)
		}, "names its machine, its boot and its turn"},
	})
}
