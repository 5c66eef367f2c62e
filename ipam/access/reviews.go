package access

import (
	"context"
	"sync"
	"time"
)

// How long an answer of the authorizer is good for.
const (
	// Fresh is how old an answer "allowed" is when using it has the authorizer asked
	// again, in the background.
	Fresh = time.Minute
	// Stale is how old it is when whoever uses it waits for the authorizer: so long at
	// most goes on what was allowed and is not any more.
	Stale = 2 * Fresh
	// Hold is how old it is when it is good for nothing any more. Between Stale and Hold
	// it is good while the authorizer cannot be asked.
	Hold = 5 * time.Minute
	// HoldDenied is the same of an answer "not allowed", of which nobody hears that it
	// has been mended.
	HoldDenied = 5 * time.Second
)

const (
	maxReviews = 4096 // how many answers are kept at most
	maxRenewal = 256  // how many wait to be asked for again
	askTimeout = 5 * time.Second
	// staleTimeout is the same where a stale answer can be used instead.
	staleTimeout = time.Second
)

// Reviews keeps the authorizer's answers for a time. It is safe for concurrent use; make
// one with [NewReviews].
type Reviews struct {
	ask   func(ctx context.Context, namespace, pool string) (bool, error)
	now   func() time.Time
	renew chan question

	mu      sync.Mutex
	answers map[question]answer        // guarded by mu
	asking  map[question]chan struct{} // guarded by mu; closes when the answer is there, or there is none
}

// question is whether a namespace may use a pool.
type question struct{ namespace, pool string }

type answer struct {
	allowed bool
	at      time.Time // when it was asked for
	renewed bool      // it is being asked for again
	until   time.Time // until when nobody waits for the authorizer, which could not be asked
}

// NewReviews returns Reviews that ask the authorizer by ask. The clock now should not
// jump. While [Reviews.Run] does not run, answers are not renewed ahead of time.
func NewReviews(now func() time.Time, ask func(ctx context.Context, namespace, pool string) (bool, error)) *Reviews {
	return &Reviews{
		ask: ask, now: now, renew: make(chan question, maxRenewal), answers: map[question]answer{}, asking: map[question]chan struct{}{},
	}
}

// Run renews answers that are in use until ctx ends.
func (r *Reviews) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.renew:
			call, cancel := context.WithTimeout(ctx, askTimeout)
			if _, err := r.put(call, q); err != nil {
				r.again(q) // it is asked for again when it is used next
			}
			cancel()
		}
	}
}

// MayUse implements the method of [Facts]. It asks the authorizer only if no answer is good any
// more. Callers that ask the same at once share a call.
func (r *Reviews) MayUse(ctx context.Context, namespace, pool string) (bool, error) {
	q := question{namespace, pool}
	for {
		a, known, wait := r.get(q)
		switch {
		case known:
			return a.allowed, nil
		case wait == nil: // it is this caller's to ask
			return r.settle(ctx, q, a)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// settle asks the authorizer for all who wait for q; a is the answer so far.
func (r *Reviews) settle(ctx context.Context, q question, a answer) (allowed bool, err error) {
	defer r.done(q) // whatever becomes of the call: others wait
	timeout := askTimeout
	if a.allowed {
		timeout = staleTimeout
	}
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	allowed, err = r.put(call, q)
	if err != nil && a.allowed && r.now().Sub(a.at) < Hold {
		allowed, err = true, nil
		r.hold(q)
	}
	return allowed, err
}

// get returns an answer that is good; else what to wait for, or nil: then the caller
// asks, and calls done. An answer that is stale it returns as well, for the case that
// nobody can be asked.
func (r *Reviews) get(q question) (a answer, known bool, wait <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, known = r.answers[q]
	age := r.now().Sub(a.at)
	held := a.allowed && age < Hold && r.now().Before(a.until)
	if known && (a.allowed && age < Stale || held || !a.allowed && age < HoldDenied) {
		if a.allowed && age >= Fresh && !a.renewed {
			select {
			case r.renew <- q:
				a.renewed = true
				r.answers[q] = a
			default: // the next one who uses it tries again
			}
		}
		return a, true, nil
	}
	if under, ok := r.asking[q]; ok {
		return a, false, under
	}
	r.asking[q] = make(chan struct{})
	return a, false, nil
}

func (r *Reviews) done(q question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.asking[q])
	delete(r.asking, q)
}

// again lets an answer that could not be renewed be asked for again.
func (r *Reviews) again(q question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.answers[q]; ok {
		a.renewed = false
		r.answers[q] = a
	}
}

// retryStale is how long nobody waits again for an authorizer that could not be asked.
const retryStale = 5 * time.Second

// hold keeps a stale answer in use for a moment.
func (r *Reviews) hold(q question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.answers[q]; ok {
		a.until = r.now().Add(retryStale)
		r.answers[q] = a
	}
}

// put asks the authorizer, and keeps its answer. It is as old as the question: what is
// changed while it is asked may not be in it.
func (r *Reviews) put(ctx context.Context, q question) (bool, error) {
	at := r.now()
	allowed, err := r.ask(ctx, q.namespace, q.pool)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.answers[q]; !ok && len(r.answers) >= maxReviews {
		r.evictLocked()
	}
	r.answers[q] = answer{allowed: allowed, at: at}
	return allowed, nil
}

// evictLocked forgets the oldest answer.
func (r *Reviews) evictLocked() {
	var oldest question
	first := true
	for q, a := range r.answers {
		if first || a.at.Before(r.answers[oldest].at) {
			oldest, first = q, false
		}
	}
	delete(r.answers, oldest)
}
