package grants

import (
	"net/netip"
	"slices"
	"time"
)

// asked is what is known of the recalls of one lease.
type asked struct {
	under *recall // under way; nil if none
	// last is when the last recall was made, and again when the lease may be recalled next.
	// inVain counts the recalls that brought nothing since the holder last had something free.
	// unanswering says that the last recall did not reach the holder or was not answered.
	last, again time.Time
	inVain      int
	unanswering bool
	// within has again and inVain for recalls of a part of the block, by view: their outcome
	// says nothing of the rest of the block.
	within map[string]partBackoff
	// answers are the recalls that were answered of late. An ask for one address by its name
	// goes by the answer for that address. overdue is the last recall that was not answered in
	// time.
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

// refusedUntil returns until when addr counts as refused. It is refused if the holder has answered
// a recall of it that was made after tick, and has not ceded it. An answer counts for the duration
// counts. The time is zero if addr is not refused.
func (a *asked) refusedUntil(addr netip.Addr, tick uint64, now time.Time, counts time.Duration) (until time.Time) {
	for _, x := range a.answers {
		if fresh := x.at.Add(counts); x.tick > tick && x.view.Contains(addr) && now.Before(fresh) {
			until = fresh // they are in order
		}
	}
	return until
}

// partBackoff is the backoff for recalls of a part of a block.
type partBackoff struct {
	again  time.Time
	inVain int
}

// backoffUntil returns until when a lease is not recalled for an address within a view.
func (a *asked) backoffUntil(view string) time.Time {
	if part := a.within[view].again; part.After(a.again) {
		return part
	}
	return a.again
}
