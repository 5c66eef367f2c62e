package simulation

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Fault is a bug that a test switches on to see that the simulation finds it: a
// number of the list in docs/contributing/simulation.md.
type Fault string

// NoFault is none.
const NoFault Fault = ""

// The faults of the node's side and of the API's rules.
const (
	M1  Fault = "M1"
	M2  Fault = "M2"
	M3  Fault = "M3"
	M4  Fault = "M4"
	M5  Fault = "M5"
	M6  Fault = "M6"
	M7  Fault = "M7"
	M8  Fault = "M8"
	M9  Fault = "M9"
	M11 Fault = "M11"
	M12 Fault = "M12"
	M18 Fault = "M18"
	M19 Fault = "M19"
	M20 Fault = "M20"
	M21 Fault = "M21"
	M24 Fault = "M24"
	M25 Fault = "M25"
	M26 Fault = "M26"
	M27 Fault = "M27"
	M28 Fault = "M28"
	M29 Fault = "M29"
	M30 Fault = "M30"
	M31 Fault = "M31"
	M32 Fault = "M32"
	M33 Fault = "M33"
	M34 Fault = "M34"
	M40 Fault = "M40"
	M42 Fault = "M42"
	M43 Fault = "M43"
	M44 Fault = "M44"
	M45 Fault = "M45"
	M46 Fault = "M46"
	M47 Fault = "M47"
	M48 Fault = "M48"
	M49 Fault = "M49"
	M50 Fault = "M50"
	M51 Fault = "M51"
	M52 Fault = "M52"
	M57 Fault = "M57"
)

// A Bug is a deliberate fault and what is expected of it.
type Bug struct {
	Fault Fault
	// What says what the program does wrong.
	What string
	// Within is how many seeds, from 0 on, hold one that fails.
	Within uint64
	// Breaks are the invariants that it may break first.
	Breaks []Invariant
	// In says which runs can show it; nil: all. The others are not played.
	In func(flavour) bool
}

// The runs that can show a fault.

func withLostStores(k flavour) bool { return k.losesStores }
func withRestores(k flavour) bool   { return k.handDeletes || k.restores }
func withSlowWrites(k flavour) bool { return k.slow }
func withSlowEdge(k flavour) bool   { return k.edge && k.slow }
func withConfirmed(k flavour) bool  { return k.confirmed }
func withTwins(k flavour) bool      { return k.twins }
func withUses(k flavour) bool       { return k.uses }
func withEdits(k flavour) bool      { return k.edits }
func withMoves(k flavour) bool      { return k.moves }

// Bugs returns all deliberate faults.
func Bugs() []Bug { return slices.Concat(nodeBugs(), controllerBugs(), scarcityBugs(), foreignBugs()) }

func nodeBugs() []Bug {
	return []Bug{
		{M1, "a plain read brings back what was given away", 600, []Invariant{I1}, nil},
		{M2, "releasing in memory alone", 100, []Invariant{I1}, nil},
		{M3, "forget a lease when its delete has no answer, and take it for new if it is there", 14000, []Invariant{I1}, withSlowWrites},
		{M4, "delete without a revision", 650, []Invariant{I1}, nil},
		{M5, "what exists in this node's name is this store's", 300, []Invariant{I1}, withTwins},
		{M6, "adopt a lost store's leases as empty", 500, []Invariant{I1}, withLostStores},
		{M7, "give addresses of a frozen lease", 4000, []Invariant{I1}, withLostStores},
		{M8, "do not notice a store that was put back", 400, []Invariant{I1, I2}, withLostStores},
		{M9, "answer before the disk has it", 100, []Invariant{I2}, nil},
		{M11, "take back by a write without an answer", 5000, []Invariant{I1, I3}, withSlowEdge},
		{M12, "take back what has been granted", 3000, []Invariant{I1, I3}, withUses},
		{M20, "ignore that the registration's term has ended", 400, []Invariant{I1}, nil},
		{M21, "register at once where another machine is registered", 300, []Invariant{I1}, withTwins},
		{M28, "delete the use at the first of two DELs", 1500, []Invariant{I3}, withUses},
		{M29, "a DEL frees whatever the pod has", 300, []Invariant{I2}, nil},
		{M30, "apply journalled DELs after a newer ADD", 800, []Invariant{I2}, nil},
		{M31, "take the address over while the old sandbox lives", 100, []Invariant{I1, I2}, nil},
		{M32, "collect garbage by the pod's object alone", 100, []Invariant{I2}, nil},
		{M33, "lease without a look at the pool afterwards", 1000, []Invariant{I1}, nil},
		{M34, "name leases by the pool's ranges", 1000, []Invariant{I1}, withEdits},
		{M40, "ignore that leases vanished, or that the API server went back", 600, []Invariant{I1}, withRestores},
		{M42, "never free what a DEL could not write", 100, []Invariant{I4}, nil},
		{M48, "take another machine's leases", 8000, []Invariant{I1}, withTwins},
		{M49, "give frozen rights back", 3000, []Invariant{I1, I3}, withLostStores},
		{M50, "no counter in /run", 400, []Invariant{I1, I2}, withLostStores},
		{M57, "a GC frees all that it does not list", 100, []Invariant{I1, I2}, nil},
		{M52, "neither note nor list what is created", 200, []Invariant{I4, I5}, nil},
		{M19, "F from the moment of the answer", 3000, []Invariant{I1}, withSlowWrites},
		{M26, "serve without a confirmation", 300, []Invariant{I1, I3}, nil},
		{M27, "take a claim's status for its leases", 300, []Invariant{I1, I3}, withUses},
		{M43, "a fencing write that changes nothing", 7500, []Invariant{I1}, withSlowWrites},
		{M44, "serve after another boot without a registration", 500, []Invariant{I1}, nil},
		{M45, "ignore the term", 100, []Invariant{I1}, nil},
		{M47, "siblings by their controller alone", 500, []Invariant{I1}, withUses},
	}
}

