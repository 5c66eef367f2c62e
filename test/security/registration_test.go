package security_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A registrar is node-b's agent on its registration, with the credentials of its pod.
type registrar struct {
	api *kube.API
	protocol.Registrar
}

// beat reads the registration and writes it as the protocol says: it registers, unless it is
// registered already.
func (s *registrar) beat(t *testing.T) error {
	now := protocol.Instant{Wall: time.Now()}
	reg, out, err := s.api.ReadRegistration(t.Context(), s.Self.Node)
	if err != nil {
		return err
	}
	read := protocol.StepRegistration(s.Registrar, protocol.RegistrationEvent{Now: now, Call: protocol.RegistrationRead, Outcome: out, Registration: reg})
	if read.Call != protocol.RegistrationUpdate {
		return fmt.Errorf("call %d after %+v: %s", read.Call, reg, read.Why)
	}
	if reg, out, err = s.api.UpdateRegistration(t.Context(), read.Write); err != nil {
		return err
	}
	written := protocol.StepRegistration(read.Next, protocol.RegistrationEvent{Now: now, Call: protocol.RegistrationUpdate, Outcome: out, Registration: reg})
	if !written.Accepted {
		return fmt.Errorf("not accepted: %s", written.Why)
	}
	s.Registrar = written.Next
	return nil
}

// TestRegistrationAfterAThief: whatever the policies let a stolen credential write on its
// registration, the agent can go on after it, and the controller end its term. What the agent
// writes they let it write.
func TestRegistrationAfterAThief(t *testing.T) {
	rc := boundTo(t, "tenured", podOn(t, system, "tenured-after", "node-b", "tenured"))
	i := newIntruder(t, "the agent of node-b", rc)
	agent := &registrar{api: kube.NewAPI(i.Client)}
	agent.Self = protocol.Identity{Node: "node-b", NodeUID: "u", Store: "own", Machine: "m", Boot: "next", Fence: time.Minute}
	thief := func(patch string) error { return i.patch(named("Lease", system, "node-b"), patch) }
	beat := func() error { return agent.beat(t) }
	controller := func(change func(protocol.Registration) protocol.Registration) error {
		api := kube.NewAPI(kc)
		reg, _, err := api.ReadRegistration(t.Context(), "node-b")
		if err != nil {
			return err
		}
		_, _, err = api.UpdateRegistration(t.Context(), change(reg))
		return err
	}
	endTerm := func() error {
		return controller(func(s protocol.Registration) protocol.Registration {
			return protocol.EndTerm(s, protocol.EvidenceSilence)
		})
	}

	i.mayDo(t, []attempt{
		{"register after another store", beat, ""},
		{"have its term ended", endTerm, ""},
		{"register where no agent is registered, and others were", beat, ""},
		{"be asked to cede", func() error {
			return controller(func(s protocol.Registration) protocol.Registration {
				s.Recalls = []protocol.Recall{{ID: "r", Lease: "free.0a510001.32", Ranges: []string{"10.81.0.1-10.81.0.1"}}}
				s.Writes++
				return s
			})
		}, ""},
		{"beat on a registration with recalls", beat, ""},
		{"raise term and turn as far as they go", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/turn: "999999999999999999", tenure.dev/boot: none}}, spec: {holderIdentity: thief, leaseTransitions: 1000000000}}`)
		}, ""},
		{"register after that", beat, ""},
		{"beat after that", beat, ""},
		{"have its term ended after that", endTerm, ""},
		{"register once more", beat, ""},
	})
	if agent.Term != 1_000_000_003 || agent.Seen.Writes != 1_000_000_000_000_000_003 || len(agent.Seen.Former) == 0 {
		t.Errorf("the agent is registered in term %d, its turn is %d, and it has %d former agents; want the thief's, two terms and four turns later",
			agent.Term, agent.Seen.Writes, len(agent.Seen.Former))
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

// TestRoomOnARegistration: a stolen credential cannot fill a registration. There stays room for
// what the controller writes when it ends the term, and the next agent when it registers.
func TestRoomOnARegistration(t *testing.T) {
	rc := boundTo(t, "tenured", podOn(t, system, "tenured-room", "node-room", "tenured"))
	i := newIntruder(t, "the agent of node-room", rc)
	thief := func(format string, args ...any) error {
		return i.patch(named("Lease", system, "node-room"), fmt.Sprintf(format, args...))
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	i.mayDo(t, []attempt{{"register", func() error {
		return i.create(strings.ReplaceAll(regText("node-room"), `tenure.dev/recalls: "", `, ""))
	}, ""}})

	const full, others = "the agent leaves room on its registration: ", "labels or annotations that are not a registration's"
	i.breakIn(t, []attempt{
		{"have a long store", func() error { return thief(`{spec: {holderIdentity: %s}}`, x(300<<10)) }, full},
		{"have a long machine", func() error { return thief(`{metadata: {annotations: {tenure.dev/machine: %s}}}`, x(129)) }, full},
		{"have a long report", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/report: %s}}}`, x(protocol.MaxReport+1))
		}, full},
		{"have recalls that nobody made", func() error { return thief(`{metadata: {annotations: {tenure.dev/recalls: '["%s"]'}}}`, x(9)) }, full},
		{"have been asked what nobody asks", func() error { return thief(`{metadata: {annotations: {tenure.dev/look: %s}}}`, x(9)) }, full},
		{"have had long stores", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/former: '[{"store":"%s"}]'}}}`, x(769))
		}, full},
		{"have had such, of quotes", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/former: %q}}}`, `[{"store":"`+strings.Repeat(`\"`, 385)+`"}]`)
		}, full},
		{"have other annotations", func() error { return thief(`{metadata: {annotations: {example.org/x: x}}}`) }, others},
		{"have labels", func() error { return thief(`{metadata: {labels: {x: x}}}`) }, others},
		{"apply under many names", func() error {
			return i.Patch(t.Context(), parse(regText("node-room")), client.Apply, client.FieldOwner("x"), client.ForceOwnership) //nolint:staticcheck // as it is
		}, full},
	})

	odd := strings.Repeat("\x01", 128) // JSON has six characters for each
	var former []protocol.Former
	for n := range 16 {
		former = append(former, protocol.Former{Store: protocol.StoreID(odd), Machine: odd, Boot: odd, NodeUID: protocol.UID(odd), Term: int64(n)})
	}
	list, err := json.Marshal(former)
	if err != nil {
		t.Fatal(err)
	}
	api := kube.NewAPI(kc)
	agent := &registrar{api: kube.NewAPI(i.Client)}
	agent.Self = protocol.Identity{Node: "node-room", NodeUID: "u", Store: "own", Machine: x(128), Boot: "next", Fence: time.Minute}
	i.mayDo(t, []attempt{
		{"fill it", func() error {
			return thief(`{metadata: {annotations: {tenure.dev/former: %q, tenure.dev/machine: %s, tenure.dev/report: %s}}, spec: {holderIdentity: %s}}`,
				list, x(128), x(protocol.MaxReport), x(128))
		}, ""},
		{"register after that", func() error { return agent.beat(t) }, ""},
		{"have its term ended after that", func() error {
			reg, _, err := api.ReadRegistration(t.Context(), "node-room")
			if err == nil {
				_, _, err = api.UpdateRegistration(t.Context(), protocol.EndTerm(reg, protocol.EvidenceSilence))
			}
			return err
		}, ""},
		{"register once more", func() error { return agent.beat(t) }, ""},
	})
}
