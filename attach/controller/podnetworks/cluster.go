package podnetworks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Cluster is what the reconcilers of this package share.
type Cluster struct {
	// Cache has the objects that the watches of the reconcilers name. Its pods are condensed by
	// [CondensePod], and it has the indices of [Index].
	Cache client.Reader
	// Live reads and writes at the API server.
	Live   client.Client
	Events events.EventRecorder
	Log    *slog.Logger
	// KeepDefault says that the default PodNetwork is made, and made again when it is gone.
	KeepDefault bool
}

// callTimeout is how long one call to the API server may take.
const callTimeout = 10 * time.Second

// call makes one call, which has its deadline.
func call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("the API server did not answer within %v", callTimeout))
	defer cancel()
	return f(ctx)
}

// patch writes what differs between before and o, unless somebody else has written meanwhile.
func (c *Cluster) patch(ctx context.Context, o, before client.Object) error {
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := call(ctx, func(ctx context.Context) error { return c.Live.Patch(ctx, o, p) }); err != nil {
		return fmt.Errorf("write the metadata of %s: %w", describe(o), err)
	}
	return nil
}

// patchStatus is patch for the status.
func (c *Cluster) patchStatus(ctx context.Context, o, before client.Object) error {
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := call(ctx, func(ctx context.Context) error { return c.Live.Status().Patch(ctx, o, p) }); err != nil {
		return fmt.Errorf("write the status of %s: %w", describe(o), err)
	}
	return nil
}

// describe names an object for people.
func describe(o client.Object) string {
	kind := fmt.Sprintf("%T", o)
	for i := len(kind) - 1; i >= 0; i-- {
		if kind[i] == '.' {
			kind = kind[i+1:]
			break
		}
	}
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// settle ends a look whose write met another one, or an object that is gone: the cache shows the
// object as it is soon.
func settle(err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	case apierrors.IsNotFound(err) && !isNamespace(err):
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// isNamespace reports whether err says that a namespace is not there.
func isNamespace(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Details != nil && status.ErrStatus.Details.Kind == "namespaces"
}

// undefined reports whether err says that the API server does not know a kind.
func undefined(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// isRunning reports whether a pod has not ended.
func isRunning(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
