package looker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// keep asks the broker for what was found, and notes how far that has come. What a pool has asked
// for before stays asked for while the answers are awaited that it depends on.
func (t *look) keep(ctx context.Context) {
	next := map[place]grants.Ask{}
	if t.over {
		var ended []foreign.Kept
		ended, t.held = t.evidence.Ended(t.kept(), t.dead(ctx), t.passesOn())
		t.ended = map[place]foreign.Kept{}
		for _, b := range ended {
			t.ended[place{b.Pool, b.Addr}] = b
		}
	}
	for _, p := range t.pools {
		p.conflicts, p.unkept, p.whyUnkept = nil, 0, ""
		if t.awaits(p) {
			for at, ask := range t.asking {
				if at.pool == p.Name {
					next[at] = ask
				}
			}
			if !p.waits || len(p.finding.Silent) > 0 {
				continue
			}
		}
		for _, b := range p.finding.Keep {
			t.contest(p, &b)
			at := place{p.Name, b.Addr}
			ask := grants.Ask{To: b.To, From: []grants.Source{{Pool: p.Name, Addr: b.Addr, Families: []allocator.Family{allocator.FamilyOf(b.Addr)}}}}
			if b.To.UID.Several() {
				ask.Pod = p.Kept[b.Addr] // the grant to the one becomes that to nobody
			}
			if old := t.asking[at]; old.To != ask.To {
				t.Log.InfoContext(ctx, "address of another IPAM is kept", "pool", p.Name, "address", b.Addr, "for", b.To, "node", b.To.Node, "source", b.Source)
				t.withdraw(at, old)
			}
			next[at] = ask
			t.take(p, b, t.Broker.Ask(ask))
		}
	}
	for _, at := range sortedPlaces(t.asking) {
		if _, found := next[at]; !found {
			t.withdraw(at, t.asking[at])
		}
	}
	t.asking = next
}

// passesOn returns a function that reports whether the look keeps for another pod what is kept.
func (t *look) passesOn() func(foreign.Kept) bool {
	to := map[place]protocol.Grantee{}
	for _, p := range t.pools {
		for _, b := range p.finding.Keep {
			to[place{p.Name, b.Addr}] = b.To
		}
	}
	return func(kept foreign.Kept) bool {
		other, found := to[place{kept.Pool, kept.Addr}]
		return found && !other.Is(kept.To) && !other.UID.Several()
	}
}

// contest keeps an address from all where two may have it: it is kept for a pod that nobody reports
// any more, but that may still run, and another pod is reported to have it now.
func (t *look) contest(p *pool, b *foreign.Kept) {
	kept := foreign.Kept{Pool: p.Name, Addr: b.Addr, To: p.Kept[b.Addr]}
	to := kept.To
	switch {
	case !t.over, to.UID == "", to.Is(b.To), b.To.UID.Several(), t.ended[place{p.Name, b.Addr}] == kept:
		return
	case !t.evidence.Heard(kept) && t.facts.Agents[to.Node]:
		return // its node has yet to say so
	}
	p.conflicts = append(p.conflicts, foreign.Conflict{Addr: b.Addr, Owners: []string{foreign.Who(to), foreign.Who(b.To)}})
	b.To = to.ToSeveral()
}

// withdraw takes an ask back, if it is one.
func (l *Looker) withdraw(at place, ask grants.Ask) {
	if ask.To.UID != "" {
		l.Broker.WithdrawKept(at.pool, ask.To.UID, at.addr)
	}
}

// take notes what became of what is to be kept. What somebody else has, what the pool can never
// keep, and what lies in the block of a node that is dead, is not waited for: it is said. What lies
// in such a block stays withheld, since the node may come back, and would give it. Of a pool that
// was never open no node can have given anything, whatever it says.
func (t *look) take(p *pool, b foreign.Kept, answer grants.Answer) {
	bad := answer.Problem
	switch lease := t.lease(p.Name, bad.Lease); {
	case len(answer.Granted) > 0:
		return
	case bad.Reason == grants.Taken && p.Kept[b.Addr].UID != "" && p.Kept[b.Addr] != b.To:
		// a pod that is gone had it: it comes free in a moment
	case p.Fresh && bad.Lease != "" && (!lease.Holder.Cluster || lease.PoolUID != p.Object.UID):
		// No node can have given it: who has leased it before the pool was open gives it back, also
		// where the look has not read that lease. One of an earlier pool goes before this opens.
	case bad.Reason == grants.Taken, bad.Reason == grants.Unassignable, bad.Reason == grants.Silent && !t.facts.Lives(lease.Holder.Node, p.Name):
		p.conflicts = append(p.conflicts, foreign.Conflict{Addr: b.Addr, Owners: []string{foreign.Who(b.To), "somebody else: " + bad.Message}})
		if bad.Reason == grants.Silent && p.waits {
			p.block(b.Addr)
		}
		return
	}
	if p.waits && p.New.Contains(b.Addr) {
		p.unkept++
		p.whyUnkept = fmt.Sprintf("addresses that pods of other IPAMs have, and that are yet to be kept for them: %d", p.unkept)
		if bad.Message != "" {
			p.whyUnkept += ": " + bad.Message
		}
	}
}

