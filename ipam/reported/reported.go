// Package reported remembers which faults of an object were reported to people: each is reported
// once, as long as it lasts.
package reported

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Faults has the faults that the last check of each object has found. F is what is reported of a
// fault. The zero Faults is ready; it may be used concurrently.
type Faults[F comparable] struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[F]fault // guarded by mu
}

// fault says since when a fault is there, and whether it was reported.
type fault struct {
	since    time.Time
	reported bool
}

// New returns those of an object's faults that the last check had not found: they are to be
// reported. An object without faults is forgotten.
func (f *Faults[F]) New(object types.NamespacedName, faults ...F) []F {
	due, _ := f.Due(object, time.Time{}, func(F) time.Duration { return 0 }, faults...)
	return due
}

// Due is New for faults that are reported when they have lasted for a delay. wait is how long it is
// until the next of them is due, 0 if there is none.
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
		case at.reported:
		case left <= 0:
			at.reported = true
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
