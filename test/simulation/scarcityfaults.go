package simulation

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// scarcityBugs are the faults that show where addresses are scarce.
func scarcityBugs() []Bug {
	return []Bug{
		{"M10", "cede in the API before the store has it", 200, []Invariant{I1}, nil},
		{"M35", "take reserves whatever the pressure", 0, []Invariant{I5}, withFills},
		{"M36", "recall from one holder alone", 30000, []Invariant{I5}, withFills},
		{"M37", "keep part of what is wanted while the rest cannot be had", 300, []Invariant{I4, I5}, withUses},
		{"M41", "bar freed addresses", 200, []Invariant{I5}, withFills},
		{"M53", "answer a request twice", 0, []Invariant{I1}, withTwoLeaders},
	}
}

func withFills(k flavour) bool      { return k.fills }
func withTwoLeaders(k flavour) bool { return k.leaders && k.fills }

// UpdateRegistration is, with M36, how a recall gets to one node alone.
func (c faultyCalls) UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	if c.w.fault == "M36" && s.Node != c.w.nodes[0].name {
		s.Recalls = nil
	}
	return c.liveCalls.UpdateRegistration(ctx, s)
}

// Ask is, with M37, an ask for one address after the other, in any order. With M63 what another pod
// shows is asked for that pod.
func (g granter) Ask(a grants.Ask) grants.Answer {
	if g.c.w.fault == "M63" && a.To.Kind == protocol.GranteePod {
		a.To = g.c.forger(a.From[0].Addr, a.To)
	}
	answer := g.Broker.Ask(a)
	if g.c.w.fault != "M37" || len(answer.Granted) > 0 {
		return answer
	}
	for i := range a.From {
		one := a
		one.From = a.From[i : i+1]
		if len(g.Broker.Ask(one).Granted) == 0 {
			return grants.Answer{}
		}
	}
	return g.Broker.Ask(a)
}
