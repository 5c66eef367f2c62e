// Package told remembers which faults of an object people have been told of: each is told once, as
// long as it lasts.
package told

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Faults has the faults that the last look at each object has found. F is what people are told of
// one. The zero Faults is ready; it may be used concurrently.
type Faults[F comparable] struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[F]fault // guarded by mu
}

// fault says since when a fault is there, and whether people were told of it.
type fault struct {
	since time.Time
	told  bool
}

// New returns those of an object's faults that the last look had not found: people are to be told
// of them. An object without faults is forgotten.
func (f *Faults[F]) New(object types.NamespacedName, faults ...F) []F {
	due, _ := f.Due(object, time.Time{}, func(F) time.Duration { return 0 }, faults...)
	return due
}

// Due is New for faults of which people are told when they have lasted for their delay. wait is
// how long it is until the next of them is due, 0 if there is none.
func (f *Faults[F]) Due(object types.NamespacedName, now time.Time, delay func(F) time.Duration, faults ...F) (due []F, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, is := f.of[object], map[F]fault{}
	for _, x := range faults {
		if _, twice := is[x]; twice {
			continue
		}
		at, known := before[x]
		if !known {
			at.since = now
		}
		switch left := delay(x) - now.Sub(at.since); {
		case at.told:
		case left <= 0:
			at.told = true
			due = append(due, x)
		case wait == 0 || left < wait:
			wait = left
		}
		is[x] = at
	}
	if f.of == nil {
		f.of = map[types.NamespacedName]map[F]fault{}
	}
	if f.of[object] = is; len(is) == 0 {
		delete(f.of, object)
	}
	return due, wait
}

// Forget drops what is known of an object.
func (f *Faults[F]) Forget(object types.NamespacedName) { f.New(object) }
