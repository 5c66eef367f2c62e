package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// release drops the grants to uid, and ends its ask, if there is no sub-lease of
// that UID any more. Only a live read says so.
func (r *Reconciler) release(ctx context.Context, name string, uid protocol.UID) (time.Duration, error) {
	_, there, err := r.readLive(ctx, protocol.SubLease{Meta: protocol.Meta{Name: name, UID: uid}})
	switch {
	case err != nil:
		return 0, err
	case there:
		// The cache is behind. It may come to know of the sub-lease's end, if its watch
		// breaks, without ever having known of the sub-lease: that is no news.
		return recheckAfter, nil
	}
	r.Broker.Withdraw(uid)
	return r.drop(ctx, name, r.Broker.Held(uid))
}

// drop removes grants that nobody can come to use: their sub-lease is gone, or its
// status names others, as a live read has shown.
func (r *Reconciler) drop(ctx context.Context, name string, held []grants.Held) (time.Duration, error) {
	if len(held) == 0 {
		return 0, nil
	}
	if free, err := r.Broker.MayFree(ctx, held); !free {
		return recheckAfter, err //nolint:wrapcheck // says what it is about
	}
	if err := r.Broker.Drop(ctx, held); err != nil {
		return 0, fmt.Errorf("free addresses of request %s: %w", name, err)
	}
	return 0, nil
}

// giveBack frees part of what a request wants, where the rest cannot be had: first
// the mark, then a fencing write of the sub-lease, then the grant. Whoever writes an
// answer has seen each grant live, since it read the version of the sub-lease that
// its write names: it sees the mark, or its write fails.
func (r *Reconciler) giveBack(ctx context.Context, s protocol.SubLease, held []grants.Held) (time.Duration, error) {
	if free, err := r.Broker.MayFree(ctx, held); !free {
		return recheckAfter, err //nolint:wrapcheck // says what it is about
	}
	marked, err := r.Broker.Mark(ctx, held)
	if err != nil {
		return 0, fmt.Errorf("request %s: give addresses back: %w", s.Name, err)
	}
	next := s
	next.Writes++
	switch _, out, err := r.API.UpdateSubLease(ctx, s, next); out {
	case protocol.Done:
	case protocol.NotFound, protocol.Conflict:
		return 0, nil // it has changed: that change brings it here again
	default:
		return 0, fmt.Errorf("request %s: give addresses back: %w", s.Name, err)
	}
	if err := r.Broker.Clear(ctx, marked); err != nil {
		return 0, fmt.Errorf("request %s: give addresses back: %w", s.Name, err)
	}
	return 0, nil
}
