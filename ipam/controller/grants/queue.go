package grants

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// queue holds the asks that have not been granted. Those that are ready to be
// tried stand in order of arrival; the others wait for a pool to change.
type queue struct {
	asks  map[protocol.UID]*waiter
	ready readyHeap
	// delayed are asks whose last try failed, until their time comes.
	delayed []*waiter
	// byName has the keys of the asks of each grantee's name. There may be several: a claim that
	// is made again may ask before it is known that the earlier one is gone.
	byName map[protocol.Grantee][]protocol.UID
	// settled are the asks that were granted and have not been answered.
	settled map[protocol.UID]arrival
	last    uint64 // sequence number of the youngest ask
	// lastRoused is the sequence number of the youngest ask when rouse was last called, or 0 once
	// all asks that were ready then have been tried.
	lastRoused uint64
}

// arrival says that an ask came with that stamp, and when, in the book's count.
type arrival struct {
	stamp protocol.Revision
	at    uint64
}

// never is later than the begin of any call.
const never = math.MaxUint64

// waiter is an ask that has not been granted.
type waiter struct {
	ask     Ask
	seq     uint64
	problem Problem
	ready   bool // stands in queue.ready
	// owed says that its grantee was answered that the ask is being worked on. The grantee must
	// be notified of the result.
	owed    bool
	gone    bool      // has been withdrawn
	came    time.Time // when it was first asked
	arrived uint64    // in the book's count: before any call that began later

	starves []want // for which it has found no address although every holder was asked

	failures int       // tries in a row that failed by a call
	retry    time.Time // when it is tried again, while it stands in queue.delayed
}

// ask says what became of a so far, and puts it into the queue if it is new. It replaces an earlier
// ask of the same grantee. Call Withdraw when the answer has been used. read is when the caller
// began to read a's leases live, or never.
func (b *book) ask(a Ask, read uint64) Answer {
	uid := a.key()
	w := b.queue.asks[uid]
	if granted, on, ok := b.allGranted(a); ok {
		came := b.queue.settled[uid]
		if w != nil {
			came = w.arrival()
		}
		answer := Answer{Granted: granted}
		switch {
		case seenSince(on, read):
			answer.Stamp = a.Stamp
		case came.stamp != "" && seenSince(on, came.at):
			answer.Stamp = came.stamp
		case read == never && slices.ContainsFunc(on, func(l *lease) bool { return slices.Contains(l.writing, nameOf(a.To)) }):
			return Answer{} // a watch was faster than the answer of the write, which notifies the grantee
		}
		return answer
	}
	switch {
	case w == nil:
		a = a.prepare()
		b.queue.last++
		w = &waiter{ask: a, seq: b.queue.last, came: b.now(), arrived: b.begin()}
		b.queue.asks[uid] = w
		name := nameOf(a.To)
		b.queue.byName[name] = append(b.queue.byName[name], uid)
		b.makeReady(w)
	case !w.ask.equal(a):
		b.unpark(w)
		if !slices.Equal(w.ask.Requested, a.Requested) { // who asks for another address has not waited for it
			b.queue.last++
			w.seq = b.queue.last
			heap.Init(&b.queue.ready) // it may stand there
		}
		w.ask, w.arrived = a.prepare(), b.begin()
		b.makeReady(w)
	}
	if b.triedNext(w) {
		// The last problem may be solved by now. A grantee that gave back a part because of it
		// would lack that part when the rest is granted.
		w.owed = true
		return Answer{}
	}
	return Answer{Problem: w.problem}
}

// seenSince reports whether each of these leases was seen live by a call that began
// after at.
func seenSince(leases []*lease, at uint64) bool {
	return !slices.ContainsFunc(leases, func(l *lease) bool { return l.liveAt <= at })
}

// triedNext reports whether w is tried in the next round.
func (b *book) triedNext(w *waiter) bool {
	return w.ready || slices.ContainsFunc(w.ask.From, func(src Source) bool {
		p := b.pools[src.Pool]
		if p == nil || !p.woken {
			return false
		}
		_, waits := p.waiting[w]
		return waits
	})
}

func (w *waiter) arrival() arrival { return arrival{w.ask.Stamp, w.arrived} }

// withdraw forgets the ask of a grantee, if there is one. What has been granted
// stays.
func (b *book) withdraw(uid protocol.UID) {
	delete(b.queue.settled, uid)
	w := b.queue.asks[uid]
	if w == nil {
		return
	}
	b.unpark(w)
	b.end(w)
}

