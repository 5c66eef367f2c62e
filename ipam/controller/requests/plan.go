package requests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// seen is what is known when a request is looked at. What decide needs beyond the
// sub-lease and its grants is read when it says so.
type seen struct {
	sub  protocol.SubLease
	held []grants.Held
	// live says that sub was read live, and verified that the leases of held, and
	// those that the status names, were read live since.
	live, verified bool

	answer *grants.Answer // nil: not asked
	taken  *taken         // nil: not read
}

// taken is what a live read has shown of an address that cannot be had.
type taken struct {
	lease protocol.Lease
	there bool
	// pod is the pod of the sub-lease that has the address, zero if none has.
	pod  protocol.PodRef
	node protocol.NodeName
}

// plan is what is to be done about a request. If one of the first five is set, decide is called
// again with the answer. Otherwise the others say what to do.
type plan struct {
	ask    *grants.Ask     // ask the broker
	prove  *grants.Ask     // ask it, with the leases of the grants read live
	verify []string        // read these leases live, and look again
	live   bool            // read the sub-lease live
	taken  *grants.Problem // read the lease that has the address

	// answer is what to write into the status.
	answer *protocol.SubLease
	// giveBack are grants of a request that is not answered: part of what it wants,
	// of no use without the rest.
	giveBack []grants.Held
	// drop are grants that the status does not name, and unmark such as it does
	// and that are not to be freed after all.
	drop, unmark []grants.Held
	// done says that nothing is asked for any more.
	done bool
}

// decide returns what is to be done.
func decide(s seen) plan {
	switch {
	case s.sub.Request == nil, s.sub.Protocol > protocol.Version:
		return plan{} // no request, or one of a later version: it might be read wrong
	case s.sub.Answered():
		return s.decideAnswered()
	case s.sub.Deleting:
		return plan{done: true} // nobody will use it; its grants go when it has gone
	}
	if marked := s.marked(); len(marked) > 0 { // somebody has begun to give them back
		return plan{giveBack: marked}
	}
	if s.answer == nil {
		ask, err := askOf(s.sub)
		if err != nil {
			return s.refuse(v1alpha1.RefusedNotAssignable, err.Error())
		}
		return plan{ask: &ask}
	}
	if len(s.answer.Granted) > 0 {
		// The status write must fail if somebody is giving these back.
		if ask, err := askOf(s.sub); err == nil && s.answer.Stamp != s.sub.Revision {
			return plan{prove: &ask}
		}
		return s.grant()
	}
	return s.decideWaiting(s.answer.Problem)
}

// decideWaiting decides what to do about a request that has not been granted, because of bad.
func (s seen) decideWaiting(bad grants.Problem) plan {
	switch bad.Reason {
	case grants.Unassignable:
		return s.refuse(v1alpha1.RefusedNotAssignable, bad.Message)
	case grants.PoolNotReady:
		if bad.Lasting {
			return s.refuse(v1alpha1.RefusedPoolNotReady, bad.Message)
		}
	case grants.Taken:
		if s.taken == nil {
			return plan{taken: &bad}
		}
		if who := s.taken.who(s.sub, bad); who != "" {
			return s.refuse(v1alpha1.RefusedInUse, who)
		}
	case grants.Exhausted, grants.Silent:
		return plan{giveBack: s.held} // they might be what another waits for
	case grants.NoProblem, grants.PoolMissing, grants.Failed:
	}
	return plan{}
}

