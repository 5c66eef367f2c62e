package grants

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// round is one round of work: what was asked, and the calls that follow from it.
type round struct {
	now   time.Time
	asks  []*waiter // those that have spots
	spots []spot
	jobs  []*job
	// writes has one element for each lease that is to be created or changed, and
	// order has them in the order of the plan.
	writes  map[*lease]*write
	order   []*write
	entered []*lease // leases that this plan wants to create
	// exhausted are the searches that have found nothing in this round. searches has the holders
	// that may be asked for each.
	exhausted map[string]bool
	searches  map[string]*search
	// wants counts the addresses that the requests of each node want in this round. views counts,
	// for nodes that want many, the views in which they have found none.
	wants, views map[protocol.NodeName]int
	// registrations are the nodes whose registration's recalls are to be changed.
	registrations []protocol.NodeName
	// news are the names of grantees to be notified.
	news []protocol.Grantee
}

// write is what is to become of one lease.
type write struct {
	pool  *pool
	lease *lease
	edits []edit
	// generation is that of the pool's spec by which the addresses were chosen.
	generation int64

	// start is the lease as it was when the calls began, and created what this round
	// created, if it did.
	start   protocol.Lease
	created protocol.Meta
	done    []bool // of each edit
	err     error
	// refused is why nothing of the lease's pool may be granted.
	refused Problem
}

// job is a change to grants that somebody waits for.
type job struct {
	verb   Verb
	grants []Held
	parts  []part
	result chan error // takes one
}

// part is one edit of a job.
type part struct {
	write *write
	index int
}

// plan decides which addresses a round grants, and on which leases. They are reserved until finish.
func (b *book) plan(asks []*waiter, jobs []*job, now time.Time) *round {
	r := &round{
		now: now, jobs: jobs, writes: map[*lease]*write{},
		exhausted: map[string]bool{}, searches: map[string]*search{}, registrations: b.dueCleanups(now),
		wants: map[protocol.NodeName]int{}, views: map[protocol.NodeName]int{},
	}
	for _, w := range asks {
		r.wants[w.ask.Pod.Node] += len(w.ask.From)
	}
	for _, w := range asks {
		b.place(r, w)
	}
	b.noteTurns(r)
	for _, j := range jobs {
		for _, h := range j.grants {
			p := b.pools[h.Pool]
			if p == nil || p.leases[h.Block] == nil {
				continue // the lease is gone, and the grant with it
			}
			wr := r.write(p, p.leases[h.Block])
			j.parts = append(j.parts, part{wr, len(wr.edits)})
			wr.edits = append(wr.edits, edit{verb: j.verb, grant: h.Grant})
		}
	}
	for _, l := range r.entered {
		if p := b.pools[l.Pool]; r.writes[l] == nil && p.leases[l.Block] == l {
			p.discard(l)
		}
	}
	return r
}

// place finds all addresses that w lacks, or none.
func (b *book) place(r *round, w *waiter) {
	wants, bad := b.expand(w.ask)
	if bad.Reason != NoProblem {
		b.starve(w, nil)
		b.refuse(r, w, bad)
		return
	}
	given, all := match(wants, b.held[holdingOf(w.ask.To)])
	if all {
		b.settle(r, w)
		return
	}
	t := b.attempt(r, w, wants, given)
	if !t.found {
		for _, s := range t.spots {
			s.unreserve()
			clear(r.exhausted)
		}
		b.starve(w, t.exhausted)
		if t.bad.Reason == NoProblem {
			b.wait(w)
			return
		}
		b.refuse(r, w, t.bad)
		return
	}
	switch w.problem.Reason {
	case Exhausted, Taken, Silent: // an address was found
		w.problem = Problem{}
	case NoProblem, PoolMissing, PoolNotReady, Unassignable, Failed:
	}
	for _, s := range t.spots {
		wr := r.write(s.pool, s.lease)
		wr.edits = append(wr.edits, edit{verb: add, grant: protocol.Grant{Addr: s.addr, To: w.ask.To}, pod: w.ask.Pod})
	}
	r.spots = append(r.spots, t.spots...)
	r.asks = append(r.asks, w)
}

// attempt is the result of a search for the addresses that an ask lacks.
type attempt struct {
	spots     []spot // reserved
	found     bool   // all
	bad       Problem
	exhausted []want // for which the pools are exhausted
}

// attempt searches for all addresses that w lacks. It goes on after one that cannot be had, so that
// the holders of all of them are asked at once.
func (b *book) attempt(r *round, w *waiter, wants []want, given []Held) attempt {
	t := attempt{found: true}
	for i, want := range wants {
		if given[i].Block.IsValid() {
			continue
		}
		s, bad := b.find(r, w, want)
		if s.lease != nil {
			s.reserve()
			t.spots = append(t.spots, s)
			if s.lease.Revision == "" {
				r.entered = append(r.entered, s.lease)
			}
			continue
		}
		t.found = false
		if t.bad.Reason == NoProblem || t.bad.Reason == Exhausted && bad.Reason != NoProblem {
			t.bad = bad // a problem that more addresses would not solve comes first
		}
		if bad.Reason == Exhausted {
			t.exhausted = append(t.exhausted, want)
		}
	}
	return t
}

