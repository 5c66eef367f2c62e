package sightings

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	// latelyKept is for how long an ADD tells that another IPAM is done with its pod, and a DEL
	// that the address which the pod still shows was Tenure's.
	latelyKept = 5 * time.Minute
	// latelyFew is how many are remembered whatever their age.
	latelyFew = 1024
)

// lately has what happened a while ago at most. The zero value is ready.
type lately[K comparable] struct {
	mu   sync.Mutex
	last map[K]protocol.Instant // guarded by mu
	most int                    // guarded by mu; how many before those that are older are dropped
}

// note notes what happens now.
func (l *lately[K]) note(what K, now protocol.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) >= l.most {
		kept := map[K]protocol.Instant{}
		for k, at := range l.last {
			if now.Since(at) < latelyKept {
				kept[k] = at
			}
		}
		// Twice as many: what is dropped has then paid for the walk over those that are kept.
		l.last, l.most = kept, max(latelyFew, 2*len(kept))
	}
	l.last[what] = now
}

// all returns what has happened of late, the last first.
func (l *lately[K]) all(now protocol.Instant) (all []K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, at := range l.last {
		if now.Since(at) < latelyKept {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(x, y K) int { return cmp.Compare(now.Since(l.last[x]), now.Since(l.last[y])) })
	return all
}
