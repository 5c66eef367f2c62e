package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readSeat reads a node's seat live, nil if there is none, and when it was last renewed.
// Of one that is garbled it returns what can be read, as the controller does.
func (s *session) readSeat(ctx context.Context, name protocol.NodeName) (*protocol.Seat, time.Time, error) {
	var o coordination.Lease
	switch err := s.client.Get(ctx, s.api.SeatKey(name), &o); {
	case apierrors.IsNotFound(err):
		return nil, time.Time{}, nil
	case err != nil:
		return nil, time.Time{}, fmt.Errorf("read the seat of node %s: %w", name, err)
	}
	seat, _ := kube.SeatOf(&o)
	return &seat, lastBeat(&o, s.now()), nil
}

// seatsIn are the seats of a list.
func seatsIn(l *coordination.LeaseList) (seats []coordination.Lease) {
	for i := range l.Items {
		if kube.IsSeat(&l.Items[i]) {
			seats = append(seats, l.Items[i])
		}
	}
	return seats
}

// seats returns the seats by their nodes: of one that is garbled what can be read, and
// from is told. The Beat of each is the one by [lastBeat].
func (s *session) seats(ctx context.Context, from reader) (map[protocol.NodeName]protocol.Seat, error) {
	all, err := read(ctx, from, &coordination.LeaseList{}, seatsIn, func(o *coordination.Lease) (protocol.Seat, error) {
		seat, err := kube.SeatOf(o)
		if err != nil {
			from.not(o, err)
		}
		seat.Beat = lastBeat(o, s.now())
		return seat, nil
	}, client.InNamespace(s.api.SeatNamespace))
	seats := make(map[protocol.NodeName]protocol.Seat, len(all))
	for _, seat := range all {
		seats[seat.Node] = seat
	}
	return seats, err
}

// clockRoom is how far two clocks that are set right may be apart.
const clockRoom = time.Minute

// lastBeat is when a seat was last renewed: as the agent said, by its node's clock, or
// as the API server noted, by its own, whichever is later. What the agent says is left
// out where it lies in the future and there is the other: that node's clock is wrong.
// now is the API server's.
func lastBeat(o *coordination.Lease, now time.Time) time.Time {
	var noted, said time.Time
	for _, m := range o.ManagedFields {
		if m.Time != nil && m.Time.After(noted) && m.FieldsV1 != nil && strings.Contains(m.FieldsV1.String(), `"f:renewTime"`) {
			noted = m.Time.Time
		}
	}
	if o.Spec.RenewTime != nil {
		said = o.Spec.RenewTime.Time
	}
	if said.After(noted) && (noted.IsZero() || !said.After(now.Add(clockRoom))) {
		return said
	}
	return noted
}