// end takes w out of the queue. w must not be parked.
func (b *book) end(w *waiter) {
	w.gone = true // the heap drops it when it comes up
	b.starve(w, nil)
	key, name := w.ask.key(), nameOf(w.ask.To)
	delete(b.queue.asks, key)
	b.queue.byName[name] = slices.DeleteFunc(b.queue.byName[name], func(u protocol.UID) bool { return u == key })
	if len(b.queue.byName[name]) == 0 {
		delete(b.queue.byName, name)
	}
}

// allGranted returns the addresses that a asks for, and the leases on which they are granted. ok
// is false unless all of them are granted.
func (b *book) allGranted(a Ask) (out []Granted, on []*lease, ok bool) {
	held := b.held[holdingOf(a.To)]
	if len(held) == 0 {
		return nil, nil, false
	}
	wants, problem := b.expand(a)
	if problem.Reason != NoProblem {
		return nil, nil, false
	}
	given, all := match(wants, held)
	if !all {
		return nil, nil, false
	}
	out, on = make([]Granted, len(wants)), make([]*lease, len(wants))
	for i, w := range wants {
		addr := given[i].Grant.Addr
		in, _ := w.pool.state.Shape.Locate(addr)
		out[i] = Granted{Addr: addr, Range: in, Source: w.source}
		on[i] = b.pools[given[i].Pool].leases[given[i].Block]
	}
	return out, on, true
}

// makeReady has w tried in the next round.
func (b *book) makeReady(w *waiter) {
	if !w.ready {
		w.ready = true
		heap.Push(&b.queue.ready, w)
	}
}

// park has w wait until one of its pools changes.
func (b *book) park(w *waiter) {
	for _, src := range w.ask.From {
		b.pool(src.Pool).waiting[w] = struct{}{}
	}
}

func (b *book) unpark(w *waiter) {
	for _, src := range w.ask.From {
		if p := b.pools[src.Pool]; p != nil {
			delete(p.waiting, w)
			b.forgetUnseen(p)
		}
	}
}

// delay has w tried again after a pause that grows with its failures.
func (b *book) delay(w *waiter, now time.Time) {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	w.retry = now.Add(min(first<<min(w.failures, 10), most))
	w.failures++
	b.queue.delayed = append(b.queue.delayed, w)
}

// due returns when there is something to do if nothing happens before: a delayed ask is tried, a
// recall expires, or a holder may be asked again.
func (b *book) due() (at time.Time, ok bool) {
	for _, w := range b.queue.delayed {
		at = earlier(at, w.retry)
	}
	for _, h := range b.holders {
		at = earlier(at, h.due())
	}
	for _, p := range b.pools {
		at = earlier(at, p.askAgain)
	}
	return at, !at.IsZero()
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// take removes up to n asks that are ready from the queue's front. Asks that wait for a changed
// pool become ready only when all that were ready the last time have been tried. Otherwise many old
// asks could be tried again and again, and no younger one ever.
func (b *book) take(n int, now time.Time) []*waiter {
	b.queue.delayed = slices.DeleteFunc(b.queue.delayed, func(w *waiter) bool {
		if now.Before(w.retry) {
			return false
		}
		b.makeReady(w)
		return true
	})
	if q := &b.queue; q.ready.Len() == 0 || q.ready[0].seq > q.lastRoused {
		b.rouse()
		q.lastRoused = q.last
	}
	var front []*waiter
	for len(front) < n && b.queue.ready.Len() > 0 {
		w := heap.Pop(&b.queue.ready).(*waiter)
		w.ready = false
		if !w.gone {
			front = append(front, w)
		}
	}
	if b.queue.ready.Len() == 0 {
		b.queue.lastRoused = 0
	}
	return front
}

// rouse makes the asks ready that wait for a pool which has changed.
func (b *book) rouse() {
	for _, p := range b.woken {
		p.woken = false
		for w := range p.waiting {
			b.unpark(w)
			b.makeReady(w)
		}
		b.forgetUnseen(p)
	}
	b.woken = b.woken[:0]
}

// pending reports whether a round would find an ask to work on.
func (b *book) pending() bool {
	if b.queue.ready.Len() > 0 {
		return true
	}
	for _, p := range b.woken {
		if len(p.waiting) > 0 {
			return true
		}
	}
	return false
}

// blame sets why w waits, and reports whether its grantee must be notified. Since stays while the
// reason stays.
func (w *waiter) blame(p Problem, now time.Time) (news bool) {
	news = w.owed || p.Reason != w.problem.Reason || p.Message != w.problem.Message
	w.owed = false
	p.Since = now
	if p.Reason == w.problem.Reason {
		p.Since = w.problem.Since
	}
	w.problem = p
	return news
}

// readyHeap orders asks by arrival.
type readyHeap []*waiter

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h readyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *readyHeap) Push(w any)        { *h = append(*h, w.(*waiter)) }
func (h *readyHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return w
}
