package simulation

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/controller/looker"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// foreignBugs are the faults that show where another IPAM has given addresses.
func foreignBugs() []Bug {
	return []Bug{
		{"M58", "open a pool without a look at what pods have by another IPAM", 1000, []Invariant{I1}, withForeign},
		{"M59", "look without a fence", 4000, []Invariant{I1}, withForeign},
		{"M60", "look before the fence is in force", 14000, []Invariant{I1}, withForeign},
		{"M61", "free what is kept for a pod whose object is gone, although its sandbox runs", 30000, []Invariant{I1}, withForeign},
		{"M62", "give what an edit adds before a look", 2000, []Invariant{I1}, withForeign},
		{"M63", "believe what a pod shows more than the record of another pod", 20000, []Invariant{I1}, withForeign},
	}
}

func withForeign(k flavour) bool { return k.foreign }

// verdicts are what the pools' reconciler is told of the looks.
func (c *simController) verdicts() pools.Foreign { return faultyVerdicts{c} }

// faultyVerdicts are the looker's, with the fault that is switched on.
type faultyVerdicts struct{ c *simController }

func (f faultyVerdicts) Of(pool protocol.PoolName) foreign.Verdict {
	v := f.c.look.Of(pool)
	if f.c.w.fault == "M58" {
		v.Stage, v.Why = foreign.StageClear, ""
	}
	return v
}

// liveLooks are the calls of a look.
func (c *simController) liveLooks() looker.Live { return liveLooks{liveCalls{c}} }

// fenceDelay is how long the API servers take to hear of a fence.
func (w *world) fenceDelay() time.Duration {
	if w.fault == "M60" {
		return fenceWithin + w.upTo(240*fenceWithin)
	}
	return w.upTo(fenceWithin)
}

// cachedRegistrations are the registrations as the controller's informer has them.
func (c *simController) cachedRegistrations(context.Context) ([]protocol.Registration, error) {
	all := c.regs.list(nil)
	for i := range all {
		if c.w.fault == "M61" {
			all[i].Report = c.withoutObject(all[i].Report)
		}
	}
	return all, nil
}

// withoutObject is M61: a report says nothing of what runs for a pod whose object is
// gone.
func (c *simController) withoutObject(text string) string {
	r, ok, err := protocol.ParseReport(text)
	must(err)
	if !ok {
		return text
	}
	gone := func(uid protocol.UID) bool {
		return !slices.ContainsFunc(c.w.all, func(p *simPod) bool { return p.there && p.ref.UID == uid })
	}
	r.Running = slices.DeleteFunc(r.Running, gone)
	r.Has = slices.DeleteFunc(r.Has, func(s protocol.Sighting) bool { return gone(s.Pod.UID) })
	return r.String()
}

// forger is M63: the pod to whose status somebody has written an address that another has.
func (c *simController) forger(a netip.Addr, found protocol.Grantee) protocol.Grantee {
	for _, p := range c.w.all {
		if p.forged == a {
			return protocol.Grantee{Kind: protocol.GranteePod, UID: p.ref.UID, Namespace: p.ref.Namespace, Name: p.ref.Name, Node: p.node.name}
		}
	}
	return found
}

// giveAtOnce is M62: a status that withholds nothing of an open pool.
func giveAtOnce(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	must(json.Unmarshal(raw, &fields))
	if _, ok := fields["withheld"]; ok {
		fields["withheld"] = json.RawMessage("null")
	}
	changed, err := json.Marshal(fields)
	must(err)
	return changed
}
