package podnetworks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// recheckAfter is when a deleted object is looked at again that something refers to which the cache
// does not show: it may be gone before the cache has seen it.
const recheckAfter = 10 * time.Second

// mark gives a network or an attachment its finalizer, and a default network that is kept its
// annotation.
func (c *Cluster) mark(ctx context.Context, o client.Object) error {
	if o.GetDeletionTimestamp() != nil {
		return nil // then the API server takes no further finalizer
	}
	before := o.DeepCopyObject().(client.Object)
	changed := controllerutil.AddFinalizer(o, v1alpha1.InUseFinalizer)
	if _, network := o.(*v1alpha1.PodNetwork); network && setKept(o, c.KeepDefault && o.GetName() == podnetwork.Default) {
		changed = true
	}
	if !changed {
		return nil
	}
	return c.patch(ctx, o, before)
}

// setKept sets the annotation of a network that is kept, or takes it off, and reports whether that
// is a change.
func setKept(o client.Object, kept bool) (changed bool) {
	all := o.GetAnnotations()
	if _, has := all[podnetwork.AnnotationKept]; has == kept {
		return false
	}
	if kept {
		all = withKeys(all, map[string]string{podnetwork.AnnotationKept: "by the controller"})
	} else {
		delete(all, podnetwork.AnnotationKept)
	}
	o.SetAnnotations(all)
	return true
}

// release takes the finalizer off a deleted network or attachment to which nothing refers any
// more. last is done before. refers looks live: what the cache shows may be old.
func (c *Cluster) release(ctx context.Context, o client.Object, refers func(context.Context) (bool, error), last func(context.Context) error) (reconcile.Result, error) {
	inUse, err := refers(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if inUse {
		return reconcile.Result{RequeueAfter: recheckAfter}, nil
	}
	if err := last(ctx); err != nil {
		return reconcile.Result{}, err
	}
	before := o.DeepCopyObject().(client.Object)
	controllerutil.RemoveFinalizer(o, v1alpha1.InUseFinalizer)
	return settle(c.patch(ctx, o, before))
}

// networkReferred asks the API server whether an attachment or a pod that has not ended refers to
// a network.
func (c *Cluster) networkReferred(ctx context.Context, name string) (bool, error) {
	for next := ""; ; {
		var page v1alpha1.PodNetworkAttachmentList
		err := call(ctx, func(ctx context.Context) error {
			return c.Live.List(ctx, &page, client.Limit(pageSize), client.Continue(next))
		})
		if err != nil {
			return false, fmt.Errorf("list the attachments that may refer to it: %w", err)
		}
		if slices.ContainsFunc(page.Items, func(a v1alpha1.PodNetworkAttachment) bool { return a.Spec.PodNetworkName == name }) {
			return true, nil
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	return c.podRefers(ctx, "", func(networks, _ []string) bool { return slices.Contains(networks, name) })
}

// Retire undoes what keeps PodNetworks and PodNetworkAttachments from being deleted, for a
// controller that does not serve them: it takes off their finalizers, and the annotation of the
// default one. Definitions of attachments go: nobody would delete them with their attachments.
// Those of networks go with these. Where the kinds are not defined there is nothing to undo.
func (c *Cluster) Retire(ctx context.Context) error {
	var networks v1alpha1.PodNetworkList
	var attachments v1alpha1.PodNetworkAttachmentList
	for _, list := range []client.ObjectList{&networks, &attachments} {
		if err := call(ctx, func(ctx context.Context) error { return c.Live.List(ctx, list) }); undefined(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("list what has finalizers of PodNetworks: %w", err)
		}
	}
	var errs []error
	for i := range networks.Items {
		errs = append(errs, c.retire(ctx, &networks.Items[i]))
	}
	for i := range attachments.Items {
		errs = append(errs, c.removeDefinition(ctx, attachments.Items[i].Namespace, attachments.Items[i].Name), c.retire(ctx, &attachments.Items[i]))
	}
	return errors.Join(errs...)
}

// retire takes off one object what keeps it.
func (c *Cluster) retire(ctx context.Context, o client.Object) error {
	before := o.DeepCopyObject().(client.Object)
	changed := controllerutil.RemoveFinalizer(o, v1alpha1.InUseFinalizer)
	if !setKept(o, false) && !changed {
		return nil
	}
	return client.IgnoreNotFound(c.patch(ctx, o, before)) //nolint:wrapcheck // says what it is about
}
