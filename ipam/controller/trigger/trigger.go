// Package trigger has code ask a reconciler to look at an object of which no watch tells: one
// whose grants have changed, say. It is not controller-runtime's source.Channel, whose sender
// waits for its reader: a controller that does not lead reads nothing, and handlers of its
// watches would stand still. It also has the form in which reconcilers list their watches, and the
// options that they share.
package trigger

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

// A Source is a source of a controller's work that code fires. Before the controller starts,
// Fire does nothing, so its user has all objects reconciled on the start. The zero Source is
// ready; it may be used concurrently.
type Source struct{ to atomic.Pointer[Queue] }

// Start implements [source.Source].
func (s *Source) Start(_ context.Context, q Queue) error {
	s.to.Store(&q)
	return nil
}

// Fire has the object of that name reconciled, and never waits. The namespace of an object
// that has none is empty.
func (s *Source) Fire(namespace, name string) {
	if q := s.to.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
}

// First returns a source that starts s and then calls first once. first fires s for objects
// that may be gone: no watch tells of them.
func (s *Source) First(first func(context.Context) error) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		if err := s.Start(ctx, q); err != nil {
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
