// Package doorbell has a reconciler look at an object of which no watch tells: one whose
// grants have changed, say. It is not controller-runtime's source.Channel, whose sender waits
// for its reader: a controller that does not lead reads nothing, and handlers of its watches
// would stand still. It also has the options that the controllers' reconcilers share.
package doorbell

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is a reconciler's work.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// A Bell is a source of a controller. Before the controller has started it drops what is
// rung, so whoever uses it has all objects looked at on the start. The zero Bell is ready;
// it may be used concurrently.
type Bell struct{ to atomic.Pointer[Queue] }

// Start implements [source.Source].
func (b *Bell) Start(_ context.Context, q Queue) error {
	b.to.Store(&q)
	return nil
}

// Ring has the object of that name looked at, and never waits. The namespace of an object
// that has none is empty.
func (b *Bell) Ring(namespace, name string) {
	if q := b.to.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
}

// Opening returns a source that starts the bell and then calls first once. first rings for
// objects that may be gone: no watch tells of them.
func (b *Bell) Opening(first func(context.Context) error) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		if err := b.Start(ctx, q); err != nil {
			return err
		}
		return first(ctx)
	})
}

// Workers returns the options of a controller with this many workers. What has failed is
// tried again after 100 ms, and then after twice the time before, up to 10 s.
func Workers(n int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: n,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second),
	}
}
