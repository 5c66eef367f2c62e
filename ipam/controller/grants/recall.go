package grants

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	// answerTimeout is how long a holder has to answer a recall. After that it is passed over.
	answerTimeout = 2 * time.Second
	// backoff is how long a lease is not recalled again after a recall that brought nothing, and
	// a node is not asked again after a recall that it did not answer. Each further recall of a
	// lease that brings nothing doubles it, up to backoffMax.
	backoff    = 10 * time.Second
	backoffMax = 80 * time.Second
	// cleanupDelay is how long recalls that are over stay on a registration, so that one write
	// removes several.
	cleanupDelay = 5 * time.Second

	// namedMost is how many addresses one recall names: a registration has room for the recalls of
	// many leases.
	namedMost = 16
	// eachAsks is how many recalls an ask that finds nothing may have under way,
	// and recallsMost how many those of a search in one pool may have together.
	eachAsks    = 8
	recallsMost = 64
)

// recall is a recall of this book's that is under way.
type recall struct {
	protocol.Recall
	node protocol.NodeName
	pool *pool
	on   *lease
	view allocator.View // what is recalled
	// named are the addresses that are recalled by their names; none where all of view will do.
	named []netip.Addr
	tick  uint64 // when it was made, in the book's count
	// until is when the holder counts as silent; zero while the recall is not on
	// the registration.
	until time.Time
}

// holder is a node that has been asked to cede.
type holder struct {
	under []*recall
	// silent says that it did not answer the last recall. Until again it is passed over.
	silent bool
	again  time.Time
	// cleanup is when recalls that are over are to be taken off its registration; zero if there
	// are none.
	cleanup time.Time
}

// due returns when there is something to do about h; zero if never.
func (h *holder) due() (at time.Time) {
	if len(h.under) == 0 {
		return h.cleanup
	}
	for _, rec := range h.under {
		at = earlier(at, rec.until)
	}
	return at
}

// askHolder asks the holder of l to cede w's one address. If the holder has answered since the ask
// by came, and did not cede it, the address counts as taken. An address that is to be kept for a
// pod of another IPAM is asked for less often: there may be any number of them.
func (b *book) askHolder(r *round, by *waiter, w want, l *lease) Problem {
	p, h := w.pool, b.holders[l.Holder.Node]
	counts := backoff
	if w.keeps {
		counts = backoffMax
	}
	fresh := l.asked.refusedUntil(w.addr, by.arrived, r.now, counts)
	switch {
	case l.asked.under != nil:
		l.asked.under.join(w.addr)
		return Problem{} // w is tried again when that recall ends
	case !fresh.IsZero():
		p.askAgain = earlier(p.askAgain, fresh)
		return w.takenProblem(l, "is in use on %v", l.Holder)
	case l.asked.unanswering && r.now.Before(l.asked.again):
		return w.silentProblem(l, l.asked.again)
	case h != nil && h.silent && r.now.Before(h.again):
		return w.silentProblem(l, h.again)
	}
	b.recall(r, p, l, allocator.View{}).name(w.addr)
	return Problem{}
}

// join has rec name one more address, if it names addresses, has room, and is not on the
// registration yet.
func (rec *recall) join(a netip.Addr) {
	if rec.until.IsZero() && len(rec.named) > 0 && len(rec.named) < namedMost && !slices.Contains(rec.named, a) {
		rec.name(a)
	}
}

// name has rec recall only a and the addresses that it has named before.
func (rec *recall) name(a netip.Addr) {
	rec.named = append(rec.named, a)
	var b netipx.IPSetBuilder
	for _, a := range rec.named {
		b.Add(a)
	}
	set, err := b.IPSet()
	must(err)
	rec.view = allocator.NewView(set)
	rec.Ranges = strings.Split(rec.view.String(), ",")
}

// takenProblem returns the problem that somebody has w's one address, which is on l. format says
// who.
func (w want) takenProblem(l *lease, format string, args ...any) Problem {
	bad := problem(Taken, "%v of pool %s "+format, append([]any{w.addr, w.pool.name}, args...)...)
	bad.Addr, bad.Lease = w.addr, l.Name
	return bad
}

// silentProblem returns the problem that the holder of w's one address, on l, does not answer. It
// may be asked again at again.
func (w want) silentProblem(l *lease, again time.Time) Problem {
	w.pool.askAgain = earlier(w.pool.askAgain, again)
	bad := w.takenProblem(l, "lies in a block of %v, which does not answer", l.Holder)
	bad.Reason = Silent
	return bad
}