// refuse has w wait for its pools, and tells its grantee if the reason is new.
func (b *book) refuse(r *round, w *waiter, bad Problem) {
	b.park(w)
	if w.blame(bad, r.now) {
		r.notify(w)
	}
}

// wait lets w wait for holders that were asked to cede what it wants. A problem that came of
// their earlier answers stays.
func (b *book) wait(w *waiter) {
	b.park(w)
	switch w.problem.Reason {
	case Exhausted, Taken, Silent:
	case NoProblem, PoolMissing, PoolNotReady, Unassignable, Failed:
		w.problem = Problem{}
	}
}

// settle ends the wait of w: all its addresses are granted.
func (b *book) settle(r *round, w *waiter) {
	b.end(w)
	b.queue.settled[w.ask.key()] = w.arrival()
	r.notify(w)
}

// notify has the grantee of w notified at the round's end.
func (r *round) notify(w *waiter) { r.news = append(r.news, nameOf(w.ask.To)) }

// addRegistration has the recalls of a node's registration changed.
func (r *round) addRegistration(node protocol.NodeName) {
	if !slices.Contains(r.registrations, node) {
		r.registrations = append(r.registrations, node)
	}
}

func (r *round) write(p *pool, l *lease) *write {
	wr := r.writes[l]
	if wr == nil {
		wr = &write{pool: p, lease: l, generation: p.state.Generation}
		r.writes[l] = wr
		r.order = append(r.order, wr)
	}
	return wr
}

// begin fixes what the writes start from. Leases may have been observed since the
// plan was made.
func (wr *write) begin() {
	wr.start = wr.lease.Lease.Clone()
	for i := range wr.edits {
		wr.edits[i].on = wr.start.UID
	}
}

// unconfirmed reports whether wr grants on a lease that has not been confirmed.
func (wr *write) unconfirmed() bool {
	return !wr.lease.confirmed && wr.adds()
}

// onlyKeeps reports whether wr grants nothing but addresses to keep for pods of other IPAMs.
func (wr *write) onlyKeeps() bool {
	for _, e := range wr.edits {
		if e.verb == add && e.grant.To.Kind != protocol.GranteePod {
			return false
		}
	}
	return true
}

func (wr *write) adds() bool {
	for _, e := range wr.edits {
		if e.verb == add {
			return true
		}
	}
	return false
}

// grantees returns whom wr grants something, without their UIDs.
func (wr *write) grantees() []protocol.Grantee {
	var names []protocol.Grantee
	for _, e := range wr.edits {
		if e.verb == add {
			names = append(names, nameOf(e.grant.To))
		}
	}
	return names
}

// refuse drops the grants of wr. Its other edits stay.
func (wr *write) refuse(why string) {
	wr.refused = problem(PoolNotReady, "%s", why)
	for i := range wr.edits {
		if wr.edits[i].verb == add {
			wr.edits[i].on = "" // no lease has this UID
		}
	}
}

// finish ends the round: reservations go, asks are answered, wait, or are tried
// again.
func (b *book) finish(r *round, now time.Time) {
	for _, s := range r.spots {
		if s.unreserve() {
			b.wake(s.pool) // somebody else may have been refused for it
		}
	}
	for _, l := range r.entered {
		if p := b.pools[l.Pool]; p.leases[l.Block] == l && l.Revision == "" {
			p.discard(l) // its create failed
		}
	}
	obstacles := r.obstacles()
	for _, w := range r.asks {
		if w.gone {
			continue
		}
		if _, _, ok := b.allGranted(w.ask); ok {
			b.settle(r, w)
			continue
		}
		switch wr := obstacles[w.ask.key()]; {
		case wr == nil: // somebody else was faster
			w.failures = 0
			b.makeReady(w)
		case wr.err != nil:
			reason := Failed
			if errors.Is(wr.err, errRestored) {
				reason = PoolNotReady
			}
			if w.blame(problem(reason, "%v", wr.err), now) {
				r.notify(w)
			}
			b.delay(w, now)
		default:
			b.refuse(r, w, wr.refused)
		}
	}
	for _, j := range r.jobs {
		j.result <- j.outcome()
	}
}

// obstacles returns, by the ask's key, the write that failed or was refused.
func (r *round) obstacles() map[protocol.UID]*write {
	found := map[protocol.UID]*write{}
	for _, wr := range r.order {
		if wr.err == nil && wr.refused.Reason == NoProblem {
			continue
		}
		for _, e := range wr.edits {
			if e.verb == add {
				found[Ask{To: e.grant.To, From: []Source{{Pool: wr.pool.name, Addr: e.grant.Addr}}}.key()] = wr
			}
		}
	}
	return found
}

// outcome returns nil if every part of j holds.
func (j *job) outcome() error {
	for _, p := range j.parts {
		switch {
		case p.write.err != nil:
			return fmt.Errorf("change grants of lease %s: %w", p.write.start.Name, p.write.err)
		case !p.write.done[p.index]:
			return fmt.Errorf("change grants of lease %s: %w", p.write.start.Name, errNotSo)
		}
	}
	return nil
}
