package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// CreateSubLease creates s and returns it with what the API server added.
func (a *API) CreateSubLease(ctx context.Context, s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	obj := ToSubLease(s)
	out, err := a.create(ctx, obj)
	if out != protocol.Done {
		return protocol.SubLease{}, out, err
	}
	return toOutcome(SubLeaseOf(obj))
}

// ReadSubLease reads a sub-lease live.
func (a *API) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	var obj v1alpha1.IPSubLease
	out, err := a.get(ctx, client.ObjectKey{Name: name}, &obj)
	if out != protocol.Done {
		return protocol.SubLease{}, out, err
	}
	return toOutcome(SubLeaseOf(&obj))
}

// UpdateSubLease changes old into next by compare-and-swap on old's UID and
// Revision: term, turn and, of a use, pod and interface.
func (a *API) UpdateSubLease(ctx context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	spec := map[string]any{}
	if old.Protocol != next.Protocol {
		spec["protocol"] = next.Protocol
	}
	if old.Term != next.Term {
		spec["term"] = next.Term
	}
	if old.Writes != next.Writes {
		spec["turn"] = next.Writes
	}
	if old.Use != nil && next.Use != nil && *old.Use != *next.Use {
		use := toUse(next.Use)
		pod := map[string]any{"namespace": use.Pod.Namespace, "name": use.Pod.Name, "uid": use.Pod.UID, "owner": nil}
		if use.Pod.Owner != nil {
			pod["owner"] = use.Pod.Owner
		}
		spec["use"] = map[string]any{"pod": pod, "interface": use.Interface}
	}
	obj := &v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: old.Name}}
	out, err := a.swap(ctx, obj, old.Meta, map[string]any{"spec": spec})
	if out != protocol.Done {
		return protocol.SubLease{}, out, err
	}
	return toOutcome(SubLeaseOf(obj))
}

// DeleteSubLease deletes the sub-lease of exactly this name, UID and revision.
func (a *API) DeleteSubLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	return a.remove(ctx, &v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}, m)
}

// SubLeasesOfNode lists a node's sub-leases live.
func (a *API) SubLeasesOfNode(ctx context.Context, node protocol.NodeName) ([]protocol.SubLease, error) {
	subs, _, err := a.NodeSubLeases(ctx, node)
	return subs, err
}

// NodeSubLeases lists as SubLeasesOfNode does. It also returns the revision of the data that was
// listed, or none if there is no answer.
func (a *API) NodeSubLeases(ctx context.Context, node protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error) {
	return a.subLeases(ctx, client.MatchingFields{"spec.node": string(node)})
}

// SubLeases lists all sub-leases live.
func (a *API) SubLeases(ctx context.Context) ([]protocol.SubLease, error) {
	subs, _, err := a.subLeases(ctx)
	return subs, err
}