// recall has r ask the holder of l for what it can cede within v.
func (b *book) recall(r *round, p *pool, l *lease, v allocator.View) *recall {
	var block netipx.IPSetBuilder
	block.AddPrefix(l.Block)
	set, err := block.IPSet()
	must(err)
	b.recalls++
	rec := &recall{
		Recall: protocol.Recall{
			ID: protocol.RecallID(r.now, b.id, b.recalls), Lease: l.Name,
			Ranges: strings.Split(v.Intersect(allocator.NewView(set)).String(), ","),
		},
		node: l.Holder.Node, pool: p, on: l, view: v, tick: b.begin(),
	}
	l.asked.under, l.asked.last = rec, r.now
	h := b.holders[rec.node]
	if h == nil {
		h = &holder{}
		b.holders[rec.node] = h
	}
	h.under = append(h.under, rec)
	r.addRegistration(rec.node)
	return rec
}

// hear takes up what the change from old to l says of the recall that is under way for the lease.
func (b *book) hear(p *pool, l *lease, old protocol.Lease) {
	if l.UID == old.UID && slices.ContainsFunc(l.Ceded, func(a netip.Addr) bool { return !slices.Contains(old.Ceded, a) }) {
		b.noteCeded(p, l)
	}
	if rec := l.asked.under; rec != nil {
		switch {
		case l.UID != old.UID || l.Holder.Node != rec.node:
			b.cancel(l)
		case l.Published.Answered == rec.ID:
			b.endAnswered(rec)
		}
	}
	if rec := l.asked.overdue; rec != nil && l.UID == old.UID && l.Published.Answered == rec.ID {
		b.noteLateAnswer(rec)
	}
	// A holder that has something free again is worth another recall.
	if l.Published.Free > 0 && old.Published.Free == 0 && l.Published.Answered == old.Published.Answered && (!l.asked.again.IsZero() || len(l.asked.within) > 0) {
		l.asked.again, l.asked.inVain, l.asked.within = time.Time{}, 0, nil
		b.wake(p)
	}
}

// noteCeded notes that the holder of l has ceded some of it, so that it need not be recalled. A
// holder that cedes unasked because the pool is exhausted cedes all that is free, and whatever
// comes free later. A holder that was asked for a part cedes what is free of that part, and one
// that has found a stranger the stranger's address alone.
func (b *book) noteCeded(p *pool, l *lease) {
	b.noteResponsive(l)
	under := l.asked.under
	if rec := cmp.Or(under, l.asked.overdue); rec != nil && len(rec.named) > 0 || under != nil && !under.view.IsAll() {
		return // wait for its answer
	}
	if under == nil && p.state.Pressure != allocator.PressureExhausted {
		return // a stranger's
	}
	if again := b.now().Add(backoff); again.After(l.asked.again) {
		l.asked.again = again
	}
}

// noteResponsive notes that the holder of l does what it was asked for, perhaps late: it is
// neither unanswering nor silent.
func (b *book) noteResponsive(l *lease) {
	l.asked.unanswering = false
	if h := b.holders[l.Holder.Node]; h != nil {
		h.silent = false
	}
}

// endAnswered ends a recall that the holder has answered. What the holder ceded is in the lease
// already: it writes that first.
func (b *book) endAnswered(rec *recall) {
	now, l := b.now(), rec.on
	l.asked.noteAnswer(rec, now)
	after := func(inVain int) time.Time { return now.Add(min(backoff<<min(inVain, 8), backoffMax)) }
	switch view := rec.view.String(); {
	case len(rec.named) > 0: // the answer says nothing of other addresses
	case rec.view.IsAll():
		l.asked.again = after(l.asked.inVain)
		l.asked.inVain++
	default:
		if l.asked.within == nil {
			l.asked.within = map[string]partBackoff{}
		}
		maps.DeleteFunc(l.asked.within, func(_ string, part partBackoff) bool { return now.Sub(part.again) >= backoffMax })
		n := l.asked.within[view].inVain
		l.asked.within[view] = partBackoff{after(n), n + 1}
	}
	b.endRecall(rec)
	b.noteResponsive(l)
}

// noteLateAnswer notes an answer to a recall that was given up. An ask for an address by its name
// then gets the answer that the address is in use, not that its holder is silent.
func (b *book) noteLateAnswer(rec *recall) {
	rec.on.asked.overdue = nil
	rec.on.asked.noteAnswer(rec, b.now())
	if len(rec.named) > 0 {
		rec.on.asked.again = time.Time{}
	}
	b.noteResponsive(rec.on)
	b.wake(rec.pool)
}