// step is protocol.Step, but for the faults that are in the steps.
func (f Fault) step(d *simDrive, r protocol.Right, self protocol.Self, ev protocol.Event) protocol.Result {
	answer := func(c protocol.Call, o protocol.Outcome) bool {
		return ev.Kind == protocol.EventAnswer && ev.Call == c && ev.Outcome == o
	}
	switch {
	case f == M1 && r.Phase == protocol.Releasing && r.UID != "" && ev.Kind == protocol.EventWant && self.Term != 0:
		return protocol.Result{Next: r, Call: protocol.CallRead}
	case f == M1 && r.Phase == protocol.Releasing && d.wanted && answer(protocol.CallRead, protocol.Done) &&
		ev.Object.Store == self.Store && ev.Object.Term == self.Term && self.Term != 0:
		r.Phase, r.Term = protocol.Held, self.Term
		r.UID, r.Revision = ev.Object.UID, ev.Object.Revision
		return protocol.Result{Next: r, Verdict: protocol.VerdictServes}
	case f == M3 && answer(protocol.CallDelete, protocol.Unknown):
		return protocol.Result{Next: r, Forget: true, Verdict: protocol.VerdictGone}
	case f == M3 && r.Phase == protocol.Noted && r.Asserted == 0 && answer(protocol.CallRead, protocol.Done) && ev.Object.Store == self.Store && ev.Object.Term == self.Term:
		ev.Call = protocol.CallCreate // what was forgotten is gone: this must be new
	case f == M40 && r.Phase == protocol.Held && answer(protocol.CallRead, protocol.NotFound):
		return protocol.Result{Next: r, Verdict: protocol.VerdictServes}
	case f == M11 && len(r.Taking) > 0 && answer(protocol.CallFence, protocol.Unknown):
		r.Ceded, r.Taking = r.CededNext(), nil
		return protocol.Result{Next: r, Verdict: protocol.VerdictServes}
	case f == M12 && ev.Kind == protocol.EventTakeBack:
		r.Grants = nil
	case f == M5 && r.Kind == protocol.RightLease && answer(protocol.CallCreate, protocol.Exists):
		if l, _ := d.n.w.api.leases.read(r.Name); l.Holder.Node == self.Node {
			ev.Outcome, ev.Object = protocol.Done, r.ObjectOf(l)
			ev.Object.Term = self.Term
		}
	}
	return protocol.Step(r, self, ev)
}

// reg tampers with what the agent is told about its registration.
func (f Fault) reg(s protocol.Registrar, ev protocol.RegistrationEvent) protocol.RegistrationEvent {
	if ev.Call != protocol.RegistrationRead || ev.Outcome != protocol.Done {
		return ev
	}
	switch {
	case f == M20 && s.Term != 0 && ev.Registration.Term != s.Term:
		ev.Registration.Store, ev.Registration.Machine, ev.Registration.Boot, ev.Registration.Term = s.Self.Store, s.Self.Machine, s.Self.Boot, s.Term
	case f == M21:
		ev.Registration.Machine = s.Self.Machine
	}
	return ev
}

// leaseName is protocol.LeaseName; with M34 another one for each edit of the pool.
func (n *simNode) leaseName(block netip.Prefix) string {
	name := protocol.LeaseName(poolName, block)
	if n.w.fault == M34 {
		name += fmt.Sprintf(".%d", n.heard)
	}
	return name
}

// believed is what M27 takes for the leases of a claim's addresses.
func believed(c protocol.Claim) []protocol.Lease {
	var all []protocol.Lease
	for _, ip := range c.IPs {
		all = append(all, protocol.Lease{
			Block: netip.PrefixFrom(ip.Addr(), ip.Addr().BitLen()), Holder: protocol.Holder{Cluster: true},
			Grants: []protocol.Grant{{Addr: ip.Addr(), To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: c.UID}}},
		})
	}
	return all
}

func recordText(r protocol.Right) string {
	if r.Phase == "" {
		return "nothing"
	}
	return fmt.Sprintf("%s(uid %s, rev %s, turn %d, asserted %d, term %d)", r.Phase, r.UID, r.Revision, r.Turn, r.Asserted, r.Term)
}

func eventText(ev protocol.Event) string {
	if ev.Kind != protocol.EventAnswer {
		return ev.Kind.String()
	}
	text := fmt.Sprintf("%v %v", ev.Call, ev.Outcome)
	if o := ev.Object; o.UID != "" {
		text += fmt.Sprintf(" (uid %s, rev %s, turn %d, term %d, %s/%s)", o.UID, o.Revision, o.Turn, o.Term, o.Node, o.Store)
	}
	return text
}

func resultText(res protocol.Result) string {
	text := recordText(res.Next)
	if res.Forget {
		text = "forgotten"
	}
	if res.Call != protocol.CallNone {
		text += ", call " + res.Call.String()
	}
	if res.Verdict != protocol.VerdictNone {
		text += ", " + res.Verdict.String()
	}
	if res.Why != "" {
		text += " (" + res.Why + ")"
	}
	return text
}
