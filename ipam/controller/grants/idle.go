package grants

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// most is how many leases are given back in one go, and how many read again, so
// that asks need not wait long.
const most = 64

// unwatchedFor is how long a lease that only calls have shown is believed in. A
// watch is seldom a second behind.
const unwatchedFor = 10 * time.Second

// giveBack deletes leases of the cluster's that nobody needs, if it is time for a
// look.
func (b *Broker) giveBack(ctx context.Context) {
	b.mu.Lock()
	if !b.sweep {
		b.mu.Unlock()
		return
	}
	idle := b.book.idle(b.cfg.Now(), b.cfg.IdleAfter, most)
	b.sweep = len(idle) == most
	b.mu.Unlock()
	Each(b.cfg.Calls, idle, func(m protocol.Meta) { b.release(ctx, m) })
}

// verifyUnwatched reads leases again that only calls have shown, for some time. No
// watch tells of their end: the answer of a call may have come after the news that the
// lease is gone, or the watch may have begun anew between its first moment and its
// last. Without this its block would be taken for leased for ever.
func (b *Broker) verifyUnwatched(ctx context.Context) {
	b.mu.Lock()
	names := b.book.unwatched(b.cfg.Now(), most)
	b.mu.Unlock()
	Each(b.cfg.Calls, names, func(name string) {
		if _, _, err := b.read(ctx, name); err != nil {
			b.log.DebugContext(ctx, "lease that no watch shows cannot be read", "lease", name, "error", err)
		}
	})
}

// unwatched returns the names of leases that only calls have shown, and none for some
// time: at most n.
func (b *Book) unwatched(now time.Time, n int) []string {
	var names []string
	for _, p := range b.pools {
		for _, l := range p.leases {
			if l.Revision != "" && !l.watched && now.Sub(l.shownAt) >= unwatchedFor {
				names = append(names, l.Name)
			}
		}
	}
	slices.Sort(names)
	return names[:min(len(names), n)]
}

// idle returns the leases that are to be given back, at most n, and closes their
// blocks.
func (b *Book) idle(now time.Time, after time.Duration, n int) []protocol.Meta {
	var out []protocol.Meta
	for _, p := range b.pools {
		for _, l := range p.leases {
			if p.dispensable(l, now, after) {
				out = append(out, l.Meta)
			}
		}
	}
	slices.SortFunc(out, func(x, y protocol.Meta) int { return strings.Compare(x.Name, y.Name) })
	out = out[:min(len(out), n)]
	for _, m := range out {
		p, l := b.lease(m.Name)
		l.leaving = true
		p.settle(l)
	}
	return out
}

// dispensable reports whether l is to be given back, and keeps count of how long
// it has been idle.
func (p *pool) dispensable(l *lease, now time.Time, after time.Duration) bool {
	if !l.Holder.Cluster || l.Protocol > protocol.Version || l.Revision == "" || l.Deleting || l.leaving {
		return false
	}
	if len(l.Grants) > 0 || len(l.reserved) > 0 {
		l.idleSince = time.Time{}
		return false
	}
	if l.idleSince.IsZero() {
		l.idleSince = now
	}
	switch {
	case p.state.Restored:
		// It was empty when the backup was made: the cluster may have given it back since,
		// and a node that leased it then waits for its name to put that back, until the pool
		// opens. What was granted out of it since is lost in any case: not even to a request
		// that is still there, without its answer, is the same granted again for certain.
		// Its node says so by [protocol.ConfirmRequest], and gives nothing out of it.
		return true
	case p.state.UID != "" && !p.ofPool(l), p.state.Deleting:
		return true // of no use, and it stands in somebody's way
	case p.state.Scarce:
		return now.After(l.idleSince) // at the second look: it is not between two grants
	default:
		return now.Sub(l.idleSince) >= after
	}
}

// release deletes a lease without grants. A grant that another controller adds
// meanwhile changes the resourceVersion, and so the delete misses it.
func (b *Broker) release(ctx context.Context, m protocol.Meta) {
	out, err := b.cluster.DeleteLease(ctx, m)
	b.metrics.call("delete", out)
	gone := out == protocol.Done || out == protocol.NotFound
	if gone {
		b.Forget(m.Name, m.UID)
		return
	}
	b.log.DebugContext(ctx, "lease is not given back", "lease", m.Name, "outcome", out.String(), "error", err)
	if _, there, err := b.read(ctx, m.Name); err == nil && !there {
		return
	}
	// It serves again. Should the delete still come, it meets either this
	// resourceVersion, and no grant, or another.
	b.mu.Lock()
	defer b.mu.Unlock()
	b.book.keep(m)
}

// keep takes back that a lease is leaving.
func (b *Book) keep(m protocol.Meta) {
	if p, l := b.lease(m.Name); l != nil && l.UID == m.UID {
		l.leaving = false
		if p.settle(l) {
			b.wake(p)
		}
	}
}
