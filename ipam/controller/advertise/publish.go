package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// withdraw takes what Nodes publish of a pool away from all of them.
func (r *Reconciler) withdraw(ctx context.Context, pool string) error {
	var list corev1.NodeList
	if err := r.cache.List(ctx, &list, client.MatchingFields{byPool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes that publish %s: %w", pool, err)
	}
	changes := make([]change, len(list.Items))
	for i := range list.Items {
		changes[i] = change{node: list.Items[i].Name, gone: true}
	}
	if len(changes) > 0 {
		r.log.InfoContext(ctx, "pool is not advertised any more", "pool", pool, "nodes", len(changes))
	}
	return r.apply(ctx, pool, changes)
}

// apply has Nodes publish what changes say. It stops where this controller lacks the right; other
// Nodes that cannot be written do not keep the rest from it.
func (r *Reconciler) apply(ctx context.Context, pool string, changes []change) error {
	var errs []error
	for _, c := range changes {
		if err := r.limit.Wait(ctx); err != nil {
			return fmt.Errorf("publish %s: %w", pool, err)
		}
		err := r.patch(ctx, pool, c)
		if forbidden(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// patch writes that key of a Node's status alone: of the capacity, which the kubelet keeps, and of
// what is allocatable, which the kubelet would write some seconds later, and the scheduler reads.
func (r *Reconciler) patch(ctx context.Context, pool string, c change) error {
	var number any // null takes the key away
	if !c.gone {
		number = strconv.FormatInt(c.number, 10)
	}
	key := map[string]any{npwg.AddressResources + pool: number}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": key, "allocatable": key}})
	if err != nil {
		return fmt.Errorf("encode what node %s publishes of pool %s: %w", c.node, pool, err)
	}
	into := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: c.node}}
	into.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err = kube.Call(ctx, func(ctx context.Context) error {
		return r.write.Status().Patch(ctx, into, client.RawPatch(types.MergePatchType, body))
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("publish on node %s what pool %s has: %w", c.node, pool, err)
	}
	r.log.DebugContext(ctx, "node publishes", "node", c.node, "pool", pool, "number", number)
	return nil
}

// forbidden reports whether err says that this controller lacks the right.
func forbidden(err error) bool {
	return apierrors.IsForbidden(err)
}

func published(pool *v1alpha1.IPPool) *metav1.Condition {
	return &metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPublished,
		Message: "nodes publish how many addresses their pods may ask for, as the resource " + npwg.AddressResources + pool.Name,
	}
}

func notOpen(pool *v1alpha1.IPPool) *metav1.Condition {
	return &metav1.Condition{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotOpen,
		Message: "no node publishes " + npwg.AddressResources + pool.Name + ": the pool gives no addresses now, see its condition " + v1alpha1.PoolReady,
	}
}

func notPermitted(pool *v1alpha1.IPPool, err error) *metav1.Condition {
	return &metav1.Condition{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotPermitted,
		Message: fmt.Sprintf("%s%s cannot be published, for the controller may not patch nodes/status: give it the role tenure-controller-advertise "+
			"(Helm: advertise.enabled=true; else deploy/rbac/advertise.yaml), or take advertise from the pool's spec; the API server says: %.1000v",
			npwg.AddressResources, pool.Name, err),
	}
}

// say writes the condition Advertised, if it says something new; nil takes it away. A pool that has
// changed meanwhile is looked at again.
func (r *Reconciler) say(ctx context.Context, pool *v1alpha1.IPPool, c *metav1.Condition) error {
	conditions := slices.Clone(pool.Status.Conditions)
	before := meta.FindStatusCondition(conditions, v1alpha1.PoolAdvertised)
	switch {
	case c == nil && before == nil:
		return nil
	case c == nil:
		meta.RemoveStatusCondition(&conditions, v1alpha1.PoolAdvertised)
	case before != nil && before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message:
		return nil
	default:
		c.Type, c.ObservedGeneration, c.LastTransitionTime = v1alpha1.PoolAdvertised, pool.Generation, metav1.NewTime(r.now().Truncate(time.Second))
		meta.SetStatusCondition(&conditions, *c)
	}
	patch, err := kube.SwapPatch(kube.MetaOf(pool), map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	into := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}}
	err = kube.Call(ctx, func(ctx context.Context) error { return r.write.Status().Patch(ctx, into, patch) })
	switch kube.Classify(err) {
	case protocol.Done, protocol.NotFound, protocol.Conflict:
		return nil
	default:
		return fmt.Errorf("write status of pool %s: %w", pool.Name, err)
	}
}
