package grants

import (
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// edit is one change to a lease's grants.
type edit struct {
	verb  Verb
	grant protocol.Grant // Freeing is ignored, and Mark is for Clear alone
	// on is the UID of the lease that an add was planned for.
	on protocol.UID
	// pod is the pod whose address by another IPAM an add may take for the grantee.
	pod protocol.Grantee
}

// A Verb is a change to a grant.
type Verb uint8

// The verbs.
const (
	add    Verb = iota // grant the address, if it is free and the cluster's to give
	Mark               // set freeing, with a mark of its own
	Unmark             // take the mark back
	Clear              // remove the grant, if its mark is the one that is named
	Drop               // remove the grant: its grantee is gone, or names others for good
)

// rewrite applies edits to l. done says for each edit whether it holds in next. An edit that cannot
// be made leaves next as it is. changed says whether next differs from l and must be written.
func rewrite(l protocol.Lease, edits []edit) (next protocol.Lease, done []bool, changed bool) {
	next, done = l.Clone(), make([]bool, len(edits))
	if l.Protocol > protocol.Version {
		return next, done, false // this version may not understand it
	}
	for i, e := range edits {
		at := slices.IndexFunc(next.Grants, func(g protocol.Grant) bool {
			return g.Addr == e.grant.Addr && (e.verb == add || g.To.Is(e.grant.To))
		})
		var did bool
		done[i], did = e.apply(&next, at)
		changed = changed || did
	}
	next.Protocol = protocol.Version
	return next, done, changed
}

// apply makes one edit; at is where the grant in question stands, or -1.
func (e edit) apply(l *protocol.Lease, at int) (done, changed bool) {
	switch e.verb {
	case add:
		if at >= 0 {
			g := &l.Grants[at]
			if keptFor(*g, e.pod) {
				*g = protocol.Grant{Addr: g.Addr, To: e.grant.To}
				return true, true
			}
			return g.To.Is(e.grant.To) && !g.Freeing, false
		}
		// A lease that was made again under the name has not been confirmed.
		if l.UID != e.on || l.Deleting || !l.Block.Contains(e.grant.Addr) {
			return false, false
		}
		if !l.Holder.Cluster {
			if !slices.Contains(l.Ceded, e.grant.Addr) {
				return false, false
			}
			if cededWhole(l) {
				takeOver(l)
			}
		}
		l.Grants = append(l.Grants, protocol.Grant{Addr: e.grant.Addr, To: e.grant.To})
		return true, true
	case Mark, Unmark:
		if at < 0 {
			return e.verb == Mark, false // nothing left to free
		}
		return true, mark(&l.Grants[at], e.verb, l.Revision)
	default:
		if at < 0 {
			return true, false
		}
		if e.verb == Clear && (!l.Grants[at].Freeing || l.Grants[at].Mark == "" || l.Grants[at].Mark != e.grant.Mark) {
			return false, false
		}
		l.Grants = slices.Delete(l.Grants, at, at+1)
		return true, true
	}
}

// keptFor reports whether g keeps its address for a pod that has it by another IPAM. The node must
// be the same, too: a request's pod is what a node says.
func keptFor(g protocol.Grant, pod protocol.Grantee) bool {
	return pod.UID != "" && !pod.UID.Several() && g.To.Kind == protocol.GranteePod && g.To.UID == pod.UID && g.To.Node == pod.Node
}

// mark marks a grant of a lease of that revision, or takes the mark off it. A grant that is marked
// keeps its mark, unless the mark is empty.
func mark(g *protocol.Grant, v Verb, revision protocol.Revision) (changed bool) {
	before := *g
	switch {
	case v == Unmark:
		g.Freeing, g.Mark = false, ""
	case !g.Freeing || g.Mark == "":
		g.Freeing, g.Mark = true, revision
	}
	return *g != before
}

// takeOver makes the cluster the holder of a lease that is idle to its holder. The next write
// count makes any write fail that the holder still has under way.
func takeOver(l *protocol.Lease) {
	l.Holder, l.Store, l.Term, l.Writes, l.Ceded = protocol.Holder{Cluster: true}, "", 0, l.Writes+1, nil
}

// cededWhole reports whether a node holds l and has ceded every address of its block. The lease is
// then idle to the node.
func cededWhole(l *protocol.Lease) bool {
	log := l.Block.Addr().BitLen() - l.Block.Bits()
	if l.Holder.Cluster || log > 8 || len(l.Ceded) < 1<<log { // no block has more than 256 addresses
		return false
	}
	ceded := sorted(slices.Clone(l.Ceded))
	ceded = slices.DeleteFunc(ceded, func(a netip.Addr) bool { return !l.Block.Contains(a) })
	return len(ceded) == 1<<log
}

// poolsOf returns the pools that grants are of, each once.
func poolsOf(grants []Held) []protocol.PoolName {
	var names []protocol.PoolName
	for _, h := range grants {
		if !slices.Contains(names, h.Pool) {
			names = append(names, h.Pool)
		}
	}
	return names
}
