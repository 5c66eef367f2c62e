package vifs

import (
	"context"
	"errors"
	"fmt"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/vif"
)

// sweepEvery is how far apart the two looks are that make a claim nobody's.
const sweepEvery = 15 * time.Second

// Run sweeps until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.sweep(ctx); err != nil {
			r.Log.WarnContext(ctx, "claims of pods that have ended are not deleted yet", "error", err)
		}
	}, sweepEvery)
	return nil
}

// sweep deletes the claims that two looks have found to be of no pod that may still run: the
// garbage collector leaves those of a pod that has ended and is kept, as a Job's, and of one that
// was deleted without what it owns. An address in use stays its pod's: of a deleted claim it is
// freed when the node says that it is not used any more.
func (r *Reconciler) sweep(ctx context.Context) error {
	var pods corev1.PodList
	var claims ipamclaims.IPAMClaimList
	// Nothing of the lists is changed: they may share memory with the cache. Claims come first: a
	// pod is seen before its claim is made.
	err := r.Cache.List(ctx, &claims, client.HasLabels{vif.LabelClaim}, client.UnsafeDisableDeepCopy)
	if err = errors.Join(err, r.Cache.List(ctx, &pods, client.UnsafeDisableDeepCopy)); err != nil {
		return fmt.Errorf("list claims and pods: %w", err)
	}
	may := map[string]bool{} // by the UIDs of pods
	for i := range pods.Items {
		if p := &pods.Items[i]; !ended(p) {
			may[string(p.UID)] = true
		}
	}
	before := r.swept
	r.swept = map[types.UID]bool{}
	var errs []error
	for i := range claims.Items {
		c := &claims.Items[i]
		switch of := c.Labels[vif.LabelClaim]; {
		case may[of] || c.DeletionTimestamp != nil || !ofPod(c, of):
		case !before[c.UID]:
			r.swept[c.UID] = true
		default:
			errs = append(errs, r.remove(ctx, c))
		}
	}
	return errors.Join(errs...)
}

// ofPod reports whether nobody owns a claim but the pod of that UID.
func ofPod(c *ipamclaims.IPAMClaim, uid string) bool {
	return len(c.OwnerReferences) == 0 || owns(types.UID(uid), c.OwnerReferences)
}

// remove deletes a claim as it was seen.
func (r *Reconciler) remove(ctx context.Context, c *ipamclaims.IPAMClaim) error {
	err := call(ctx, func(ctx context.Context) error {
		return r.Live.Delete(ctx, &ipamclaims.IPAMClaim{ObjectMeta: c.ObjectMeta}, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
