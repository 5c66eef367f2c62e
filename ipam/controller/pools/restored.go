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
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/pause"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// usualFence is F where no registration tells it.
const usualFence = 15 * time.Minute

// restoration is what is known of an API server whose data went back to an earlier
// state, as after a restore of etcd: blocks that nodes hold may have no lease any
// more. Every pool is closed then, and waits until the nodes have put back
// what they hold.
//
// It rests on the epochs of the pools. Each time that a pool is opened, or has waited and stays
// closed, an epoch begins, greater than all before it. Only the first epoch of a pool that has not
// waited is the time at which it was made, unless registrations name a later one. A registration
// names the last epoch that its agent had heard of when it saw the API server go back. Pools of
// that epoch or an earlier one are closed, and pools of a later one are not. So a pool that has
// waited is not closed once more by what registrations still say, whoever leads.
type restoration struct {
	// epoch is the greatest epoch that a registration names, and restoredNode the node of that
	// registration. Both are empty where only a controller has seen the API server go back.
	epoch, restoredNode string
	// missing are the registered nodes, without those that are silent for F, that do not say
	// that they are back.
	missing []absent
	// fence is the longest F of all nodes that are not silent; 0 is never.
	fence time.Duration
}

// named returns the greatest epoch that a registration names.
func (r *restoration) named() string {
	if r == nil {
		return ""
	}
	return r.epoch
}

// absent is a node that does not say that it is back.
type absent struct {
	node  string
	never bool // it has no F
	// compared is how long ago the heartbeat before its last was seen, if its registration says
	// nothing of a restored API server; 0 where it does, or was not seen to beat twice.
	compared time.Duration
}

// waitedFor returns the nodes that a pool still waits for when it has been closed for this long,
// and whether one of them has no F.
//
// A node that has sent two heartbeats since then, and says nothing, is not waited for: it had the
// answer to the first before it sent the second, and that answer showed it nothing new. This holds
// for a node that has joined since, and for one whose pools have all waited before
// this one. A node that does not reach the API server says nothing either, but sends no heartbeat.
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

// clockSkew is by how much the clocks of two controllers may differ. An epoch on a registration
// that is further ahead than that, later than the epochs of all pools, and later than the last pool
// was made, is not believed.
const clockSkew = 24 * time.Hour

// openedBefore reports whether a pool of this epoch has not waited since the API server went
// back. restored is the greatest epoch that a registration names, or empty.
func openedBefore(restored, epoch string) bool { return restored != "" && epoch <= restored }

// past is why a pool is closed for a restoration.
const past = "the API server's data went back in time: the pool is closed until the nodes have put back what they hold"

// wait returns why a pool that has been closed for this long must stay closed, and when to check
// again. The reason is empty if the pool may be opened.
//
// A living agent sends a heartbeat every F/4. So after F/2 each has been heard of, also one whose
// registration was lost in the restore. After F an agent that was not heard of gives out nothing
// new.
func (r restoration) wait(closed time.Duration) (why string, after time.Duration) {
	fence := r.fence
	if fence == 0 {
		fence = usualFence
	}
	past := past
	if r.restoredNode != "" {
		past += fmt.Sprintf(" (node %s says so)", r.restoredNode)
	}
	nodes, never := r.waitedFor(closed)
	switch {
	case len(nodes) > 0 && (closed < fence || never && r.fence == 0):
		if closed < fence {
			after = fence - closed
		} else {
			after = recheckAfter
		}
		return fmt.Sprintf("%s; it waits for %s", past, strings.Join(few(nodes, "nodes"), ", ")), min(after, recheckAfter)
	case closed < fence/2:
		return past + "; it waits for nodes whose registrations may be missing", min(fence/2-closed, recheckAfter)
	}
	return "", 0
}

// A spell is how long a pool has been seen closed, and when it was last seen.
type spell struct {
	lasted time.Duration
	last   time.Time
}

// atOnce is the most that one check adds to a spell: a pool that waits is checked every
// recheckAfter. A controller that slept, perhaps with all nodes, must not take its sleep for their
// silence.
const atOnce = 6 * recheckAfter

