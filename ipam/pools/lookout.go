package pools

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// lookout remembers what pools' numbers depend on beside their leases, so that it
// is looked up once for all pools, and since when seats have not changed: how long
// a node has been silent is told by the controller's own clock.
type lookout struct {
	at    time.Time
	last  surroundings
	beats map[string]beat
}

// beat is the last heartbeat of a node, and when it was first seen.
type beat struct {
	seat  protocol.UID
	turn  int64
	since time.Time
}

// surroundings returns what was looked up last, or looks again if that is old.
func (r *Reconciler) surroundings(ctx context.Context, now time.Time) (surroundings, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.around.at.IsZero() && now.Sub(r.around.at) < r.CountsEvery/2 {
		return r.around.last, nil
	}
	var subs v1alpha1.IPSubLeaseList
	if err := r.Cache.List(ctx, &subs, client.UnsafeDisableDeepCopy); err != nil {
		return surroundings{}, fmt.Errorf("list sub-leases: %w", err)
	}
	var seats coordination.LeaseList
	if err := r.Cache.List(ctx, &seats, client.InNamespace(r.SeatNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return surroundings{}, fmt.Errorf("list seats: %w", err)
	}
	next := surroundings{inUse: map[protocol.UID]bool{}}
	for i := range subs.Items {
		if u := subs.Items[i].Spec.Use; u != nil {
			next.inUse[protocol.UID(u.Claim.UID)] = true
		}
	}
	next.silent = r.around.hear(seatsOf(seats.Items), now)
	r.around.at, r.around.last = now, next
	return next, nil
}

// seatsOf returns the seats among the leases of their namespace.
func seatsOf(leases []coordination.Lease) []protocol.Seat {
	var seats []protocol.Seat
	for i := range leases {
		if seat, err := cluster.SeatOf(&leases[i]); err == nil && seat.Boot != "" {
			seats = append(seats, seat)
		}
	}
	return seats
}

// hear notes the seats' heartbeats, and returns the nodes whose seat has not
// changed for F.
func (l *lookout) hear(seats []protocol.Seat, now time.Time) (silent map[string]bool) {
	beats, silent := make(map[string]beat, len(seats)), map[string]bool{}
	for _, seat := range seats {
		node := string(seat.Node)
		b, ok := l.beats[node]
		if !ok || b.seat != seat.UID || b.turn != seat.Turn {
			b = beat{seat: seat.UID, turn: seat.Turn, since: now}
		}
		beats[node] = b
		silent[node] = seat.Fence > 0 && now.Sub(b.since) >= seat.Fence
	}
	l.beats = beats
	return silent
}

// oneLine writes joined errors as a sentence.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
