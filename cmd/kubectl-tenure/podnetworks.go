package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// annotationKept is on a default PodNetwork whose deletion a policy refuses.
const annotationKept = "tenure.dev/kept"

// freePodNetworks takes off what keeps PodNetworks and PodNetworkAttachments from being deleted:
// the controller, which would do so, has ended.
func (u *uninstall) freePodNetworks(ctx context.Context) error {
	networks, err := u.freeAll(ctx, &v1alpha1.PodNetworkList{})
	if err != nil {
		return err
	}
	attachments, err := u.freeAll(ctx, &v1alpha1.PodNetworkAttachmentList{})
	if err != nil {
		return err
	}
	if networks+attachments > 0 {
		u.screen().line("took the finalizer %s from %d PodNetworks and %d PodNetworkAttachments: they stay, and can be deleted", v1alpha1.InUseFinalizer, networks, attachments)
	}
	return nil
}

// freeAll frees the objects of one kind, and returns of how many it has taken something off: of
// none, where nothing defines the kind.
func (u *uninstall) freeAll(ctx context.Context, list client.ObjectList) (freed int, err error) {
	if err := u.client.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("list every %s: %w", kindOf(list), err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return 0, fmt.Errorf("list every %s: %w", kindOf(list), err)
	}
	var errs []error
	for _, object := range objects {
		o, ok := object.(client.Object)
		if !ok {
			continue
		}
		before := client.MergeFrom(o.DeepCopyObject().(client.Object))
		_, kept := o.GetAnnotations()[annotationKept]
		delete(o.GetAnnotations(), annotationKept)
		if !controllerutil.RemoveFinalizer(o, v1alpha1.InUseFinalizer) && !kept {
			continue
		}
		if err := u.client.Patch(ctx, o, before); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("take the finalizer from %s %s: %w", kindOf(list), o.GetName(), err))
			continue
		}
		freed++
	}
	return freed, errors.Join(errs...)
}
