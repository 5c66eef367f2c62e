package resolve

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/pause"
)

// A mirror has copies of objects that it follows by name, as long as somebody wants
// them and for some time after. So a node follows what its own pods use, however
// large the cluster is.
type mirror[K comparable, V any] struct {
	follow func(ctx context.Context, key K, changed func(v V, exists bool)) error
	// limit is how many objects are followed at most, and linger how long one is that
	// nobody wants any more.
	limit  int
	linger time.Duration
	wake   chan struct{} // there is somebody to follow

	mu      sync.Mutex
	entries map[K]*entry[V] // guarded by mu
}

// An entry is an object that a mirror follows.
type entry[V any] struct {
	wanted int       // by how many
	last   time.Time // when it was wanted or looked at last
	stop   context.CancelFunc
	seen   watched
	value  V
}

// watched is what a watch has shown of an object.
type watched uint8

// What a watch has shown.
const (
	unseen  watched = iota // the watch has shown nothing yet
	absent                 // there was none
	present                // there was one
)

func newMirror[K comparable, V any](limit int, linger time.Duration, follow func(context.Context, K, func(V, bool)) error) *mirror[K, V] {
	return &mirror[K, V]{follow: follow, limit: limit, linger: linger, wake: make(chan struct{}, 1), entries: map[K]*entry[V]{}}
}

// get returns what the watch of key has shown, and sees to it that there is one.
func (m *mirror[K, V]) get(key K) (V, watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryLocked(key)
	if e == nil {
		var none V
		return none, unseen
	}
	return e.value, e.seen
}

// want keeps key followed until there has been a drop for every want.
func (m *mirror[K, V]) want(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entryLocked(key); e != nil {
		e.wanted++
	}
}

// drop takes a want back. One that came when there was no room finds nothing.
func (m *mirror[K, V]) drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.entries[key]; ok {
		e.wanted = max(0, e.wanted-1)
		e.last = time.Now()
	}
}

// size returns how many objects are followed.
func (m *mirror[K, V]) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// entryLocked returns the entry of key, at first a new one, or nil where there is no
// room for it. m.mu must be held.
func (m *mirror[K, V]) entryLocked(key K) *entry[V] {
	e, ok := m.entries[key]
	if !ok {
		if len(m.entries) >= m.limit && !m.evictLocked() {
			return nil
		}
		e = &entry[V]{}
		m.entries[key] = e
		select {
		case m.wake <- struct{}{}:
		default: // it is awake
		}
	}
	e.last = time.Now()
	return e
}

// evictLocked makes room for one, by what has not been wanted for longest. It reports
// whether there was one such. m.mu must be held.
func (m *mirror[K, V]) evictLocked() bool {
	var oldest K
	found := false
	for key, e := range m.entries {
		if e.wanted == 0 && (!found || e.last.Before(m.entries[oldest].last)) {
			oldest, found = key, true
		}
	}
	if found {
		m.forgetLocked(oldest)
	}
	return found
}

// forgetLocked ends the watch of key. m.mu must be held.
func (m *mirror[K, V]) forgetLocked(key K) {
	if e := m.entries[key]; e.stop != nil {
		e.stop()
	}
	delete(m.entries, key)
}

// run follows what is wanted until ctx ends. It returns after every goroutine that it
// started has.
func (m *mirror[K, V]) run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	tick := time.NewTicker(m.linger / 4)
	defer tick.Stop()
	for {
		m.begin(ctx, &watches)
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case now := <-tick.C:
			m.expire(now)
		}
	}
}

// begin starts the watches of new entries.
func (m *mirror[K, V]) begin(ctx context.Context, watches *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, e := range m.entries {
		if e.stop != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		e.stop = stop
		watches.Go(func() {
			defer stop()
			for ctx.Err() == nil {
				if err := m.follow(ctx, key, func(v V, exists bool) { m.set(e, v, exists) }); err != nil {
					pause.For(ctx, time.Second)
				}
			}
		})
	}
}

func (m *mirror[K, V]) set(e *entry[V], v V, exists bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.value, e.seen = v, absent
	if exists {
		e.seen = present
	}
}

// expire ends the watches of what nobody has wanted for long.
func (m *mirror[K, V]) expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, e := range m.entries {
		if e.wanted == 0 && now.Sub(e.last) >= m.linger {
			m.forgetLocked(key)
		}
	}
}
