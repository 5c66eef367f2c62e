// Package trigger has code ask a reconciler to look at an object of which no watch tells: one
// whose grants have changed, say. It is not controller-runtime's source.Channel, whose sender
// waits for its reader: a controller that does not lead reads nothing, and handlers of its
// watches would stand still. It also has what reconcilers share: the form in which they list their
// watches, requests for what a cache lists, and options.
package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// Listed returns a request for each object of list, which it has a cache fill.
func Listed(ctx context.Context, cache client.Reader, log *slog.Logger, list client.ObjectList, where ...client.ListOption) (all []reconcile.Request) {
	// Nothing of the list is changed: it may share memory with the cache.
	if err := cache.List(ctx, list, append(where, client.UnsafeDisableDeepCopy)...); err != nil {
		log.ErrorContext(ctx, "objects cannot be listed from the cache", "list", fmt.Sprintf("%T", list), "error", err)
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error { // list is one
		if o, ok := item.(client.Object); ok {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return nil
	})
	return all
}

// Workers returns the options of a controller with this many workers. What has failed is
// tried again after 100 ms, and then after twice the time before, up to 10 s.
func Workers(n int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: n,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second),
	}
}
