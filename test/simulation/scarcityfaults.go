package simulation

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// The faults that show where addresses are scarce.
const (
	M10 Fault = "M10"
	M35 Fault = "M35"
	M36 Fault = "M36"
	M37 Fault = "M37"
	M41 Fault = "M41"
	M53 Fault = "M53"
)

func scarcityBugs() []Bug {
	return []Bug{
		{M10, "cede in the API before the store has it", 200, []Invariant{I1}, nil},
		{M35, "take reserves whatever the pressure", 100, []Invariant{I5}, withFills},
		{M36, "recall from one holder alone", 2500, []Invariant{I5}, withFills},
		{M37, "keep part of what is wanted while the rest cannot be had", 300, []Invariant{I4, I5}, withUses},
		{M41, "bar freed addresses for a while, by the wall clock", 200, []Invariant{I5}, withFills},
		{M53, "answer a request twice", 16000, []Invariant{I1}, withTwoLeaders},
	}
}

func withFills(k flavour) bool      { return k.fills }
func withTwoLeaders(k flavour) bool { return k.leaders && k.fills }

// earlyCede is M10: the lease says what is ceded before the store does.
func (n *simNode) earlyCede(r protocol.Right, ev protocol.Event, then func()) {
	n.ask("early cede of "+r.Name, true, func() {
		n.w.api.leases.update(protocol.Meta{Name: r.Name, UID: r.UID, Revision: r.Revision}, func(l *protocol.Lease) {
			l.Ceded, l.Turn = ev.Addrs, l.Turn+1
		})
	}, func(bool) {
		n.wait(10*time.Second, func() {
			if n.disk.rights[r.Name].Phase == protocol.Held {
				then()
			}
		})
	})
}

// reserveByRequest is of M35: where no block is left, the cluster is asked for a
// reserve.
func (n *simNode) reserveByRequest() {
	all := n.w.addresses()
	if len(all) == 0 {
		return
	}
	name := protocol.RequestName(n.name, 0)
	n.agent.tried[name] = n.w.now
	ask := protocol.Request{
		Pod: protocol.PodRef{Namespace: "ns", Name: "reserve", UID: protocol.UID("reserve-" + n.machine)}, Interface: "net1",
		Wants: []protocol.Wanted{{Pool: poolName, Ranges: []string{all[0].String() + "-" + all[len(all)-1].String()}}},
	}
	n.drive(protocol.Right{Kind: protocol.RightRequest, Name: name, SubLeaseRight: protocol.SubLeaseRight{Request: &ask}}, protocol.Event{Kind: protocol.EventWant}, nil)
}

// UpdateRegistration is, with M36, how a recall gets to one node alone.
func (c faultyCalls) UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	if c.w.fault == M36 && s.Node != c.w.nodes[0].name {
		s.Recalls = nil
	}
	return c.liveCalls.UpdateRegistration(ctx, s)
}

// Ask is, with M37, an ask for one address after the other, in any order. With M63 what another pod
// shows is asked for that pod.
func (g granter) Ask(a grants.Ask) grants.Answer {
	if g.c.w.fault == M63 && a.To.Kind == protocol.GranteePod {
		a.To = g.c.forger(a.From[0].Addr, a.To)
	}
	answer := g.Broker.Ask(a)
	if g.c.w.fault != M37 || len(answer.Granted) > 0 {
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

// cooling is M41: a freed address is barred for a while, by the wall clock.
func (n *simNode) cooling(d *simDisk, x netip.Addr) bool {
	if n.w.fault != M41 {
		return false
	}
	freed, ok := d.freed[x]
	return ok && n.now().Wall.Before(freed.Add(cooldown))
}

// coolingIn is cooling for any address of a lease.
func (n *simNode) coolingIn(d *simDisk, r protocol.Right) bool {
	return r.Kind == protocol.RightLease && slices.ContainsFunc(n.w.addresses(), func(x netip.Addr) bool { return r.Block.Contains(x) && n.cooling(d, x) })
}
