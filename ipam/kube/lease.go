package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// CreateLease creates l and returns it with what the API server added.
func (a *API) CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	obj := ToLease(l)
	out, err := a.createWithin(ctx, obj, cmp.Or(a.LeaseWithin, CallTimeout))
	if out != protocol.Done {
		return protocol.Lease{}, out, err
	}
	return toOutcome(LeaseOf(obj))
}

// ReadLease reads a lease live.
func (a *API) ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	var obj v1alpha1.IPLease
	out, err := a.get(ctx, client.ObjectKey{Name: name}, &obj)
	if out != protocol.Done {
		return protocol.Lease{}, out, err
	}
	return toOutcome(LeaseOf(&obj))
}

// UpdateLease changes old into next by compare-and-swap on old's UID and
// Revision. Only the fields that differ are sent.
func (a *API) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	was, is := ToLease(old).Spec, ToLease(next).Spec
	spec := map[string]any{}
	if was.Protocol != is.Protocol {
		spec["protocol"] = is.Protocol
	}
	if was.Holder != is.Holder {
		spec["holder"] = map[string]any{"kind": is.Holder.Kind, "node": orNull(is.Holder.Node)}
	}
	if was.Store != is.Store {
		spec["store"] = orNull(is.Store)
	}
	if was.Term != is.Term {
		spec["term"] = is.Term
	}
	if was.Turn != is.Turn {
		spec["turn"] = is.Turn
	}
	if !reflect.DeepEqual(was.Ceded, is.Ceded) {
		spec["ceded"] = is.Ceded
	}
	if !reflect.DeepEqual(was.Grants, is.Grants) {
		spec["grants"] = is.Grants
	}
	obj := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: old.Name}}
	out, err := a.swap(ctx, obj, old.Meta, map[string]any{"spec": spec})
	if out != protocol.Done {
		return protocol.Lease{}, out, err
	}
	return toOutcome(LeaseOf(obj))
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// DeleteLease deletes the lease of exactly this name, UID and revision.
func (a *API) DeleteLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	return a.remove(ctx, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}, m)
}

// LeasesOfPool lists the leases of a pool's name live, whoever holds them.
func (a *API) LeasesOfPool(ctx context.Context, pool protocol.PoolName) ([]protocol.Lease, error) {
	leases, _, err := a.leases(ctx, client.MatchingFields{"spec.pool": string(pool)})
	return leases, err
}

// LeasesOfNode lists the leases that a node holds, live.
func (a *API) LeasesOfNode(ctx context.Context, node protocol.NodeName) ([]protocol.Lease, error) {
	leases, _, err := a.NodeLeases(ctx, node)
	return leases, err
}

// NodeLeases lists as LeasesOfNode does. It also returns the revision of the data that was
// listed, or none if there is no answer.
func (a *API) NodeLeases(ctx context.Context, node protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	return a.leases(ctx, client.MatchingFields{"spec.holder.node": string(node)})
}

// Leases lists all leases live.
func (a *API) Leases(ctx context.Context) ([]protocol.Lease, error) {
	leases, _, err := a.leases(ctx)
	return leases, err
}

func (a *API) leases(ctx context.Context, opts ...client.ListOption) ([]protocol.Lease, protocol.Revision, error) {
	var list v1alpha1.IPLeaseList
	if err := a.list(ctx, &list, opts...); err != nil {
		return nil, "", fmt.Errorf("list leases: %w", err)
	}
	leases := make([]protocol.Lease, 0, len(list.Items))
	var errs []error
	for i := range list.Items {
		l, err := LeaseOf(&list.Items[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		leases = append(leases, l)
	}
	// A lease that cannot be read is somebody's right all the same: a decision
	// that needs all of them must not be taken without it.
	return leases, protocol.Revision(list.ResourceVersion), errors.Join(errs...)
}

// PublishLease writes a lease's status. No right rests on it, so it carries the
// UID and no revision: the last writer wins.
func (a *API) PublishLease(ctx context.Context, name string, uid protocol.UID, p protocol.Publication) (protocol.Outcome, error) {
	fields := map[string]any{"used": p.Used, "free": p.Free, "published": metav1.NewTime(p.At), "allocations": nil}
	if len(p.Allocations) > 0 {
		fields["allocations"] = p.Allocations
	}
	if p.Answered != "" {
		fields["answered"] = p.Answered
	}
	obj := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return a.swapStatus(ctx, obj, protocol.Meta{Name: name, UID: uid}, map[string]any{"status": fields})
}

// toOutcome returns v with the outcome Done. If err says that the object could not be understood,
// the outcome is Unknown: the object exists, and nothing may be concluded from it.
func toOutcome[T any](v T, err error) (T, protocol.Outcome, error) {
	if err != nil {
		var zero T
		return zero, protocol.Unknown, err
	}
	return v, protocol.Done, nil
}

// A LeaseError is the error of a lease that cannot be read. The schema admits none; but it
// may have been another when that was written.
type LeaseError struct {
	Name    string
	Pool    protocol.PoolName
	PoolUID protocol.UID
	Err     error
}

func (e *LeaseError) Error() string { return fmt.Sprintf("read lease %s: %v", e.Name, e.Err) }

// Unwrap returns what is wrong.
func (e *LeaseError) Unwrap() error { return e.Err }

// LeaseErrors returns the leases that were listed and cannot be read, if that is all that
// err says.
func LeaseErrors(err error) (garbled []*LeaseError, ok bool) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil, err == nil
	}
	for _, one := range joined.Unwrap() {
		g, ok := errors.AsType[*LeaseError](one)
		if !ok {
			return nil, false
		}
		garbled = append(garbled, g)
	}
	return garbled, true
}

