package agent

import (
	"context"
	"sync"
)

// keyedLock is a mutex for each key that is in use. The zero value is ready.
type keyedLock[K comparable] struct {
	mu   sync.Mutex
	held map[K]*keyHolder // guarded by mu
}

type keyHolder struct {
	waiting int           // guarded by keyedLock.mu; holder included
	token   chan struct{} // full while nobody holds the key
}

// lock waits for key, or until ctx ends. The caller unlocks by calling release.
func (l *keyedLock[K]) lock(ctx context.Context, key K) (release func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[K]*keyHolder{}
	}
	h, ok := l.held[key]
	if !ok {
		h = &keyHolder{token: make(chan struct{}, 1)}
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

func (l *keyedLock[K]) leave(key K, h *keyHolder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.waiting--; h.waiting == 0 {
		delete(l.held, key)
	}
}
