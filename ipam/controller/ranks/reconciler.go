package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/ipam/controller/doorbell"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Registrations writes ranks.
type Registrations interface {
	// RankRegistration writes the rank of the registration of exactly this name and UID, and
	// nothing else of it, and returns the registration as it is then.
	RankRegistration(ctx context.Context, m protocol.Meta, rank int) (protocol.Registration, protocol.Outcome, error)
}

// Reconciler gives a rank to each registration that has none.
type Reconciler struct {
	// Cache has the registrations in RegistrationNamespace.
	Cache                 client.Reader
	RegistrationNamespace string
	Registrations         Registrations
	Log                   *slog.Logger

	given map[protocol.UID]protocol.Registration // as they were written, while the cache may not show it; of the one worker
}

// all is the one thing that there is to look at: the registrations together.
var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "registrations"}}

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	unranked := predicate.NewPredicateFuncs(func(o client.Object) bool {
		l := o.(*coordination.Lease)
		if o.GetNamespace() != r.RegistrationNamespace || !kube.IsRegistration(l) {
			return false
		}
		s, err := kube.RegistrationOf(l)
		return err == nil && s.Rank == 0
	})
	toAll := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{all} }
	err := ctrl.NewControllerManagedBy(mgr).Named("ranks").
		Watches(&coordination.Lease{}, handler.EnqueueRequestsFromMapFunc(toAll), builder.WithPredicates(unranked)).
		WithOptions(doorbell.Workers(1)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up ranks: %w", err)
	}
	return nil
}

// Reconcile gives ranks to all registrations that have none. It must not run twice at once.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list coordination.LeaseList
	if err := r.Cache.List(ctx, &list, client.InNamespace(r.RegistrationNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list registrations: %w", err)
	}
	var regs []protocol.Registration
	for i := range list.Items {
		if !kube.IsRegistration(&list.Items[i]) {
			continue
		}
		s, err := kube.RegistrationOf(&list.Items[i])
		if err != nil && s.Rank == 0 {
			continue // one that is garbled waits for its agent
		}
		regs = append(regs, s)
	}
	var next []protocol.Registration
	next, r.given = plan(regs, r.given)
	var errs []error
	for _, s := range next {
		switch written, out, err := r.Registrations.RankRegistration(ctx, s.Meta, s.Rank); out {
		case protocol.Done:
			r.given[s.UID] = written
			r.Log.DebugContext(ctx, "registration ranked", "node", s.Node, "rank", s.Rank)
		case protocol.NotFound, protocol.Conflict: // it is gone
		default:
			errs = append(errs, fmt.Errorf("rank registration %s: %w", s.Node, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// plan returns the registrations that are to have a rank and do not, with the lowest ranks that no
// other registration has. given are registrations as they were written before, and still those of
// which the cache, which shows registrations, is behind that.
func plan(regs []protocol.Registration, given map[protocol.UID]protocol.Registration) (next []protocol.Registration, still map[protocol.UID]protocol.Registration) {
	used := map[int]bool{}
	still = map[protocol.UID]protocol.Registration{}
	for _, s := range regs {
		if written, ok := given[s.UID]; ok && older(s, written) {
			s, still[s.UID] = written, written
		}
		used[s.Rank] = true
		if s.Rank == 0 && !s.Ended() {
			next = append(next, s)
		}
	}
	slices.SortFunc(next, func(x, y protocol.Registration) int { return cmp.Compare(x.Node, y.Node) })
	free := 1
	for i := range next {
		for used[free] {
			free++
		}
		next[i].Rank, used[free] = free, true
	}
	return next, still
}

// older reports whether x is certainly an earlier version of a registration than y.
func older(x, y protocol.Registration) bool {
	c, err := resourceversion.CompareResourceVersion(string(x.Revision), string(y.Revision))
	return err == nil && c < 0
}