// decideAnswered decides what to do about a request that has its answer.
func (s seen) decideAnswered() plan {
	p := plan{done: true}
	missing := len(s.sub.Granted)
	for _, h := range s.held {
		switch {
		case !slices.Contains(s.sub.Granted, protocol.Granted{Addr: h.Grant.Addr, Lease: leaseOf(h)}):
			p.drop = append(p.drop, h)
			continue
		case h.Grant.Freeing:
			p.unmark = append(p.unmark, h)
		}
		missing--
	}
	switch {
	case len(p.drop)+len(p.unmark) > 0 && !s.live:
		return plan{live: true}
	case missing == 0 || s.sub.Deleting:
		return p
	case !s.verified: // a watch may be behind the status
		return plan{verify: s.leases()}
	}
	// A lease was deleted by hand: the addresses become the request's again, if they
	// are nobody else's.
	if s.answer == nil {
		if ask, err := restoring(s.sub); err == nil {
			return plan{ask: &ask}
		}
	}
	p.done = s.answer == nil || len(s.answer.Granted) > 0
	return p
}

// leases returns the names of the leases that grants to the request stand on, or
// should.
func (s seen) leases() []string {
	var names []string
	for _, h := range s.held {
		names = append(names, leaseOf(h))
	}
	for _, g := range s.sub.Granted {
		names = append(names, g.Lease)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// marked returns the grants that are marked.
func (s seen) marked() []grants.Held {
	return slices.DeleteFunc(slices.Clone(s.held), func(h grants.Held) bool { return !h.Grant.Freeing })
}

// grant returns the answer that names what was granted, in the order of the wants.
func (s seen) grant() plan {
	next := s.sub
	next.Granted = make([]protocol.Granted, len(s.sub.Request.Wants))
	for _, g := range s.answer.Granted {
		i := slices.IndexFunc(s.held, func(h grants.Held) bool {
			return h.Grant.Addr == g.Addr && h.Pool == s.sub.Request.Wants[g.Source].Pool
		})
		if i < 0 {
			return plan{} // it has gone since: the news is on its way
		}
		next.Granted[g.Source] = protocol.Granted{Addr: g.Addr, Lease: leaseOf(s.held[i])}
	}
	return plan{answer: &next}
}

func (s seen) refuse(reason, message string) plan {
	next := s.sub
	next.Refused = &protocol.Refusal{Reason: reason, Message: clip(message)}
	return plan{answer: &next, drop: s.held}
}

// clip keeps a message within what the API admits.
func clip(message string) string {
	const most = 1024
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len("…")], "") + "…"
}

// who returns a sentence on who has the address that s wants. It is empty if nobody has it, or
// nobody will have it for long.
func (t taken) who(s protocol.SubLease, bad grants.Problem) string {
	l := t.lease
	if !t.there {
		return ""
	}
	if g, ok := l.GrantOf(bad.Addr); ok {
		switch {
		case g.To.UID == s.UID && g.To.Kind != protocol.GranteePod || g.Freeing:
			return ""
		case t.pod.Name != "":
			return fmt.Sprintf("%v of pool %s belongs to pod %v on node %s%s", bad.Addr, l.Pool, t.pod, t.node, s.Request.Pod.Standoff(t.pod))
		default:
			return fmt.Sprintf("%v of pool %s belongs to %v", bad.Addr, l.Pool, g.To)
		}
	}
	if l.Holder.Cluster || slices.Contains(l.Ceded, bad.Addr) {
		return ""
	}
	for _, text := range l.Published.Allocations {
		if rest, ok := strings.CutPrefix(text, bad.Addr.String()+" "); ok {
			return fmt.Sprintf("%v of pool %s is in use by pod %s on %v%s", bad.Addr, l.Pool, rest, l.Holder, s.Request.Pod.Standoff(podIn(rest)))
		}
	}
	return fmt.Sprintf("%v of pool %s lies in a block of %v, which has not ceded it", bad.Addr, l.Pool, l.Holder)
}

// podIn returns the pod that a published allocation names behind the address.
func podIn(text string) (pod protocol.PodRef) {
	named, _, _ := strings.Cut(text, " ")
	pod.Namespace, pod.Name, _ = strings.Cut(named, "/")
	return pod
}

func leaseOf(h grants.Held) string { return protocol.LeaseName(h.Pool, h.Block) }
