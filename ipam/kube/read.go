package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ReadPool reads what the protocol needs of a pool, live.
func (a *API) ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	var obj v1alpha1.IPPool
	out, err := a.get(ctx, client.ObjectKey{Name: string(name)}, &obj)
	if out != protocol.Done {
		return protocol.Pool{}, out, err
	}
	return PoolOf(&obj), out, nil
}

// ReadIPPool reads a whole pool live.
func (a *API) ReadIPPool(ctx context.Context, name protocol.PoolName) (*v1alpha1.IPPool, protocol.Outcome, error) {
	var obj v1alpha1.IPPool
	out, err := a.get(ctx, client.ObjectKey{Name: string(name)}, &obj)
	return &obj, out, err
}

// ReadReservation reads a reservation live.
func (a *API) ReadReservation(ctx context.Context, name string) (*v1alpha1.IPReservation, protocol.Outcome, error) {
	var obj v1alpha1.IPReservation
	out, err := a.get(ctx, client.ObjectKey{Name: name}, &obj)
	return &obj, out, err
}

// Pools lists what the protocol needs of all pools, live.
func (a *API) Pools(ctx context.Context) ([]protocol.Pool, error) {
	all, err := a.IPPools(ctx)
	pools := make([]protocol.Pool, len(all))
	for i := range all {
		pools[i] = PoolOf(&all[i])
	}
	return pools, err
}

// IPPools lists all pools whole, live.
func (a *API) IPPools(ctx context.Context) ([]v1alpha1.IPPool, error) {
	var list v1alpha1.IPPoolList
	if err := a.list(ctx, &list); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	return list.Items, nil
}

// DomainPools lists the pools of the default domain, the oldest first. The API server answers from
// its cache, which may be a moment behind.
func (a *API) DomainPools(ctx context.Context) ([]poolspec.DomainPool, error) {
	var list v1alpha1.IPPoolList
	if err := a.list(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	return DomainPools(list.Items), nil
}

// DomainPools returns those of all that are of [poolspec.DefaultDomain], the oldest first.
func DomainPools(all []v1alpha1.IPPool) []poolspec.DomainPool {
	var of []*v1alpha1.IPPool
	for i := range all {
		if poolspec.InDefaultDomain(all[i].Name, all[i].Spec.Domain) {
			of = append(of, &all[i])
		}
	}
	slices.SortFunc(of, func(a, b *v1alpha1.IPPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	pools := make([]poolspec.DomainPool, len(of))
	for i, p := range of {
		pools[i].Name = p.Name
		for _, r := range p.Spec.Ranges {
			if cidr, err := netip.ParsePrefix(r.CIDR); err == nil {
				pools[i].CIDRs = append(pools[i].CIDRs, cidr.Masked())
			}
		}
	}
	return pools
}

// Revision returns the revision that the API server's data have now.
func (a *API) Revision(ctx context.Context) (protocol.Revision, error) {
	var list v1alpha1.IPPoolList
	if err := a.list(ctx, &list, client.Limit(1)); err != nil {
		return "", err
	}
	return protocol.Revision(list.ResourceVersion), nil
}

// Epoch returns the epoch of an IPPool; empty for one that was never opened, and never waited.
func Epoch(o *v1alpha1.IPPool) string { return max(o.Status.Opening, o.Status.Waited) }

// PoolOf reads what the protocol needs of an IPPool.
func PoolOf(o *v1alpha1.IPPool) protocol.Pool {
	text := PoolText(o)
	text.PerNode = nil                     // what the subnets have the ranges have, and it is read at each event
	shape, err := poolspec.ParsePool(text) // of one that cannot be read, the controller says so, and closes it
	p := protocol.Pool{
		Meta: MetaOf(o), Open: o.Status.Leasing == v1alpha1.LeasingOpen, Epoch: cmp.Or(Epoch(o), protocol.EpochAfter(o.CreationTimestamp.Time)),
		Generation: o.Generation, Edited: err != nil || o.Status.ObservedGeneration > 0 && o.Status.ObservedGeneration < o.Generation,
		Confirmed: o.Spec.TakeOver == v1alpha1.TakeOverConfirmed,
	}
	for _, r := range shape.Ranges() {
		p.Ranges = append(p.Ranges, netipx.IPRangeFrom(r.Start, r.End))
	}
	if b := o.Status.BlockPrefixLengths; b != nil {
		if b.IPv4 != nil {
			p.Bits4 = int(*b.IPv4)
		}
		if b.IPv6 != nil {
			p.Bits6 = int(*b.IPv6)
		}
	}
	return p
}

// Restored reports whether a pool is closed because the API server's data went back in time.
func Restored(o *v1alpha1.IPPool) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.PoolReady)
	return c != nil && c.Reason == v1alpha1.ReasonRestored
}

// ReuseAfterOf returns for how long freed addresses of an IPPool are to rest. Admission has refused
// what does not parse.
func ReuseAfterOf(o *v1alpha1.IPPool) time.Duration {
	d, err := time.ParseDuration(o.Spec.ReuseAfter)
	if err != nil {
		return 0
	}
	return d
}

// PoolText returns the ranges of an IPPool as text, for [poolspec.ParsePool], without what
// its status withholds: that belongs to nobody yet. The gateways of its status belong to routers.
func PoolText(o *v1alpha1.IPPool) poolspec.PoolText {
	t := SpecText(o).Without(o.Status.Withheld)
	t.Gateways = o.Status.Gateways
	return t
}

// GivenAway reports whether an IPPool was stopped, and is not open again: another IPAM may have
// given any of its addresses since. It gives none but to who has it already.
func GivenAway(o *v1alpha1.IPPool) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.PoolWithheld)
	return o.Status.Leasing != v1alpha1.LeasingOpen && c != nil && c.Reason == v1alpha1.ReasonGivenAway
}