func (a *API) subLeases(ctx context.Context, opts ...client.ListOption) ([]protocol.SubLease, protocol.Revision, error) {
	var list v1alpha1.IPSubLeaseList
	if err := a.list(ctx, &list, opts...); err != nil {
		return nil, "", fmt.Errorf("list sub-leases: %w", err)
	}
	subs := make([]protocol.SubLease, 0, len(list.Items))
	var errs []error
	for i := range list.Items {
		s, err := SubLeaseOf(&list.Items[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		subs = append(subs, s)
	}
	return subs, protocol.Revision(list.ResourceVersion), errors.Join(errs...)
}

// SubLeaseOf reads an IPSubLease.
func SubLeaseOf(o *v1alpha1.IPSubLease) (protocol.SubLease, error) {
	s := protocol.SubLease{
		Meta: MetaOf(o), Protocol: int(o.Spec.Protocol), Node: protocol.NodeName(o.Spec.Node),
		Store: protocol.StoreID(o.Spec.Store), Term: o.Spec.Term, Writes: o.Spec.Turn,
	}
	if u := o.Spec.Use; u != nil {
		s.Use = &protocol.Use{
			Claim: protocol.ClaimRef{Namespace: u.Claim.Namespace, Name: u.Claim.Name, UID: protocol.UID(u.Claim.UID)},
			Pod:   podOf(u.Pod), Interface: u.Interface,
		}
	}
	if r := o.Spec.Request; r != nil {
		s.Request = &protocol.Request{Pod: podOf(r.Pod), Interface: r.Interface}
		for _, w := range r.Wants {
			s.Request.Wants = append(s.Request.Wants, protocol.Wanted{Pool: protocol.PoolName(w.Pool), Ranges: w.Ranges})
		}
	}
	for _, g := range o.Status.Granted {
		addr, err := netip.ParseAddr(g.Address)
		if err != nil {
			return protocol.SubLease{}, fmt.Errorf("read sub-lease %s: %w", o.Name, err)
		}
		s.Granted = append(s.Granted, protocol.Granted{Addr: addr, Lease: g.Lease})
	}
	if r := o.Status.Refused; r != nil {
		s.Refused = &protocol.Refusal{Reason: r.Reason, Message: r.Message}
	}
	return s, nil
}

// AnswerSubLease writes the controller's answer, s.Granted or s.Refused, into the
// status of a request, by compare-and-swap on s's UID and Revision.
func (a *API) AnswerSubLease(ctx context.Context, s protocol.SubLease) (protocol.Outcome, error) {
	fields := map[string]any{}
	if len(s.Granted) > 0 {
		granted := make([]v1alpha1.Granted, len(s.Granted))
		for i, g := range s.Granted {
			granted[i] = v1alpha1.Granted{Address: g.Addr.String(), Lease: g.Lease}
		}
		fields["granted"] = granted
	}
	if s.Refused != nil {
		fields["refused"] = v1alpha1.Refusal{Reason: s.Refused.Reason, Message: s.Refused.Message}
	}
	obj := &v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	return a.swapStatus(ctx, obj, s.Meta, map[string]any{"status": fields})
}

// ToSubLease writes an IPSubLease.
func ToSubLease(s protocol.SubLease) *v1alpha1.IPSubLease {
	o := &v1alpha1.IPSubLease{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: v1alpha1.IPSubLeaseSpec{
			Protocol: int32(s.Protocol), Node: string(s.Node), Store: string(s.Store), Term: s.Term, Turn: s.Writes, Use: toUse(s.Use),
		},
	}
	if r := s.Request; r != nil {
		o.Spec.Request = &v1alpha1.Request{Pod: toPod(r.Pod), Interface: r.Interface}
		for _, w := range r.Wants {
			o.Spec.Request.Wants = append(o.Spec.Request.Wants, v1alpha1.Want{Pool: string(w.Pool), Ranges: w.Ranges})
		}
	}
	return o
}

func toUse(u *protocol.Use) *v1alpha1.Use {
	if u == nil {
		return nil
	}
	return &v1alpha1.Use{
		Claim: v1alpha1.ClaimReference{Namespace: u.Claim.Namespace, Name: u.Claim.Name, UID: string(u.Claim.UID)},
		Pod:   toPod(u.Pod), Interface: u.Interface,
	}
}

func podOf(p v1alpha1.PodReference) protocol.PodRef {
	ref := protocol.PodRef{Namespace: p.Namespace, Name: p.Name, UID: protocol.UID(p.UID)}
	if p.Owner != nil {
		ref.Owner = protocol.OwnerRef{Kind: p.Owner.Kind, Name: p.Owner.Name, UID: protocol.UID(p.Owner.UID)}
	}
	return ref
}

func toPod(p protocol.PodRef) v1alpha1.PodReference {
	ref := v1alpha1.PodReference{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
	if p.Owner.UID != "" {
		ref.Owner = &v1alpha1.OwnerReference{Kind: p.Owner.Kind, Name: p.Owner.Name, UID: string(p.Owner.UID)}
	}
	return ref
}
