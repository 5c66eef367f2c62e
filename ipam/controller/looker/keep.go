package looker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// keep has what was found kept, and says how far that has come.
func (t *round) keep(ctx context.Context) {
	bars, conflicts := foreign.Find(t.facts)
	if t.asking == nil {
		t.asking = map[place]grants.Ask{}
	}
	found := t.choose(bars)
	for _, at := range sortedPlaces(found) {
		b := found[at]
		ask := grants.Ask{To: b.To, From: []grants.Source{{Pool: b.Pool, Addr: b.Addr, Families: []allocator.Family{allocator.FamilyOf(b.Addr)}}}}
		if old, ok := t.asking[at]; !ok || old.To != ask.To {
			t.Log.InfoContext(ctx, "address of another IPAM is kept for its pod", "pool", b.Pool, "address", b.Addr, "pod", b.To.Namespace+"/"+b.To.Name, "node", b.To.Node, "source", b.Source)
			if ok {
				t.Broker.WithdrawBar(old.To.UID, b.Addr)
			}
		}
		t.asking[at] = ask
	}
	held := t.held()
	for _, at := range sortedPlaces(t.asking) {
		ask := t.asking[at]
		if _, seen := found[at]; !seen && len(held[at]) == 0 { // it is not seen any more, and was not kept yet
			t.Broker.WithdrawBar(ask.To.UID, at.addr)
			delete(t.asking, at)
		}
	}
	conflicts = append(conflicts, t.answers(bars)...)
	for _, w := range t.waiting {
		t.judge(w)
	}
	for _, c := range conflicts {
		v := t.verdicts[c.Pool]
		v.Conflicts = append(v.Conflicts, c)
		t.verdicts[c.Pool] = v
	}
}

// sortedPlaces returns the keys of a map, by pool and address.
func sortedPlaces[V any](of map[place]V) []place {
	return slices.SortedFunc(maps.Keys(of), func(x, y place) int {
		return cmp.Or(strings.Compare(string(x.pool), string(y.pool)), x.addr.Compare(y.addr))
	})
}

// choose returns the one pod that each address is kept for. Of two pods with one address,
// which are a conflict, it is the pod that has it kept or asked for already, so that one
// look does not undo what the last has done.
func (t *round) choose(bars []foreign.Bar) map[place]foreign.Bar {
	before := map[place]protocol.UID{}
	for at, ask := range t.asking {
		before[at] = ask.To.UID
	}
	for _, b := range t.kept() {
		before[place{b.Pool, b.Addr}] = b.To.UID
	}
	chosen := map[place]foreign.Bar{}
	for _, b := range bars {
		at := place{b.Pool, b.Addr}
		if _, other := chosen[at]; !other || before[at] == b.To.UID {
			chosen[at] = b
		}
	}
	return chosen
}

// held returns the grants to pods of other IPAMs, by address.
func (t *round) held() map[place][]grants.Held {
	held := map[place][]grants.Held{}
	for _, h := range t.Broker.Kept() {
		at := place{h.Pool, h.Grant.Addr}
		held[at] = append(held[at], h)
	}
	return held
}

// judge says whether a pool that waits may go on.
func (t *round) judge(w *waiting) {
	pending, unseen := foreign.Pending(t.facts, w.pool), foreign.Unseen(t.facts, w.pool)
	silent := slices.DeleteFunc(slices.Clone(t.silent), func(node protocol.NodeName) bool { return !t.candidates[w.pool.Name][node] })
	switch {
	case len(silent) > 0:
		t.say(w, fmt.Sprintf("it waits for the agents of nodes %s to say what their pods have", names(silent)))
	case len(unseen) > 0:
		t.say(w, fmt.Sprintf("what pods have may be where an agent cannot read it: %s. Have it read there; or, if the status of the pods shows all that they have, say so: "+
			"kubectl annotate ippools %s %s=true (kubectl tenure import --apply --trust-status does)", few(unseen), w.pool.Name, v1alpha1.AnnotationTrustStatus))
	case w.bars > 0:
		t.say(w, fmt.Sprintf("addresses that pods of other IPAMs have, and that are yet to be kept for them, %d%s", w.bars, w.unkept))
	case len(pending) > 0:
		var pods []string
		for _, p := range pending {
			pods = append(pods, p.String())
		}
		t.say(w, fmt.Sprintf("pods that were bound to their nodes before may still get an address of another IPAM: %s", few(pods)))
	default:
		v := t.verdicts[w.pool.Name]
		v.Clear, v.Why = true, ""
		t.verdicts[w.pool.Name] = v
	}
}

// say notes why a pool has to wait.
func (t *round) say(w *waiting, why string) {
	v := t.verdicts[w.pool.Name]
	v.Clear, v.Why = false, why
	t.verdicts[w.pool.Name] = v
}

// unready says of all pools that wait why they do.
func (t *round) unready(why string) {
	for _, w := range t.waiting {
		t.say(w, why)
	}
}

// nextLook returns when to look next. A look at very many pods takes time that others need, too:
// after a long one the next comes later. But one that took very long was held up, and that says
// nothing of the pods.
func (t *round) nextLook(took time.Duration) time.Duration {
	took = min(took, tookMost)
	switch {
	case t.soon, slices.ContainsFunc(t.waiting, func(w *waiting) bool { return !t.verdicts[w.pool.Name].Clear }):
		return max(waitEvery, 2*took)
	case len(t.endings) > 0:
		return max(endEvery, 10*took)
	default:
		return max(idleEvery, 20*took)
	}
}

// sayAsked says of the pools that wait that the nodes' agents are being asked. A reason that
// people have read stays until the agents have answered. Where nothing touches what waits of a
// pool, nobody is asked for it, and it goes on at once.
func (t *round) sayAsked() {
	bars, _ := foreign.Find(t.facts)
	for _, w := range t.waiting {
		nodes := slices.Sorted(maps.Keys(t.candidates[w.pool.Name]))
		found := slices.ContainsFunc(bars, func(b foreign.Bar) bool { return b.Pool == w.pool.Name })
		if len(nodes) == 0 && !found {
			t.judge(w)
		} else if last := t.Of(w.pool.Name); last.Why != "" && last.Of == t.verdicts[w.pool.Name].Of {
			t.say(w, last.Why)
		} else {
			t.say(w, fmt.Sprintf("the agents of nodes %s are asked what their pods have", names(nodes)))
		}
	}
}

// names lists nodes for people.
func names(nodes []protocol.NodeName) string {
	var all []string
	for _, n := range nodes {
		all = append(all, string(n))
	}
	return few(all)
}

// few lists the first of what may be many.
func few(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
