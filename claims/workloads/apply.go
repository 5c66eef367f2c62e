package workloads

import (
	"context"
	"fmt"
	"sync"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// parallel is how many claims of one set are written at once.
const parallel = 32

// apply does what p says. It returns what was found out on the way that people are to be
// told.
func (r *Reconciler) apply(ctx context.Context, obj *appsv1.StatefulSet, f facts, p plan) ([]fault, error) {
	if len(p.create)+len(p.change)+len(p.remove) == 0 {
		return nil, nil
	}
	if err := r.unchanged(ctx, obj); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var faults []fault // guarded by mu
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, c := range p.remove {
		group.Go(func() error { return r.remove(ctx, f, c) })
	}
	note := func(found []fault, err error) error {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, found...)
		return err
	}
	for _, c := range p.change {
		group.Go(func() error { return note(r.change(ctx, f, c)) })
	}
	for _, w := range p.create {
		group.Go(func() error { return note(r.create(ctx, f, w)) })
	}
	err := group.Wait()
	r.Log.InfoContext(ctx, "claims of a StatefulSet written", "statefulset", client.ObjectKeyFromObject(obj).String(),
		"created", len(p.create), "changed", len(p.change), "deleted", len(p.remove))
	return faults, err //nolint:wrapcheck // says what it is about
}

// unchanged returns an error if the set has changed since the cache saw it: what is deleted
// then may be wanted again, and a set that is gone owns nothing.
func (r *Reconciler) unchanged(ctx context.Context, obj *appsv1.StatefulSet) error {
	var now appsv1.StatefulSet
	key := client.ObjectKeyFromObject(obj)
	err := kube.Call(ctx, func(ctx context.Context) error { return r.Live.Get(ctx, key, &now) })
	if err == nil && (now.UID != obj.UID || now.Generation != obj.Generation || now.DeletionTimestamp != nil) {
		err = errChanged
	}
	if err != nil {
		return fmt.Errorf("write claims of StatefulSet %s: %w", key, err)
	}
	return nil
}

// create makes a claim. One that is there already becomes the set's, unless it is somebody
// else's.
func (r *Reconciler) create(ctx context.Context, f facts, w wanted) ([]fault, error) {
	obj := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.set.Namespace, Name: w.name, Labels: map[string]string{workload.LabelSet: f.set.Name}, OwnerReferences: f.ownersOf(w.ordinal),
		},
		Spec: ipamclaims.IPAMClaimSpec{Network: w.network, Interface: w.ifName},
	}
	for annotation, text := range map[string]string{workload.AnnotationRequested: w.requested, workload.AnnotationTopology: f.set.Topology} {
		if text != "" {
			metav1.SetMetaDataAnnotation(&obj.ObjectMeta, annotation, text)
		}
	}
	err := kube.Call(ctx, func(ctx context.Context) error { return r.Live.Create(ctx, obj) })
	switch out := kube.Classify(err); {
	case out == protocol.Done:
		return nil, nil
	case out == protocol.Exists:
		return r.adopt(ctx, f, w)
	case out == protocol.Refused:
		return []fault{{ReasonNotMade, fmt.Sprintf("claim %s: %v", w.name, err)}}, fmt.Errorf("make claim %s/%s: %w", f.set.Namespace, w.name, err)
	default:
		return nil, fmt.Errorf("make claim %s/%s: %w", f.set.Namespace, w.name, err)
	}
}

// adopt looks at the claim that has the name of one that is to be made.
func (r *Reconciler) adopt(ctx context.Context, f facts, w wanted) ([]fault, error) {
	var obj ipamclaims.IPAMClaim
	err := kube.Call(ctx, func(ctx context.Context) error {
		return r.Live.Get(ctx, client.ObjectKey{Namespace: f.set.Namespace, Name: w.name}, &obj)
	})
	if err != nil {
		return nil, fmt.Errorf("read claim %s/%s: %w", f.set.Namespace, w.name, err)
	}
	c := read(&obj)
	v := f.judge(c, w.ordinal, w)
	switch {
	case v.fault != nil:
		return []fault{*v.fault}, nil
	case v.change != nil:
		return r.change(ctx, f, *v.change)
	case c.set != f.set.Name: // it goes, and no event will tell of that
		return nil, fmt.Errorf("claim %s/%s is being deleted, and is to be made anew", f.set.Namespace, w.name)
	}
	return nil, nil
}

// change writes the set's label to a claim, and its owners. A claim that has changed is left
// alone: it is looked at again.
func (r *Reconciler) change(ctx context.Context, f facts, c change) ([]fault, error) {
	err := writeMeta(ctx, r.Live, f.set.Namespace, c.claim.meta(), map[string]any{
		"labels": map[string]string{workload.LabelSet: f.set.Name}, "ownerReferences": c.owners,
	})
	if kube.Classify(err) == protocol.Refused {
		return []fault{{ReasonNotMade, fmt.Sprintf("claim %s is left alone: %v", c.claim.name, err)}}, nil
	}
	return nil, claimError("write", f, c.claim, err)
}

// meta is what a write to c names, so that it changes only what was seen.
func (c claim) meta() protocol.Meta {
	return protocol.Meta{Name: c.name, UID: protocol.UID(c.uid), Revision: protocol.Revision(c.revision)}
}

// writeMeta writes fields of a claim's metadata, if it is still as it was seen.
func writeMeta(ctx context.Context, to client.Client, namespace string, seen protocol.Meta, fields map[string]any) error {
	patch, err := kube.SwapPatch(seen, map[string]any{"metadata": fields})
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	into := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: seen.Name}}
	return kube.Call(ctx, func(ctx context.Context) error { return to.Patch(ctx, into, patch) })
}

// remove deletes a claim as it was seen.
func (r *Reconciler) remove(ctx context.Context, f facts, c claim) error {
	obj := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: f.set.Namespace, Name: c.name}}
	err := kube.Call(ctx, func(ctx context.Context) error {
		return r.Live.Delete(ctx, obj, client.Preconditions{UID: &c.uid, ResourceVersion: &c.revision})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return claimError("delete", f, c, err)
}

func claimError(verb string, f facts, c claim, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s claim %s/%s: %w", verb, f.set.Namespace, c.name, err)
}
