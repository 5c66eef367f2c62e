package controller

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

// rankWriter writes ranks.
type rankWriter interface {
	// RankRegistration writes the rank of the registration of exactly this name and UID, and
	// nothing else of it, and returns the registration as it is then.
	RankRegistration(ctx context.Context, m protocol.Meta, rank int) (protocol.Registration, protocol.Outcome, error)
}

// A ranker gives a rank to each registration that has none: a small number, by which the nodes
// begin to look for blocks apart from each other. No right depends on it. Two nodes may come to
// have one rank, or a node none, and then they meet more often.
type ranker struct {
	cache     client.Reader // has the registrations
	namespace string        // of the registrations
	writer    rankWriter
	log       *slog.Logger

	// given are registrations as they were written, while the cache may not show it. Only the one
	// worker uses it.
	given map[protocol.UID]protocol.Registration
}

// allRegistrations is the one thing that there is to look at: the registrations together.
var allRegistrations = reconcile.Request{NamespacedName: types.NamespacedName{Name: "registrations"}}

// setup has the manager run r.
func (r *ranker) setup(mgr ctrl.Manager) error {
	unranked := predicate.NewPredicateFuncs(func(o client.Object) bool {
		l := o.(*coordination.Lease)
		if o.GetNamespace() != r.namespace || !kube.IsRegistration(l) {
			return false
		}
		s, err := kube.RegistrationOf(l)
		return err == nil && s.Rank == 0
	})
	toAll := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{allRegistrations} }
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
func (r *ranker) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list coordination.LeaseList
	if err := r.cache.List(ctx, &list, client.InNamespace(r.namespace), client.UnsafeDisableDeepCopy); err != nil {
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
	next, r.given = planRanks(regs, r.given)
	var errs []error
	for _, s := range next {
		switch written, out, err := r.writer.RankRegistration(ctx, s.Meta, s.Rank); out {
		case protocol.Done:
			r.given[s.UID] = written
			r.log.DebugContext(ctx, "registration ranked", "node", s.Node, "rank", s.Rank)
		case protocol.NotFound, protocol.Conflict: // it is gone
		default:
			errs = append(errs, fmt.Errorf("rank registration %s: %w", s.Node, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// planRanks returns the registrations that need a rank, each with the lowest rank that no other
// has. regs are the registrations as the cache shows them. given are registrations as they were
// written before; still are those of them that the cache does not show yet.
func planRanks(regs []protocol.Registration, given map[protocol.UID]protocol.Registration) (next []protocol.Registration, still map[protocol.UID]protocol.Registration) {
	used := map[int]bool{}
	still = map[protocol.UID]protocol.Registration{}
	for _, s := range regs {
		if written, ok := given[s.UID]; ok && isOlder(s, written) {
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

// isOlder reports whether x is certainly an earlier version of a registration than y.
func isOlder(x, y protocol.Registration) bool {
	c, err := resourceversion.CompareResourceVersion(string(x.Revision), string(y.Revision))
	return err == nil && c < 0
}
