package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Seats writes ranks.
type Seats interface {
	// RankSeat writes the rank of the seat of exactly this name and UID, and nothing
	// else of it, and returns the seat as it is then.
	RankSeat(ctx context.Context, m protocol.Meta, rank int) (protocol.Seat, protocol.Outcome, error)
}

// Reconciler gives a rank to each seat that has none.
type Reconciler struct {
	// Cache has the seats in SeatNamespace.
	Cache         client.Reader
	SeatNamespace string
	Seats         Seats
	Log           *slog.Logger

	given map[protocol.UID]protocol.Seat // as they were written, while the cache may not show it; of the one worker
}

// all is the one thing that there is to look at: the seats together.
var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "seats"}}

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	unranked := predicate.NewPredicateFuncs(func(o client.Object) bool {
		l := o.(*coordination.Lease)
		if o.GetNamespace() != r.SeatNamespace || !kube.IsSeat(l) {
			return false
		}
		s, err := kube.SeatOf(l)
		return err == nil && s.Rank == 0
	})
	toAll := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{all} }
	err := ctrl.NewControllerManagedBy(mgr).Named("ranks").
		Watches(&coordination.Lease{}, handler.EnqueueRequestsFromMapFunc(toAll), builder.WithPredicates(unranked)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up ranks: %w", err)
	}
	return nil
}

// Reconcile gives ranks to all seats that have none. It must not run twice at once.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list coordination.LeaseList
	if err := r.Cache.List(ctx, &list, client.InNamespace(r.SeatNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list seats: %w", err)
	}
	var seats []protocol.Seat
	for i := range list.Items {
		if !kube.IsSeat(&list.Items[i]) {
			continue
		}
		s, err := kube.SeatOf(&list.Items[i])
		if err != nil && s.Rank == 0 {
			continue // one that is garbled waits for its agent
		}
		seats = append(seats, s)
	}
	var next []protocol.Seat
	next, r.given = plan(seats, r.given)
	var errs []error
	for _, s := range next {
		switch written, out, err := r.Seats.RankSeat(ctx, s.Meta, s.Rank); out {
		case protocol.Done:
			r.given[s.UID] = written
			r.Log.DebugContext(ctx, "seat ranked", "node", s.Node, "rank", s.Rank)
		case protocol.NotFound, protocol.Conflict: // it is gone
		default:
			errs = append(errs, fmt.Errorf("rank seat %s: %w", s.Node, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// plan returns the seats that are to have a rank and do not, with the lowest ranks that
// no other seat has. given are seats as they were written before, and still those of
// which the cache, which shows seats, is behind that.
func plan(seats []protocol.Seat, given map[protocol.UID]protocol.Seat) (next []protocol.Seat, still map[protocol.UID]protocol.Seat) {
	used := map[int]bool{}
	still = map[protocol.UID]protocol.Seat{}
	for _, s := range seats {
		if written, ok := given[s.UID]; ok && older(s, written) {
			s, still[s.UID] = written, written
		}
		used[s.Rank] = true
		if s.Rank == 0 && !s.Ended() {
			next = append(next, s)
		}
	}
	slices.SortFunc(next, func(x, y protocol.Seat) int { return cmp.Compare(x.Node, y.Node) })
	free := 1
	for i := range next {
		for used[free] {
			free++
		}
		next[i].Rank, used[free] = free, true
	}
	return next, still
}

// older reports whether x is certainly an earlier version of a seat than y.
func older(x, y protocol.Seat) bool {
	c, err := resourceversion.CompareResourceVersion(string(x.Revision), string(y.Revision))
	return err == nil && c < 0
}
