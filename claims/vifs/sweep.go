package vifs

import (
	"context"
	"errors"
	"fmt"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// sweepEvery is how often it is looked for claims that nobody needs.
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

// sweep deletes the claims of no pod that may still run, as the API server has it: the garbage
// collector leaves those of a pod that has ended and is kept, as a Job's, and of one that was
// deleted without what it owns. An address in use stays its pod's: of a deleted claim it is freed
// when the node says that it is not used any more.
func (r *Reconciler) sweep(ctx context.Context) error {
	left, err := r.leftovers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for namespace, claims := range left {
		may, err := r.running(ctx, namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, c := range claims {
			if !may[c.Labels[vif.LabelClaim]] {
				errs = append(errs, r.remove(ctx, c))
			}
		}
	}
	return errors.Join(errs...)
}

// leftovers returns, by namespace, the claims that are made here for pods which have ended or are
// gone, as the cache has it.
func (r *Reconciler) leftovers(ctx context.Context) (map[string][]*ipamclaims.IPAMClaim, error) {
	var claims ipamclaims.IPAMClaimList
	var pods corev1.PodList
	// Nothing of the lists is changed: they may share memory with the cache.
	err := r.Cache.List(ctx, &claims, client.HasLabels{vif.LabelClaim}, client.UnsafeDisableDeepCopy)
	if err = errors.Join(err, r.Cache.List(ctx, &pods, client.UnsafeDisableDeepCopy)); err != nil {
		return nil, fmt.Errorf("list claims and pods: %w", err)
	}
	may := map[string]bool{} // by the UIDs of pods
	for i := range pods.Items {
		if p := &pods.Items[i]; !ended(p) {
			may[string(p.UID)] = true
		}
	}
	left := map[string][]*ipamclaims.IPAMClaim{}
	for i := range claims.Items {
		c := &claims.Items[i]
		if of := c.Labels[vif.LabelClaim]; !may[of] && c.DeletionTimestamp == nil && ofPod(c, of) {
			left[c.Namespace] = append(left[c.Namespace], c)
		}
	}
	return left, nil
}

// ofPod reports whether nobody owns a claim but the pod of that UID.
func ofPod(c *ipamclaims.IPAMClaim, uid string) bool {
	return len(c.OwnerReferences) == 0 || owns(types.UID(uid), c.OwnerReferences)
}

// pageSize is how many pods one call lists.
const pageSize = 500

// running returns the UIDs of a namespace's pods that have not ended. It asks the API server.
func (r *Reconciler) running(ctx context.Context, namespace string) (map[string]bool, error) {
	selector := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	all := map[string]bool{}
	for next := ""; ; {
		var page metav1.PartialObjectMetadataList
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := kube.Call(ctx, func(ctx context.Context) error {
			return r.Live.List(ctx, &page, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selector}, client.Limit(pageSize), client.Continue(next))
		})
		if err != nil {
			return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
		}
		for i := range page.Items {
			all[string(page.Items[i].UID)] = true
		}
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// remove deletes a claim as it was seen.
func (r *Reconciler) remove(ctx context.Context, c *ipamclaims.IPAMClaim) error {
	err := kube.Call(ctx, func(ctx context.Context) error {
		return r.Live.Delete(ctx, &ipamclaims.IPAMClaim{ObjectMeta: c.ObjectMeta}, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
