package grants

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// most is how many leases are given back, and how many read again, between two rounds: asks must
// not wait long.
const most = 64

// unwatchedFor is how long a lease that only calls have shown is not read again. A watch is seldom
// a second behind.
const unwatchedFor = 10 * time.Second

// giveBack deletes leases of the cluster that nobody needs, if a sweep is due.
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

// verifyUnwatched reads leases again that only calls have shown, and not for some time. No watch
// may tell that such a lease is gone: the call's answer may have come after the watch told it, or
// the watch may have been restarted after the lease was made and before it was deleted. Without
// this the block would count as leased for ever.
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

// unwatched returns the names of at most n leases that only calls have shown, the last of them
// unwatchedFor ago or longer.
func (b *book) unwatched(now time.Time, n int) []string {
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

// idle returns at most n leases that are to be given back, and closes their blocks.
func (b *book) idle(now time.Time, after time.Duration, n int) []protocol.Meta {
	var out []protocol.Meta
	for _, p := range b.pools {
		p.noteFreed(b.age(now))
		for _, l := range p.leases {
			if p.dispensable(l, now, after) && !p.resting(l, b.age(now)) {
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

// dispensable reports whether l is to be given back. It notes since when l is idle.
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
		// It was empty when the backup was made. The cluster may have given it back since, and a
		// node may have leased the block then: that node waits for the name to put its lease
		// back, until the pool opens. What was granted on this lease since is lost in any case.
		// Even a request that is still there, without its answer, may be granted other addresses
		// now. Its node learns that by [protocol.ConfirmRequest], and gives nothing out of it.
		return true
	case p.state.UID != "" && !p.ofPool(l), p.state.Deleting:
		return true // nothing can be granted on it, and it takes its block
	case p.state.scarce():
		return now.After(l.idleSince) // from the second sweep on: not just between two grants
	default:
		return now.Sub(l.idleSince) >= after
	}
}

// release deletes a lease without grants. If another controller adds a grant meanwhile, the
// resourceVersion changes and the delete fails.
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
	// The lease is used again. If the delete still lands, it meets either this resourceVersion,
	// and so no grant, or another one, and fails.
	b.mu.Lock()
	defer b.mu.Unlock()
	b.book.keep(m)
}

// keep notes that a lease is not given back after all.
func (b *book) keep(m protocol.Meta) {
	if p, l := b.lease(m.Name); l != nil && l.UID == m.UID {
		l.leaving = false
		if p.settle(l) {
			b.wake(p)
		}
	}
}
