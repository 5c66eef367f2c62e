// Package keylock has a mutex for each of many keys.
package keylock

import (
	"context"
	"sync"
)

// Locks is a mutex for each key that is in use. The zero value is ready.
type Locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*holder // guarded by mu
}

type holder struct {
	waiting int           // guarded by Locks.mu; holder included
	token   chan struct{} // full while nobody holds the key
}

// Lock waits for key, or until ctx ends. The caller unlocks by calling release.
func (l *Locks[K]) Lock(ctx context.Context, key K) (release func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[K]*holder{}
	}
	h, ok := l.held[key]
	if !ok {
		h = &holder{token: make(chan struct{}, 1)}
		h.token <- struct{}{}
		l.held[key] = h
	}
	h.waiting++
	l.mu.Unlock()
	select {
	case <-h.token:
		return func() { h.token <- struct{}{}; l.leave(key, h) }, nil
	case <-ctx.Done():
		l.leave(key, h)
		return nil, context.Cause(ctx)
	}
}

func (l *Locks[K]) leave(key K, h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.waiting--; h.waiting == 0 {
		delete(l.held, key)
	}
}
