package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// StrangersOf returns the reservations of a pool that were made of strangers' addresses, in the
// order of their names.
func StrangersOf(ctx context.Context, cache client.Reader, pool string) (all []v1alpha1.IPReservation, err error) {
	var list v1alpha1.IPReservationList
	if err := cache.List(ctx, &list, client.HasLabels{v1alpha1.LabelStranger}); err != nil {
		return nil, fmt.Errorf("list the reservations of strangers' addresses: %w", err)
	}
	for _, one := range list.Items {
		if one.Spec.Pool == pool {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.IPReservation) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// aboutStrangers returns the reason and the message of the pool's condition; no message says that
// no stranger has an address of it.
func aboutStrangers(kept []v1alpha1.IPReservation) (reason, message string) {
	if len(kept) == 0 {
		return v1alpha1.ReasonAddressesKept, ""
	}
	each := make([]string, len(kept))
	for i, one := range kept {
		mac := strings.ReplaceAll(one.Labels[v1alpha1.LabelStranger], "-", ":")
		each[i] = fmt.Sprintf("%s (hardware address %s, IPReservation %s)", one.Spec.Address, mac, one.Name)
	}
	list := fmt.Sprintf("given to no pod, since strangers on the segment have them: %s; when one has gone, delete its IPReservation", strings.Join(each, ", "))
	if len(kept) < protocol.MaxStrangers {
		return v1alpha1.ReasonAddressesKept, list
	}
	return v1alpha1.ReasonTooManyStrangers, fmt.Sprintf("%d addresses are kept, the most that there may be, and no further one is asked for: find who answers, and delete IPReservations; %s", len(kept), list)
}

// ofStranger enqueues the pool of a stranger's address that comes or goes.
func ofStranger() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		one, ok := o.(*v1alpha1.IPReservation)
		if !ok || one.Labels[v1alpha1.LabelStranger] == "" {
			return nil
		}
		return []ctrl.Request{request(one.Spec.Pool)}
	})
}
