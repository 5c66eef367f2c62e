package podnetworks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// ReasonNoDefault is the reason of the Event which says that there is no default PodNetwork.
const ReasonNoDefault = "DefaultPodNetworkNotFound"

// Networks keeps PodNetworks.
type Networks struct{ *Cluster }

// Reconcile looks at one PodNetwork.
func (r *Networks) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var o v1alpha1.PodNetwork
	err := r.Cache.Get(ctx, req.NamespacedName, &o)
	switch {
	case apierrors.IsNotFound(err) && req.Name == api.Default:
		return settle(r.noDefault(ctx))
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	inUse, err := r.networkInUse(ctx, o.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if o.DeletionTimestamp != nil && !inUse && controllerutil.ContainsFinalizer(&o, v1alpha1.InUseFinalizer) {
		return r.release(ctx, &o,
			func(ctx context.Context) (bool, error) { return r.networkReferred(ctx, o.Name) },
			func(context.Context) error { return nil }, // its definition goes with it
		)
	}
	if err := r.mark(ctx, &o); err != nil {
		return settle(err)
	}
	l := look{
		generation: o.Generation, deleting: o.DeletionTimestamp != nil, provider: o.Spec.Provider, disabled: !o.Spec.IsEnabled(), refers: len(o.Spec.ParametersRefs) > 0, inUse: inUse,
		// The default network is the cluster's own, which needs no parameters.
		// Nothing is made of one that is deleted.
		judged: o.Spec.Provider == api.Provider && o.DeletionTimestamp == nil && (o.Name != api.Default || len(o.Spec.ParametersRefs) > 0),
	}
	if l.judged {
		if l.params, err = faultOf(r.networkParams(ctx, &o)); err != nil {
			return settle(err)
		}
	}
	if l.nodes = o.Spec.Provider == api.Provider; l.nodes {
		if l.unserved, err = r.unserved(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	before := o.DeepCopy()
	if o.Status.Conditions = conditions(o.Status.Conditions, l); same(before.Status.Conditions, o.Status.Conditions) {
		return reconcile.Result{}, nil
	}
	return settle(r.patchStatus(ctx, &o, before))
}

// networkInUse reports whether an attachment or a pod that has not ended refers to a network, as
// the cache has it.
func (c *Cluster) networkInUse(ctx context.Context, name string) (bool, error) {
	if used, err := c.anyOf(ctx, &v1alpha1.PodNetworkAttachmentList{}, byNetwork, name); err != nil || used {
		return used, err
	}
	return c.anyOf(ctx, &corev1.PodList{}, byNetwork, name)
}

// anyOf reports whether the cache has an object of that index value.
func (c *Cluster) anyOf(ctx context.Context, list client.ObjectList, index, value string, opts ...client.ListOption) (bool, error) {
	// Nothing of the list is changed: it may share memory with the cache.
	opts = append(opts, client.MatchingFields{index: value}, client.Limit(1), client.UnsafeDisableDeepCopy)
	if err := c.Cache.List(ctx, list, opts...); err != nil {
		return false, fmt.Errorf("list what refers to it: %w", err)
	}
	switch l := list.(type) {
	case *corev1.PodList:
		return len(l.Items) > 0, nil
	case *v1alpha1.PodNetworkAttachmentList:
		return len(l.Items) > 0, nil
	}
	return false, fmt.Errorf("no list of %T refers to networks", list)
}

// noDefault makes the default PodNetwork, or says that it is not there.
func (r *Networks) noDefault(ctx context.Context) error {
	if !r.KeepDefault {
		at := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: api.Namespace}}
		r.Events.Eventf(at, nil, corev1.EventTypeWarning, ReasonNoDefault, "LookForDefault",
			"Default PodNetwork not found: pods that list PodNetwork %s wait for it. Make it, or start the controller without --default-pod-network=false", api.Default)
		r.Log.WarnContext(ctx, "default PodNetwork not found")
		return nil
	}
	o := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{
		Name: api.Default, Finalizers: []string{v1alpha1.InUseFinalizer},
	}}
	setKept(o, true)
	if err := call(ctx, func(ctx context.Context) error { return r.Live.Create(ctx, o) }); err != nil {
		return fmt.Errorf("make the default PodNetwork: %w", err)
	}
	r.Log.InfoContext(ctx, "default PodNetwork made")
	return nil
}
