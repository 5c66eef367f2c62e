package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Annotations of a seat. Its holderIdentity is the store's ID, its
// leaseTransitions the term, its leaseDurationSeconds F, its renewTime the last
// heartbeat by the node's wall clock.
const (
	annotationNodeUID = "tenure.dev/node-uid"
	annotationMachine = "tenure.dev/machine"
	annotationBoot    = "tenure.dev/boot"
	annotationTurn    = "tenure.dev/turn"
	annotationRecalls = "tenure.dev/recalls"
	annotationFormer  = "tenure.dev/former"
	annotationRestore = "tenure.dev/restored"
)

// ReadSeat reads a node's seat live.
func (a *API) ReadSeat(ctx context.Context, node protocol.NodeName) (protocol.Seat, protocol.Outcome, error) {
	var obj coordination.Lease
	out, err := a.get(ctx, a.SeatKey(node), &obj)
	if out != protocol.Done {
		return protocol.Seat{}, out, err
	}
	return decided(SeatOf(&obj))
}

// CreateSeat creates a node's seat.
func (a *API) CreateSeat(ctx context.Context, s protocol.Seat) (protocol.Seat, protocol.Outcome, error) {
	obj := &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: string(s.Node), Namespace: a.SeatNamespace, Annotations: seatAnnotations(s)},
		Spec:       seatSpec(s),
	}
	out, err := a.create(ctx, obj)
	if out != protocol.Done {
		return protocol.Seat{}, out, err
	}
	return decided(SeatOf(obj))
}

// UpdateSeat writes a seat by compare-and-swap on its UID and Revision.
func (a *API) UpdateSeat(ctx context.Context, s protocol.Seat) (protocol.Seat, protocol.Outcome, error) {
	obj := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: string(s.Node), Namespace: a.SeatNamespace}}
	out, err := a.swap(ctx, obj, s.Meta, map[string]any{
		"metadata": map[string]any{"annotations": seatAnnotations(s)},
		"spec":     seatPatch(s),
	})
	if out != protocol.Done {
		return protocol.Seat{}, out, err
	}
	return decided(SeatOf(obj))
}

// DeleteSeat deletes the seat of exactly this name, UID and revision.
func (a *API) DeleteSeat(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	return a.remove(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: a.SeatNamespace}}, m)
}

// Seats lists all seats live.
func (a *API) Seats(ctx context.Context) ([]protocol.Seat, error) {
	var list coordination.LeaseList
	if err := a.list(ctx, &list, client.InNamespace(a.SeatNamespace)); err != nil {
		return nil, fmt.Errorf("list seats: %w", err)
	}
	var seats []protocol.Seat
	for i := range list.Items {
		if !IsSeat(&list.Items[i]) {
			continue
		}
		seat, err := SeatOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		seats = append(seats, seat)
	}
	return seats, nil
}

// IsSeat tells a seat from another lease of its namespace, such as the one by which
// a controller leads.
func IsSeat(o *coordination.Lease) bool {
	_, ok := o.Annotations[annotationBoot]
	return ok
}

// SeatKey returns where a node's seat is.
func (a *API) SeatKey(node protocol.NodeName) client.ObjectKey {
	return client.ObjectKey{Namespace: a.SeatNamespace, Name: string(node)}
}

func seatAnnotations(s protocol.Seat) map[string]string {
	return map[string]string{
		annotationNodeUID: string(s.NodeUID), annotationMachine: s.Machine, annotationBoot: s.Boot,
		annotationTurn: strconv.FormatInt(s.Turn, 10), annotationRestore: s.Restored,
		annotationRecalls: listText(s.Recalls), annotationFormer: listText(s.Former),
	}
}

// listText returns list as JSON, and no text for an empty one.
func listText[T any](list []T) string {
	if len(list) == 0 {
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil { // strings and numbers
		panic(fmt.Sprintf("encode a seat's annotation: %v", err))
	}
	return string(text)
}

func seatSpec(s protocol.Seat) coordination.LeaseSpec {
	store, term, beat := string(s.Store), int32(s.Term), metav1.NewMicroTime(s.Beat)
	spec := coordination.LeaseSpec{HolderIdentity: &store, LeaseTransitions: &term, RenewTime: &beat}
	if f := int32(s.Fence / time.Second); f > 0 {
		spec.LeaseDurationSeconds = &f
	}
	return spec
}

// seatPatch is seatSpec for a merge patch, in which an absent field stays as it is.
func seatPatch(s protocol.Seat) map[string]any {
	spec := seatSpec(s)
	patch := map[string]any{
		"holderIdentity": spec.HolderIdentity, "leaseTransitions": spec.LeaseTransitions, "renewTime": spec.RenewTime, "leaseDurationSeconds": nil,
	}
	if spec.LeaseDurationSeconds != nil {
		patch["leaseDurationSeconds"] = *spec.LeaseDurationSeconds
	}
	return patch
}

// SeatOf reads a seat.
func SeatOf(o *coordination.Lease) (protocol.Seat, error) {
	s := protocol.Seat{
		Meta: metaOf(o), Node: protocol.NodeName(o.Name), NodeUID: protocol.UID(o.Annotations[annotationNodeUID]),
		Machine: o.Annotations[annotationMachine], Boot: o.Annotations[annotationBoot], Restored: o.Annotations[annotationRestore],
	}
	if turn := o.Annotations[annotationTurn]; turn != "" {
		n, err := strconv.ParseInt(turn, 10, 64)
		if err != nil {
			return protocol.Seat{}, fmt.Errorf("read seat %s: annotation %s: %w", o.Name, annotationTurn, err)
		}
		s.Turn = n
	}
	for name, list := range map[string]any{annotationRecalls: &s.Recalls, annotationFormer: &s.Former} {
		raw := o.Annotations[name]
		if raw == "" {
			continue
		}
		if err := json.Unmarshal([]byte(raw), list); err != nil {
			return protocol.Seat{}, fmt.Errorf("read seat %s: annotation %s: %w", o.Name, name, err)
		}
	}
	if o.Spec.HolderIdentity != nil {
		s.Store = protocol.StoreID(*o.Spec.HolderIdentity)
	}
	if o.Spec.LeaseTransitions != nil {
		s.Term = int64(*o.Spec.LeaseTransitions)
	}
	if o.Spec.LeaseDurationSeconds != nil {
		s.Fence = time.Duration(*o.Spec.LeaseDurationSeconds) * time.Second
	}
	if o.Spec.RenewTime != nil {
		s.Beat = o.Spec.RenewTime.Time
	}
	return s, nil
}
