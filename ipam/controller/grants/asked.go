package grants

import (
	"net/netip"
	"slices"
	"time"
)

// asked is what is known of the recalls of one lease.
type asked struct {
	under *recall // under way; nil if none
	// last is when the last one was made, and again when the lease may be asked
	// anew; inVain is how many have brought nothing since there was hope, and unanswering
	// says that the last one has not reached the holder, or not been answered.
	last, again time.Time
	inVain      int
	unanswering bool
	// within are again and inVain of recalls of a part alone, by their views: what they
	// have brought says nothing of the others.
	within map[string]partBackoff
	// answers are those that were answered of late: each who wants one address by its
	// name goes by that of its own. overdue is the last one that was not answered in time.
	answers []answer
	overdue *recall
}

// answer is a recall that was answered, and when that was.
type answer struct {
	*recall
	at time.Time
}

// noteAnswer notes that rec was answered.
func (a *asked) noteAnswer(rec *recall, now time.Time) {
	a.answers = slices.DeleteFunc(a.answers, func(x answer) bool { return now.Sub(x.at) >= backoffMax })
	a.answers = append(a.answers, answer{rec, now})
}

// refusedUntil returns until when addr counts as refused: the holder has answered a recall of it,
// made after tick, and has not ceded it. The time is zero if there is no such answer that counts.
func (a *asked) refusedUntil(addr netip.Addr, tick uint64, now time.Time, counts time.Duration) (until time.Time) {
	for _, x := range a.answers {
		if fresh := x.at.Add(counts); x.tick > tick && x.view.Contains(addr) && now.Before(fresh) {
			until = fresh // they are in order
		}
	}
	return until
}

type partBackoff struct {
	again  time.Time
	inVain int
}

// backoffUntil returns until when a lease is left alone by those who want an address within
// a view.
func (a *asked) backoffUntil(view string) time.Time {
	if part := a.within[view].again; part.After(a.again) {
		return part
	}
	return a.again
}
