package looker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// errNoFence says that nothing holds whereabouts to a fence.
var errNoFence = errors.New("the cluster has whereabouts, and not the policy foreign-fence.tenure.dev, without which whereabouts goes on giving addresses: install it with the rest of Tenure's policies")

// fence returns the names of whereabouts' IPPools that are to give nothing new, because p
// takes their addresses over: those that cover addresses of p, or would by what the
// segment's definitions say, and that no definition of whereabouts' uses any more.
func (t *round) fence(p foreign.Pool) []string {
	if !t.served {
		return nil
	}
	names := map[string]bool{}
	for _, o := range t.objects {
		if slices.ContainsFunc(p.Whole.Ranges(), func(r allocator.Range) bool {
			return netipx.IPRangeFrom(r.Start, r.End).Overlaps(netipx.RangeOfPrefix(o.covers))
		}) {
			names[o.name] = true
		}
	}
	for _, d := range p.Segment(t.facts.Definitions) {
		for _, o := range d.Whereabouts {
			names[o.Name] = true
		}
	}
	for _, d := range t.facts.Definitions {
		if d.IPAM == foreign.TypeWhereabouts {
			for _, o := range d.Whereabouts {
				delete(names, o.Name)
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ask asks the nodes' agents what their pods have, where that tells something: those of pods
// that may have something by another IPAM, and those on which something that is kept may have
// ended. It reports whether any is asked.
func (t *round) ask(ctx context.Context) (bool, error) {
	regs, err := t.Registrations(ctx)
	if err != nil {
		return false, err
	}
	t.ended, t.registered, t.facts.Lives = map[protocol.NodeName]bool{}, map[protocol.NodeName]bool{}, map[protocol.NodeName]bool{}
	for _, reg := range regs {
		t.ended[reg.Node], t.registered[reg.Node] = reg.Ended(), !reg.Ended()
		if !reg.Ended() && t.Beats(reg.Node) {
			t.facts.Lives[reg.Node] = true
		}
	}
	t.candidates = foreign.Candidates(t.facts)
	of := t.nodesOfEnding()
	for _, nodes := range t.candidates {
		maps.Copy(of, nodes)
	}
	regs = slices.DeleteFunc(regs, func(reg protocol.Registration) bool { return reg.Ended() || !of[reg.Node] })
	if len(regs) == 0 {
		return false, nil
	}
	t.id = rand.Text()
	text := t.question().String()
	for _, reg := range regs {
		t.nodes = append(t.nodes, reg.Node)
	}
	grants.Each(t.Calls, regs, func(s protocol.Registration) {
		out, err := t.Live.AskNode(ctx, s.Meta, text)
		if out != protocol.Done { // it is asked by the next look, and counts as silent in this one
			t.Log.DebugContext(ctx, "node cannot be asked what its pods have", "node", s.Node, "error", err)
		}
	})
	return true, nil
}

// kept returns what is kept for pods.
func (t *round) kept() (all []foreign.Bar) {
	for _, h := range t.Broker.Kept() {
		all = append(all, foreign.Bar{Pool: h.Pool, Addr: h.Grant.Addr, To: h.Grant.To})
	}
	return all
}

// nodesOfEnding returns the nodes of what is kept and has ended, as far as the API server
// tells.
func (t *round) nodesOfEnding() map[protocol.NodeName]bool {
	nodes := map[protocol.NodeName]bool{}
	for _, b := range foreign.Ended(t.facts, t.kept(), func(protocol.NodeName) bool { return true }) {
		nodes[b.To.Node] = true
	}
	return nodes
}

// question returns what the agents are asked.
func (t *round) question() protocol.Look {
	look := protocol.Look{ID: t.id}
	var set netipx.IPSetBuilder
	networks := map[protocol.HostLocal]bool{}
	for _, p := range t.facts.Pools {
		for _, r := range p.Whole.Ranges() {
			set.AddRange(netipx.IPRangeFrom(r.Start, r.End))
		}
		for _, d := range p.Segment(t.facts.Definitions) {
			networks[protocol.HostLocal{Network: d.Network, DataDir: d.DataDir}] = true
		}
	}
	ranges, _ := set.IPSet() // only valid ranges were added
	for _, r := range ranges.Ranges() {
		look.Ranges = append(look.Ranges, r.String())
	}
	look.HostLocal = slices.SortedFunc(maps.Keys(networks), func(a, b protocol.HostLocal) int {
		return cmp.Or(strings.Compare(a.Network, b.Network), strings.Compare(a.DataDir, b.DataDir))
	})
	return look
}

// reports takes up the answers of the nodes that were asked. It reports whether all have
// answered, or those that have not are not to be waited for any more.
func (t *round) reports(ctx context.Context) (done bool, err error) {
	if t.id == "" {
		return true, nil
	}
	regs, err := t.Registrations(ctx)
	if err != nil {
		return false, err
	}
	t.facts.Reports, t.silent = map[protocol.NodeName]protocol.Report{}, nil
	asked := map[protocol.NodeName]bool{}
	for _, n := range t.nodes {
		asked[n] = true
	}
	for _, s := range regs {
		if !asked[s.Node] {
			continue
		}
		r, ok, err := protocol.ParseReport(s.Report)
		switch {
		case err != nil:
			t.Log.WarnContext(ctx, "node's report is garbled", "node", s.Node, "error", err)
		case ok && r.ID == t.id:
			t.facts.Reports[s.Node] = r
			continue
		}
		if !s.Ended() && t.Beats(s.Node) && !t.gone(ctx, s.Node) {
			t.silent = append(t.silent, s.Node)
		} else {
			delete(t.facts.Lives, s.Node)
		}
	}
	slices.Sort(t.silent)
	return len(t.silent) == 0 || t.Now().Sub(t.facts.Now) >= answerWithin, nil
}

// answers asks the broker for what is to be kept, and returns what somebody else has.
func (t *round) answers(bars []foreign.Bar) (conflicts []foreign.Conflict) {
	of := map[protocol.PoolName]*waiting{}
	for _, w := range t.waiting {
		of[w.pool.Name] = w
	}
	for _, b := range bars {
		ask, ok := t.asking[place{b.Pool, b.Addr}]
		if !ok || ask.To != b.To {
			continue
		}
		answer := t.Broker.Ask(ask)
		w := of[b.Pool]
		switch bad := answer.Problem; {
		case len(answer.Granted) > 0:
			continue
		case bad.Reason == grants.Taken:
			conflicts = append(conflicts, foreign.Conflict{Pool: b.Pool, Addr: b.Addr, Owners: []string{foreign.Who(b.To), "somebody else: " + bad.Message}})
			continue
		case bad.Reason != grants.NoProblem && w != nil:
			w.unkept = ": " + bad.Message
		}
		if w != nil && w.pool.New.Contains(b.Addr) {
			w.bars++
		}
	}
	return conflicts
}

// freeEnded frees the addresses that nobody has any more. Two looks that are endEvery apart must
// have seen that.
func (t *round) freeEnded(ctx context.Context) error {
	ended := foreign.Ended(t.facts, t.kept(), t.dead(ctx))
	held, next := t.held(), map[place]ending{}
	var freed []grants.Held
	for _, b := range ended {
		at := place{b.Pool, b.Addr}
		first, seen := t.endings[at]
		if !seen || first.pod != b.To.UID {
			first = ending{b.To.UID, t.facts.Now}
		}
		next[at] = first
		if t.facts.Now.Sub(first.since) < endEvery {
			continue
		}
		for _, h := range held[at] {
			if h.Grant.To.UID == b.To.UID {
				freed = append(freed, h)
			}
		}
	}
	t.endings = next
	if len(freed) == 0 {
		return nil
	}
	if free, err := t.Broker.MayFree(ctx, freed); !free {
		return err
	}
	for _, h := range freed {
		t.Broker.WithdrawBar(h.Grant.To.UID, h.Grant.Addr)
		delete(t.asking, place{h.Pool, h.Grant.Addr})
	}
	if err := t.Broker.Drop(ctx, freed); err != nil {
		return fmt.Errorf("free addresses of pods of other IPAMs: %w", err)
	}
	for _, h := range freed {
		t.Log.InfoContext(ctx, "address of another IPAM is free: its pod is gone", "pool", h.Pool, "address", h.Grant.Addr, "pod", h.Grant.To.Namespace+"/"+h.Grant.To.Name)
	}
	return nil
}

// dead returns what tells whether a node counts as dead: the controller has ended its
// registration's term, or it has neither a Node nor anybody on its registration.
func (t *round) dead(ctx context.Context) func(protocol.NodeName) bool {
	return func(node protocol.NodeName) bool {
		return t.ended[node] || !t.registered[node] && t.gone(ctx, node)
	}
}

// gone reports whether there is no Node of that name.
func (t *round) gone(ctx context.Context, node protocol.NodeName) bool {
	gone, known := t.without[node]
	if !known {
		_, out, _ := t.Live.ReadNode(ctx, node)
		gone = out == protocol.NotFound
		t.without[node] = gone
	}
	return gone
}