// LeaseOf reads an IPLease. Its error is a [*LeaseError].
func LeaseOf(o *v1alpha1.IPLease) (protocol.Lease, error) {
	var errs []error
	block, err := netip.ParsePrefix(o.Spec.Block)
	errs = append(errs, err)
	l := protocol.Lease{
		Meta: MetaOf(o), Protocol: int(o.Spec.Protocol),
		Pool: protocol.PoolName(o.Spec.Pool), PoolUID: protocol.UID(o.Spec.PoolUID), Block: block,
		Holder: protocol.Holder{Node: protocol.NodeName(o.Spec.Holder.Node), Cluster: o.Spec.Holder.Kind == v1alpha1.HolderCluster},
		Store:  protocol.StoreID(o.Spec.Store), Term: o.Spec.Term, Writes: o.Spec.Turn,
	}
	for _, c := range o.Spec.Ceded {
		addr, err := netip.ParseAddr(c)
		errs = append(errs, err)
		l.Ceded = append(l.Ceded, addr)
	}
	for _, g := range o.Spec.Grants {
		addr, err := netip.ParseAddr(g.Address)
		errs = append(errs, err)
		l.Grants = append(l.Grants, protocol.Grant{Addr: addr, Freeing: g.Freeing, Mark: protocol.Revision(g.Mark), To: protocol.Grantee{
			Kind: protocol.GranteeKind(g.To.Kind), UID: protocol.UID(g.To.UID), Namespace: g.To.Namespace, Name: g.To.Name, Node: protocol.NodeName(g.To.Node),
		}})
	}
	if st := o.Status; st.Published != nil {
		l.Published = protocol.Publication{Allocations: st.Allocations, At: st.Published.Time, Answered: st.Answered}
		if st.Used != nil {
			l.Published.Used = int(*st.Used)
		}
		if st.Free != nil {
			l.Published.Free = int(*st.Free)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return protocol.Lease{}, &LeaseError{Name: o.Name, Pool: l.Pool, PoolUID: l.PoolUID, Err: err}
	}
	return l, nil
}

// ToLease writes an IPLease.
func ToLease(l protocol.Lease) *v1alpha1.IPLease {
	o := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name},
		Spec: v1alpha1.IPLeaseSpec{
			Protocol: int32(l.Protocol), Pool: string(l.Pool), PoolUID: string(l.PoolUID), Block: l.Block.String(),
			Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: string(l.Holder.Node)},
			Store:  string(l.Store), Term: l.Term, Turn: l.Writes,
		},
	}
	if l.Holder.Cluster {
		o.Spec.Holder = v1alpha1.Holder{Kind: v1alpha1.HolderCluster}
	}
	for _, c := range l.Ceded {
		o.Spec.Ceded = append(o.Spec.Ceded, c.String())
	}
	for _, g := range l.Grants {
		o.Spec.Grants = append(o.Spec.Grants, v1alpha1.Grant{Address: g.Addr.String(), Freeing: g.Freeing, Mark: string(g.Mark), To: v1alpha1.Grantee{
			Kind: v1alpha1.GranteeKind(g.To.Kind), UID: string(g.To.UID), Namespace: g.To.Namespace, Name: g.To.Name, Node: string(g.To.Node),
		}})
	}
	return o
}
