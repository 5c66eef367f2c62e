package claims

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// recheckAfter is when grants that are still in use are checked again, in case the end of the use
// goes unnoticed.
const recheckAfter = 10 * time.Second

// release frees the grants of uid, and ends its ask, if there is no claim of that
// UID any more. Only a live read says so.
func (r *Reconciler) release(ctx context.Context, key grants.ClaimKey, uid protocol.UID) (time.Duration, error) {
	live, out, err := r.Live.ReadClaim(ctx, key.Namespace, key.Name)
	switch {
	case out == protocol.Done && live.UID == uid:
		// The cache is behind. It may come to know of the claim's end, if its watch
		// breaks, without ever having known of the claim: that is no news.
		return recheckAfter, nil
	case out != protocol.Done && out != protocol.NotFound:
		return 0, fmt.Errorf("read claim %s/%s: %w", key.Namespace, key.Name, err)
	}
	r.Broker.Withdraw(uid)
	held := r.Broker.Held(uid)
	ported, err := r.havePort(ctx, key, uid, held)
	if err != nil {
		return 0, err
	}
	freed, err := r.free(ctx, uid, held)
	switch {
	case err != nil:
		return 0, fmt.Errorf("free addresses of claim %s/%s: %w", key.Namespace, key.Name, err)
	case !freed:
		return recheckAfter, nil
	}
	if ported {
		r.Ports.Release(uid)
	}
	if len(held) == 0 {
		return 0, nil
	}
	r.Log.InfoContext(ctx, "claim's addresses freed", "claim", key.Namespace+"/"+key.Name, "addresses", addrsOf(held))
	return 0, nil
}

// freeSurplus frees grants of an existing claim that its status does not name: two controllers
// had each granted some. The status is written once, so nobody can come to use these. What cannot
// be freed yet is rechecked after a while: no event tells that a pool opens.
func (r *Reconciler) freeSurplus(ctx context.Context, c claim) (time.Duration, error) {
	live, out, err := r.Live.ReadClaim(ctx, c.key.Namespace, c.key.Name)
	if out == protocol.NotFound || out == protocol.Done && live.UID != c.uid {
		return 0, nil // release does it
	}
	if out != protocol.Done {
		return 0, fmt.Errorf("read claim %s/%s: %w", c.key.Namespace, c.key.Name, err)
	}
	if len(live.IPs) == 0 {
		return 0, nil
	}
	surplus := slices.DeleteFunc(r.Broker.Held(c.uid), func(h grants.Held) bool {
		return slices.ContainsFunc(live.IPs, func(p netip.Prefix) bool { return p.Addr() == h.Grant.Addr })
	})
	freed, err := r.free(ctx, c.uid, surplus)
	switch {
	case err != nil:
		return 0, fmt.Errorf("free surplus addresses of claim %s/%s: %w", c.key.Namespace, c.key.Name, err)
	case !freed:
		return recheckAfter, nil
	}
	return 0, nil
}

// free takes grants back that nobody is entitled to, unless a node uses the claim,
// or may be about to say that it does.
// It marks first, and then reads both uses: a node that creates its use after that
// reads the mark, and gives no address.
func (r *Reconciler) free(ctx context.Context, uid protocol.UID, held []grants.Held) (freed bool, err error) {
	if len(held) == 0 {
		return true, nil
	}
	if free, err := r.Broker.MayFree(ctx, held); !free {
		return false, err //nolint:wrapcheck // says what it is about
	}
	marked, err := r.Broker.Mark(ctx, held)
	if err != nil {
		return false, err //nolint:wrapcheck // says what it is about
	}
	return r.clear(ctx, uid, marked)
}

// clear removes grants that have been marked, unless a node uses the claim. Only after
// they were marked may the caller have read that nobody is entitled to them.
func (r *Reconciler) clear(ctx context.Context, uid protocol.UID, marked []grants.Held) (freed bool, err error) {
	for i := range 2 {
		switch _, out, err := r.Live.ReadSubLease(ctx, protocol.UseName(uid, i)); out {
		case protocol.NotFound:
		case protocol.Done:
			return false, nil
		default:
			return false, fmt.Errorf("read use %d: %w", i, err)
		}
	}
	return true, r.Broker.Clear(ctx, marked)
}
