package trigger

import (
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// A Watch says which events of objects of one kind wake a reconciler, and for which objects. A
// reconciler lists its watches, so that the simulation wakes it by the same ones.
type Watch struct {
	Of client.Object
	To handler.EventHandler
	If predicate.Predicate // nil: every event
}

// Add has a controller that is being built wait for watches.
func Add(to *builder.Builder, watches []Watch) *builder.Builder {
	for _, w := range watches {
		if w.If == nil {
			to = to.Watches(w.Of, w.To)
		} else {
			to = to.Watches(w.Of, w.To, builder.WithPredicates(w.If))
		}
	}
	return to
}