// endUnanswered ends a recall that the holder did not get, or did not answer in time. The lease is
// not recalled again within backoff.
func (b *book) endUnanswered(rec *recall, backoff time.Duration) *holder {
	rec.on.asked.unanswering, rec.on.asked.again, rec.on.asked.overdue = true, b.now().Add(backoff), rec
	return b.endRecall(rec)
}

// cancel ends the recall of a lease that is not the holder's any more.
func (b *book) cancel(l *lease) {
	if l.asked.under != nil {
		b.endRecall(l.asked.under)
	}
	l.asked = asked{}
}

// endRecall ends a recall, and has the asks that wait for its pool tried again.
func (b *book) endRecall(rec *recall) *holder {
	rec.on.asked.under = nil
	h := b.holders[rec.node]
	h.under = slices.DeleteFunc(h.under, func(r *recall) bool { return r == rec })
	h.cleanup = b.now().Add(cleanupDelay)
	b.wake(rec.pool)
	return h
}

// expire ends recalls that have not been answered in time. It has asks tried again when a holder
// may be asked again.
func (b *book) expire(now time.Time) {
	for _, h := range b.holders {
		for _, rec := range slices.Clone(h.under) {
			if !rec.until.IsZero() && !now.Before(rec.until) {
				h := b.endUnanswered(rec, backoff)
				h.silent, h.again = true, now.Add(backoff)
			}
		}
	}
	for _, p := range b.pools {
		if !p.askAgain.IsZero() && !now.Before(p.askAgain) {
			p.askAgain = time.Time{}
			b.wake(p)
		}
	}
}

// dueCleanups returns the nodes whose registrations are to be rewritten without recalls that are
// over. It forgets nodes of which nothing need be remembered.
func (b *book) dueCleanups(now time.Time) []protocol.NodeName {
	var nodes []protocol.NodeName
	for node, h := range b.holders {
		switch {
		case len(h.under) > 0:
		case !h.cleanup.IsZero():
			if !now.Before(h.cleanup) {
				nodes = append(nodes, node)
			}
		case !h.silent || now.Sub(h.again) > backoffMax:
			delete(b.holders, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// amend returns the recalls that node's registration should have, where has are those that it
// has: the ones that are under way, and another controller's while they are young.
func (b *book) amend(node protocol.NodeName, has []protocol.Recall, now time.Time) []protocol.Recall {
	var next []protocol.Recall
	under := slices.Clone(b.holders[node].under)
	for _, rec := range has {
		i := slices.IndexFunc(under, func(r *recall) bool { return r.ID == rec.ID })
		if i >= 0 {
			under = slices.Delete(under, i, i+1)
		}
		if i >= 0 || b.foreign(rec.ID) && young(rec, now) {
			next = append(next, rec)
		}
	}
	for _, rec := range under {
		next = append(next, rec.Recall)
	}
	return next
}

// foreign reports whether another book made the recall of that ID.
func (b *book) foreign(id string) bool {
	parts := strings.Split(id, ".")
	return len(parts) != 3 || parts[1] != b.id
}

// young reports whether a recall may still wait for its answer, by its maker's clock.
func young(rec protocol.Recall, now time.Time) bool {
	made, ok := rec.Made()
	return ok && now.Sub(made) < backoff
}

// reach ends the new recalls to node of leases of another store than its registration names:
// nobody there answers for these.
func (b *book) reach(node protocol.NodeName, store protocol.StoreID) {
	for _, rec := range slices.Clone(b.holders[node].under) {
		if rec.until.IsZero() && (store == "" || rec.on.Store != store) {
			b.endUnanswered(rec, backoff)
		}
	}
}

// sent notes that node's registration has these recalls. All that are under way are among them,
// and perhaps some of this book's that have ended meanwhile.
func (b *book) sent(node protocol.NodeName, has []protocol.Recall) {
	h := b.holders[node]
	for _, rec := range h.under {
		if rec.until.IsZero() {
			rec.until = b.now().Add(answerTimeout)
		}
	}
	if !slices.ContainsFunc(has, func(rec protocol.Recall) bool { return !b.foreign(rec.ID) }) {
		h.cleanup = time.Time{}
	}
}

// unsent notes that node's registration could not be written: recalls that do not stand
// there are made again later, and what is over is taken off later.
func (b *book) unsent(node protocol.NodeName) {
	h := b.holders[node]
	for _, rec := range slices.Clone(h.under) {
		if rec.until.IsZero() {
			b.endUnanswered(rec, answerTimeout)
		}
	}
	if !h.cleanup.IsZero() {
		h.cleanup = b.now().Add(backoff)
	}
}