// block has the pool withhold an address.
func (p *pool) block(a netip.Addr) {
	var b netipx.IPSetBuilder
	if p.verdict.Blocked != nil {
		b.AddSet(p.verdict.Blocked)
	}
	b.Add(a)
	p.verdict.Blocked, _ = b.IPSet() // only valid addresses were added
}

// lease returns the lease of that name, as the look has read it; the zero one if it has not.
func (t *look) lease(of protocol.PoolName, name string) (found protocol.Lease) {
	all := t.facts.Leases[of]
	if i := slices.IndexFunc(all, func(l protocol.Lease) bool { return l.Name == name }); i >= 0 && name != "" {
		found = all[i]
	}
	return found
}

// sortedPlaces returns the keys of a map, by pool and address.
func sortedPlaces[V any](of map[place]V) []place {
	return slices.SortedFunc(maps.Keys(of), func(x, y place) int {
		return cmp.Or(strings.Compare(string(x.pool), string(y.pool)), x.addr.Compare(y.addr))
	})
}

// kept returns what is kept for pods.
func (t *look) kept() (all []foreign.Kept) {
	for _, h := range t.Broker.Kept() {
		all = append(all, foreign.Kept{Pool: h.Pool, Addr: h.Grant.Addr, To: h.Grant.To})
	}
	return all
}

// freeEnded frees the addresses that nobody has any more. Two looks that are endEvery apart must
// have seen that. What another pod is said to have by now becomes kept for that pod in one write:
// were it free in between, somebody who has waited longer would get it.
func (t *look) freeEnded(ctx context.Context) error {
	held, next := map[place]grants.Held{}, map[place]ending{}
	for _, h := range t.Broker.Kept() {
		held[place{h.Pool, h.Grant.Addr}] = h
	}
	var freed []grants.Held
	for _, at := range sortedPlaces(t.ended) {
		b := t.ended[at]
		first, seen := t.endings[at]
		if !seen || !first.pod.Is(b.To) {
			first = ending{b.To, t.facts.Now}
		}
		next[at] = first
		if h := held[at]; h.Grant.To.Is(b.To) && t.facts.Now.Sub(first.since) >= endEvery {
			freed = append(freed, h)
		}
	}
	for _, b := range t.evidence.Unclaimed(t.kept()) { // of those of which this look says nothing the last one counts
		at := place{b.Pool, b.Addr}
		if first, seen := t.endings[at]; seen && first.pod.Is(b.To) && !t.evidence.Heard(b) {
			next[at] = first
		}
	}
	t.endings = next
	if len(freed) == 0 {
		return nil
	}
	if free, err := t.Broker.MayFree(ctx, freed); !free {
		return err
	}
	freed = slices.DeleteFunc(freed, func(h grants.Held) (passedOn bool) {
		at := place{h.Pool, h.Grant.Addr}
		t.Broker.WithdrawKept(h.Pool, h.Grant.To.UID, h.Grant.Addr)
		ask, asked := t.asking[at]
		if asked && ask.To != h.Grant.To {
			ask.Pod = h.Grant.To
			t.asking[at] = ask
			t.Broker.Ask(ask)
			return true
		}
		delete(t.asking, at)
		return false
	})
	if len(freed) == 0 {
		return nil
	}
	if err := t.Broker.Drop(ctx, freed); err != nil {
		return fmt.Errorf("free addresses of pods of other IPAMs: %w", err)
	}
	for _, h := range freed {
		t.Log.InfoContext(ctx, "address of another IPAM is free: its pod is gone", "pool", h.Pool, "address", h.Grant.Addr, "for", h.Grant.To)
	}
	return nil
}
