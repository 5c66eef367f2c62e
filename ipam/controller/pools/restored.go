package pools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// usualFence is F where no registration tells it.
const usualFence = 15 * time.Minute

// restoration is what is known of an API server whose data went back to an earlier
// state, as after a restore of etcd: blocks that nodes hold may have no lease any
// more. Every pool is closed then, and opened again when the nodes have put back
// what they hold.
//
// It rests on the pools' openings, each known by a greater word than all before it, but
// for a pool's first, which is known by when the pool was made unless registrations void that.
// A registration names the last opening that its agent had heard of when it saw the API
// server go back: pools opened by that word or an earlier one are to be closed, and
// those opened since are not. So what the registrations still say when a pool has been
// opened again does not close it once more, whoever leads.
type restoration struct {
	// voided is the greatest word that a registration says, and witness the node that says it;
	// both are empty where only a controller has seen it.
	voided, witness string
	// missing are the nodes, of those that are registered and not silent for F, which do
	// not say that they are back.
	missing []absent
	// fence is the longest F of all nodes that are not silent; 0 is never.
	fence time.Duration
}

// absent is a node that does not say that it is back.
type absent struct {
	node  string
	never bool // it has no F
	// compared is how long ago the heartbeat before its last was seen, if its registration says
	// nothing of a restored API server; 0 where it does, or was not seen to beat twice.
	compared time.Duration
}

// waitedFor returns the nodes that a pool waits for which has been closed for so long,
// and whether one of them has no F.
//
// A node that has beaten twice since then, and still says nothing, is not waited for: it
// sent the second heartbeat after it had looked at the answer to the first, and that
// showed it nothing new. So it is with a node that has joined since, or whose pools have
// all been opened again before this one. The registration of one that does not reach the API
// server may say as little, but does not beat.
func (r restoration) waitedFor(closed time.Duration) (nodes []string, never bool) {
	for _, m := range r.missing {
		if m.compared > 0 && m.compared < closed {
			continue
		}
		nodes = append(nodes, m.node)
		never = never || m.never
	}
	return nodes, never
}

// clockSkew is by how much the clocks of two controllers may differ. A registration's word that
// is further ahead than that, and than the words of all pools, is no opening's.
const clockSkew = 24 * time.Hour

// concerns reports whether a pool that was last opened by this word was opened
// before the API server went back, which voided every opening up to the word
// voided.
func concerns(voided, opening string) bool { return voided != "" && opening <= voided }

// past is why a pool is closed that a restoration concerns.
const past = "the API server's data went back in time: the pool is closed until the nodes have put back what they hold"

// wait returns why a pool that has been closed for so long must stay closed, and
// when to look again; no reason, if it may be opened.
//
// An agent that lives beats every F/4, so after F/2 each has been heard of, also
// one whose registration was lost with the rest. After F whoever has said nothing gives out
// nothing new.
func (r restoration) wait(closed time.Duration) (why string, after time.Duration) {
	fence := r.fence
	if fence == 0 {
		fence = usualFence
	}
	past := past
	if r.witness != "" {
		past += fmt.Sprintf(" (node %s says so)", r.witness)
	}
	nodes, never := r.waitedFor(closed)
	switch {
	case len(nodes) > 0 && (closed < fence || never && r.fence == 0):
		if closed < fence {
			after = fence - closed
		} else {
			after = lookAgain
		}
		return fmt.Sprintf("%s; it waits for %s", past, strings.Join(few(nodes, "nodes"), ", ")), min(after, lookAgain)
	case closed < fence/2:
		return past + "; it waits for nodes whose registrations may be missing", min(fence/2-closed, lookAgain)
	}
	return "", 0
}

// A spell is for how long something has been seen to be so, and when it was seen last.
type spell struct {
	lasted time.Duration
	last   time.Time
}

// atOnce is how much of the time since the last look a look counts at most: a pool that
// waits is looked at every lookAgain. A controller that slept, perhaps with all nodes,
// must not take its sleep for their silence.
const atOnce = 6 * lookAgain

// closedFor returns for how long this controller has seen that a pool, which a
// restoration concerns, is closed. Another leader begins anew: it does not know
// what was before.
func (r *Reconciler) closedFor(pool *v1alpha1.IPPool, concerned bool, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !concerned || pool.Status.Leasing == v1alpha1.LeasingOpen {
		delete(r.closed, pool.UID)
		return 0
	}
	s, ok := r.closed[pool.UID]
	if ok {
		s.lasted += max(0, min(now.Sub(s.last), atOnce))
	}
	s.last = now
	if r.closed == nil {
		r.closed = map[types.UID]spell{}
	}
	r.closed[pool.UID] = s
	return s.lasted
}

// Revisions tells the revision that the API server's data have now.
type Revisions interface {
	Revision(ctx context.Context) (protocol.Revision, error)
}

// rewindEvery is how often the API server's revision is looked at.
const rewindEvery = 5 * time.Second