// Unpooled returns, as text, what the pool's status takes away from its spec. While that and the
// generation stay the same, [PoolText] does.
func Unpooled(o *v1alpha1.IPPool) string {
	return strings.Join(o.Status.Withheld, ",") + ";" + strings.Join(o.Status.Gateways, ",")
}

// SpecText returns the ranges of an IPPool as text, as its spec has them.
func SpecText(o *v1alpha1.IPPool) poolspec.PoolText {
	var t poolspec.PoolText
	for _, r := range o.Spec.Ranges {
		t.Ranges = append(t.Ranges, poolspec.RangeText{
			CIDR: r.CIDR, Start: r.Start, End: r.End, Exclude: r.Exclude, StaticOnly: r.StaticOnly, Gateway: r.Gateway,
			NodeSelector: selectorOf(r.NodeSelector),
		})
	}
	if o.Spec.BlockSize != nil {
		t.BlockSize = int(*o.Spec.BlockSize)
	}
	if p := o.Spec.PerNode; p != nil {
		t.PerNode = &poolspec.PerNodeText{PrefixLength: int(p.PrefixLength), Gateway: p.Gateway != v1alpha1.PerNodeGatewayNone}
		for _, pin := range p.Pinned {
			t.PerNode.Pinned = append(t.PerNode.Pinned, poolspec.Pin{Node: pin.Node, CIDR: pin.CIDR})
		}
	}
	return t
}

// ReadClaim reads a claim live.
func (a *API) ReadClaim(ctx context.Context, namespace, name string) (protocol.Claim, protocol.Outcome, error) {
	var obj ipamclaims.IPAMClaim
	out, err := a.get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &obj)
	if out != protocol.Done {
		return protocol.Claim{}, out, err
	}
	return ClaimOf(&obj), out, nil
}

// VMLabel is the label by which KubeVirt's controller names a claim's virtual
// machine.
const VMLabel = "kubevirt.io/vm"

// LauncherLabel is the label of the pods of virtual machines, and Launcher its value.
const (
	LauncherLabel = "kubevirt.io"
	Launcher      = "virt-launcher"
)

// MovingLabel is the label that KubeVirt gives to a pod to which a virtual machine moves while it
// runs.
const MovingLabel = "kubevirt.io/migrationJobUID"

// ConditionIPsAllocated is the type of a claim's condition, customary since
// OVN-Kubernetes.
const ConditionIPsAllocated = "IPsAllocated"

// ClaimOf reads an IPAMClaim. Elements of its status that are no CIDRs are left
// out: the status is a copy, and whoever needs it compares it with the leases.
func ClaimOf(o *ipamclaims.IPAMClaim) protocol.Claim {
	c := protocol.Claim{
		Meta: MetaOf(o), Namespace: o.Namespace, Network: o.Spec.Network, Interface: o.Spec.Interface,
		Owner: OwnerOf(o), VM: o.Labels[VMLabel], StatefulSet: o.Labels[workload.LabelSet], ByName: protocol.UID(o.Labels[workload.LabelOwner]),
	}
	for _, ip := range o.Status.IPs {
		if p, err := netip.ParsePrefix(ip); err == nil {
			c.IPs = append(c.IPs, p)
		}
	}
	if cond := meta.FindStatusCondition(o.Status.Conditions, ConditionIPsAllocated); cond != nil && cond.Status == metav1.ConditionFalse {
		c.Failed = cond.Reason + ": " + cond.Message
	}
	return c
}

// OwnerOf returns the controller of an object, or its first owner where none is
// marked as the controller.
func OwnerOf(o metav1.Object) protocol.OwnerRef {
	owners := o.GetOwnerReferences()
	if len(owners) == 0 {
		return protocol.OwnerRef{}
	}
	i := max(0, slices.IndexFunc(owners, func(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }))
	return protocol.OwnerRef{Kind: owners[i].Kind, Name: owners[i].Name, UID: protocol.UID(owners[i].UID)}
}

// PodRefOf names a pod and its controller.
func PodRefOf(o metav1.Object) protocol.PodRef {
	return protocol.PodRef{Namespace: o.GetNamespace(), Name: o.GetName(), UID: protocol.UID(o.GetUID()), Owner: OwnerOf(o)}
}

// ReadNode reads what the protocol needs of a Node live.
func (a *API) ReadNode(ctx context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	var obj corev1.Node
	out, err := a.get(ctx, client.ObjectKey{Name: string(name)}, &obj)
	if out != protocol.Done {
		return protocol.Node{}, out, err
	}
	return NodeOf(&obj), out, nil
}

// LabelsOf reads those labels of a Node that keys name.
func LabelsOf(o *corev1.Node, keys []string) poolspec.NodeLabels {
	all := poolspec.NodeLabels{}
	for _, key := range keys {
		all[key] = nil
		if value, has := o.Labels[key]; has {
			all[key] = &value
		}
	}
	return all
}

// NodeOf reads what the protocol needs of a Node.
func NodeOf(o *corev1.Node) protocol.Node {
	off := slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	return protocol.Node{UID: protocol.UID(o.UID), Off: off}
}
