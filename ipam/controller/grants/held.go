package grants

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A ClaimKey is the name of a claim. Claims that follow each other under one name
// share it.
type ClaimKey struct{ Namespace, Name string }

func (k ClaimKey) grantee() protocol.Grantee {
	return protocol.Grantee{Kind: protocol.GranteeClaim, Namespace: k.Namespace, Name: k.Name}
}

// Held is a grant, and the pool and block of the lease that it stands on.
type Held struct {
	Pool  protocol.PoolName
	Block netip.Prefix
	Grant protocol.Grant
}

// index replaces old's grants by next's, and returns the grantees that differ.
func (b *book) index(old, next protocol.Lease) []protocol.Grantee {
	was, is := old.Grants, next.Grants
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:] // most writes add to the end
	}
	var changed []protocol.Grantee
	for _, g := range was {
		if slices.Contains(is, g) {
			continue
		}
		b.removeHeld(Held{Pool: old.Pool, Block: old.Block, Grant: g})
		changed = append(changed, nameOf(g.To))
	}
	for _, g := range is {
		if slices.Contains(was, g) {
			continue
		}
		b.addHeld(Held{Pool: next.Pool, Block: next.Block, Grant: g})
		changed = append(changed, nameOf(g.To))
	}
	return changed
}

// A holding tells grantees apart, as [protocol.Grantee.Is] does.
type holding struct {
	uid  protocol.UID
	pod  bool
	node protocol.NodeName // of a pod
}

func holdingOf(g protocol.Grantee) holding {
	if g.Kind != protocol.GranteePod {
		return holding{uid: g.UID}
	}
	return holding{g.UID, true, g.Node}
}

func (b *book) addHeld(h Held) {
	of, name := holdingOf(h.Grant.To), nameOf(h.Grant.To)
	b.held[of] = append(b.held[of], h)
	if !slices.Contains(b.names[name], of.uid) {
		b.names[name] = append(b.names[name], of.uid)
	}
}

func (b *book) removeHeld(gone Held) {
	of, name := holdingOf(gone.Grant.To), nameOf(gone.Grant.To)
	rest := slices.DeleteFunc(b.held[of], func(h Held) bool { return h == gone })
	if b.held[of] = rest; len(rest) == 0 {
		delete(b.held, of)
	}
	if slices.ContainsFunc(rest, func(h Held) bool { return nameOf(h.Grant.To) == name }) {
		return
	}
	uids := slices.DeleteFunc(b.names[name], func(u protocol.UID) bool { return u == of.uid })
	if b.names[name] = uids; len(uids) == 0 {
		delete(b.names, name)
	}
}

// nameOf returns g without its UID. Grantees that follow each other under one name share it.
func nameOf(g protocol.Grantee) protocol.Grantee {
	g.UID = ""
	return g
}

// kept returns what is kept for pods of other IPAMs, by pool and address.
func (b *book) kept() []Held {
	var all []Held
	for of, held := range b.held {
		if of.pod {
			all = append(all, held...)
		}
	}
	slices.SortFunc(all, func(x, y Held) int {
		return cmp.Or(strings.Compare(string(x.Pool), string(y.Pool)), x.Grant.Addr.Compare(y.Grant.Addr))
	})
	return all
}

// heldBy returns the grants to a claim, sub-lease or reservation of that UID. The caller must not
// change them.
func (b *book) heldBy(uid protocol.UID) []Held { return b.held[holding{uid: uid}] }

// known returns the UIDs that have grants under a name, and those of the asks that
// wait under it.
func (b *book) known(name protocol.Grantee) []protocol.UID {
	uids := slices.Clone(b.names[name])
	for _, uid := range b.queue.byName[name] {
		if !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// granteesOfKind returns the grantees of a kind that grants name, without their UIDs, sorted.
func (b *book) granteesOfKind(kind protocol.GranteeKind) []protocol.Grantee {
	var names []protocol.Grantee
	for name := range b.names {
		if name.Kind == kind {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y protocol.Grantee) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return names
}