// closedFor returns for how long this controller has seen a pool closed for a restoration.
// Another leader begins at zero: it does not know what was before.
func (r *Reconciler) closedFor(pool *v1alpha1.IPPool, affected bool, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !affected || pool.Status.Leasing == v1alpha1.LeasingOpen {
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

// rewindEvery is how often the API server's revision is queried.
const rewindEvery = 5 * time.Second

// WatchRevision queries the API server's revision until ctx ends. When the revision has gone
// back it closes every pool, and returns an error: the controller must start anew. A controller
// that does not lead does so too.
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

// errRewound ends a controller whose caches show a later state than the API server has: it could
// wait for ever for changes that it takes for past.
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
		if !pause.For(ctx, time.Second) {
			return nil
		}
	}
}

// closeAll marks all pools as closed for a restore, by a live list: one that is closed for another
// reason might be opened at once.
func (r *Reconciler) closeAll(ctx context.Context) error {
	pools, err := r.Live.IPPools(ctx)
	if err != nil {
		return fmt.Errorf("close pools: %w", err)
	}
	var errs []error
	for i := range pools {
		p := &pools[i]
		if Restored(p) {
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

// epochs are what is known of the epochs of all pools.
type epochs struct {
	last string // the greatest of all
	// made is the first epoch of the pool that was made last, by the API server's clock.
	made string
}

// of returns a pool's epoch. A pool that never was opened counts as opened when it was made: it
// may have been opened since the backup. Its epoch is then no later than the last of all pools.
func (w epochs) of(pool *v1alpha1.IPPool) string {
	if epoch := kube.Epoch(pool); epoch != "" {
		return epoch
	}
	return min(w.last, protocol.EpochAfter(pool.CreationTimestamp.Time))
}

func epochsOf(pools []v1alpha1.IPPool) (w epochs) {
	for i := range pools {
		w.last = max(w.last, kube.Epoch(&pools[i]))
		w.made = max(w.made, protocol.EpochAfter(pools[i].CreationTimestamp.Time))
	}
	return w
}

// Restored reports whether a pool is closed because the API server's data went back
// in time.
func Restored(pool *v1alpha1.IPPool) bool { return kube.Restored(pool) }

// restorationOf returns the restoration for which pool is closed or is to be closed, and for how
// long this controller has seen the pool closed for it. It returns nil if there is none. all must
// be the epochs of all pools: with fewer the answer may differ, and then the time that is counted
// here begins anew.
func (r *Reconciler) restorationOf(pool *v1alpha1.IPPool, all epochs, now time.Time) (*restoration, time.Duration) {
	of := r.regs.restoration(all.of(pool), all, Restored(pool), now)
	return of, r.closedFor(pool, of != nil, now)
}

// Restored reports whether nothing may be granted of one of these pools, or freed, because the
// API server's data went back in time: a node may be about to put back that it uses an address of
// it. The answer can be yes before the pool is closed. It is no once the pool waits for no node,
// although the pool may still be closed: what it waits for may have to be freed.
func (r *Reconciler) Restored(ctx context.Context, names ...protocol.PoolName) (bool, error) {
	if len(names) == 0 {
		return false, nil
	}
	if err := r.meet(ctx); err != nil {
		return false, err
	}
	greatest, now, all := r.regs.greatestEpoch(), r.Now(), (*epochs)(nil)
	for _, name := range names {
		var p v1alpha1.IPPool
		if err := r.Cache.Get(ctx, client.ObjectKey{Name: string(name)}, &p); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return false, fmt.Errorf("read pool %s: %w", name, err)
		}
		if !Restored(&p) && (greatest == "" || kube.Epoch(&p) > greatest) {
			continue // it is open, or has waited; else all pools are listed
		}
		if all == nil {
			var pools v1alpha1.IPPoolList
			if err := r.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
				return false, fmt.Errorf("list pools: %w", err)
			}
			w := epochsOf(pools.Items)
			all = &w
		}
		if of, closed := r.restorationOf(&p, *all, now); of != nil {
			if why, _ := of.wait(closed); why != "" {
				return true, nil
			}
		}
	}
	return false, nil
}