// WatchRevision looks at the API server's revision until ctx ends. When it has gone
// back it closes every pool, and returns an error: the controller must start anew. It
// works also in one that does not lead.
func (r *Reconciler) WatchRevision(ctx context.Context, of Revisions) error {
	tick := time.NewTicker(rewindEvery)
	defer tick.Stop()
	for {
		before := r.highest.Load()
		if now, err := of.Revision(ctx); err == nil { // else it is asked again
			if before != nil && older(now, *before) {
				return r.rewound(ctx, *before, now)
			}
			r.saw(now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// saw notes a revision that the API server has answered with.
func (r *Reconciler) saw(rev protocol.Revision) {
	for {
		highest := r.highest.Load()
		if highest != nil && !older(*highest, rev) || r.highest.CompareAndSwap(highest, &rev) {
			return
		}
	}
}

// older reports whether a is of an earlier state than b.
func older(a, b protocol.Revision) bool {
	c, err := resourceversion.CompareResourceVersion(string(a), string(b))
	return err == nil && c < 0
}

// errRewound ends a controller whose caches are of a time that the API server does
// not know any more: it would wait for changes that have been, perhaps for ever.
var errRewound = errors.New("the API server's data went back in time: the controller must start anew")

// rewound closes every pool, so that whoever leads next knows, and returns an error.
func (r *Reconciler) rewound(ctx context.Context, from, to protocol.Revision) error {
	r.Log.ErrorContext(ctx, "the API server's data went back in time: pools are closed", "from", from, "to", to)
	for {
		err := r.closeAll(ctx)
		if err == nil {
			return fmt.Errorf("%w (revision %s after %s)", errRewound, to, from)
		}
		r.Log.ErrorContext(ctx, "pools are not closed yet", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// closeAll closes the pools that are open, by a live list.
func (r *Reconciler) closeAll(ctx context.Context) error {
	pools, err := r.Live.IPPools(ctx)
	if err != nil {
		return fmt.Errorf("close pools: %w", err)
	}
	var errs []error
	for i := range pools {
		p := &pools[i]
		if p.Status.Leasing != v1alpha1.LeasingOpen {
			continue
		}
		st := p.Status.DeepCopy()
		seen{pool: p, now: r.Now()}.shut(st, v1alpha1.ReasonRestored, past)
		done, err := r.patch(ctx, p, nil, st)
		if err == nil && !done {
			err = fmt.Errorf("pool %s has changed", p.Name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// words are what is known of the openings of all pools.
type words struct {
	last string // the greatest word by which one was opened
	// made is the word by which the pool that was made last is opened first, by the API
	// server's clock.
	made string
}

// of returns the word by which a pool was last opened. One that never was opened counts as
// opened when it was made, for it may have been, since the backup; and as long as no pool
// has been opened again, as what was opened last.
func (w words) of(pool *v1alpha1.IPPool) string {
	if pool.Status.Opening != "" {
		return pool.Status.Opening
	}
	return min(w.last, protocol.OpeningAfter(pool.CreationTimestamp.Time))
}

func wordsOf(pools []v1alpha1.IPPool) (w words) {
	for i := range pools {
		w.last = max(w.last, pools[i].Status.Opening)
		w.made = max(w.made, protocol.OpeningAfter(pools[i].CreationTimestamp.Time))
	}
	return w
}

// Restored reports whether a pool is closed because the API server's data went back
// in time.
func Restored(pool *v1alpha1.IPPool) bool {
	return ready(pool.Status).Reason == v1alpha1.ReasonRestored
}

// concerned returns what is known of an API server whose data went back, if that concerns
// pool, and for how long this controller has seen it closed for that; nil if it does not. By
// the words of all pools: whoever asks by others may be told another thing, and ends the
// spell that the other counts.
func (r *Reconciler) concerned(pool *v1alpha1.IPPool, all words, now time.Time) (*restoration, time.Duration) {
	of := r.regs.restoration(all.of(pool), all, Restored(pool), now)
	return of, r.closedFor(pool, of != nil, now)
}

// Restored reports whether nothing may be granted or freed of one of these pools, because
// the API server's data went back in time: a node may be about to put back that it uses it.
// It knows so before the pool is closed; and when nobody is waited for any more, although the
// pool stays closed for what may have to be freed, it may be.
func (r *Reconciler) Restored(ctx context.Context, names ...protocol.PoolName) (bool, error) {
	if len(names) == 0 {
		return false, nil
	}
	if err := r.meet(ctx); err != nil {
		return false, err
	}
	told, now, all := r.regs.told(), r.Now(), (*words)(nil)
	for _, name := range names {
		var p v1alpha1.IPPool
		if err := r.Cache.Get(ctx, client.ObjectKey{Name: string(name)}, &p); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return false, fmt.Errorf("read pool %s: %w", name, err)
		}
		if !Restored(&p) && (told == "" || p.Status.Opening > told) {
			continue // as ever: the rest looks at all pools
		}
		if all == nil {
			var pools v1alpha1.IPPoolList
			if err := r.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
				return false, fmt.Errorf("list pools: %w", err)
			}
			w := wordsOf(pools.Items)
			all = &w
		}
		if of, closed := r.concerned(&p, *all, now); of != nil {
			if why, _ := of.wait(closed); why != "" {
				return true, nil
			}
		}
	}
	return false, nil
}
