package pools

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// users are the claims that some node uses, and when that was looked up: once for
// all pools.
type users struct {
	at     time.Time
	claims map[protocol.UID]bool
}

// inUse returns the claims that some node uses: those looked up last, or if that is
// old, those of now.
func (r *Reconciler) inUse(ctx context.Context, now time.Time) (map[protocol.UID]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.users.at.IsZero() && now.Sub(r.users.at) < r.CountsEvery/2 {
		return r.users.claims, nil
	}
	var subs v1alpha1.IPSubLeaseList
	if err := r.Cache.List(ctx, &subs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list sub-leases: %w", err)
	}
	claims := map[protocol.UID]bool{}
	for i := range subs.Items {
		if u := subs.Items[i].Spec.Use; u != nil {
			claims[protocol.UID(u.Claim.UID)] = true
		}
	}
	r.users = users{at: now, claims: claims}
	return claims, nil
}
