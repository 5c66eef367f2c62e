package sched

import (
	"context"
	"slices"
	"sync"
)

// Locks is a mutex for each key that is in use. The zero value is ready.
type Locks[K comparable] struct {
	mu sync.Mutex
	// lines are, of each key that somebody has, the turns of those who wait, the first first;
	// guarded by mu. A turn that has come is closed.
	lines map[K][]chan struct{}
}

// Lock waits for key, or until ctx ends; then its error is ctx's cause. The caller unlocks by
// calling release.
func (l *Locks[K]) Lock(ctx context.Context, s Scheduler, key K) (release func(), err error) {
	l.mu.Lock()
	line, taken := l.lines[key]
	if !taken {
		if l.lines == nil {
			l.lines = map[K][]chan struct{}{}
		}
		l.lines[key] = nil
		l.mu.Unlock()
		return func() { l.pass(key) }, nil
	}
	turn := make(chan struct{})
	l.lines[key] = append(line, turn)
	l.mu.Unlock()
	if s.Wait(ctx, Forever, turn) == 0 {
		return func() { l.pass(key) }, nil
	}
	l.leave(key, turn)
	return nil, context.Cause(ctx)
}

// pass gives key to the first who waits.
func (l *Locks[K]) pass(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[key]
	if len(line) == 0 {
		delete(l.lines, key)
		return
	}
	close(line[0])
	l.lines[key] = line[1:]
}

// leave ends the wait of turn, which may have come meanwhile.
func (l *Locks[K]) leave(key K, turn chan struct{}) {
	l.mu.Lock()
	if i := slices.Index(l.lines[key], turn); i >= 0 {
		l.lines[key] = slices.Delete(l.lines[key], i, i+1)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.pass(key)
}
