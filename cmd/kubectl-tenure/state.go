package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/audit"
	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/ipam/networks"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readState reads the whole cluster live, in pages and in the order that
// [audit.State] asks for. Of each object only what is looked at is kept.
func (s *session) readState(ctx context.Context) (st audit.State, err error) {
	if st.Leases, err = read(ctx, s, &v1alpha1.IPLeaseList{}, leasesIn, cluster.LeaseOf); err != nil {
		return st, err
	}
	if st.SubLeases, err = read(ctx, s, &v1alpha1.IPSubLeaseList{}, subLeasesIn, cluster.SubLeaseOf); err != nil {
		return st, err
	}
	if st.Pools, err = read(ctx, s, &v1alpha1.IPPoolList{}, poolsIn, func(p *v1alpha1.IPPool) (audit.Pool, error) {
		return audit.Pool{Pool: cluster.PoolOf(p), Shape: shapeOf(p)}, nil
	}); err != nil {
		return st, err
	}
	known, err := s.networks(ctx)
	if err != nil {
		return st, err
	}
	if st.Claims, err = read(ctx, s, &ipamclaims.IPAMClaimList{}, claimsIn, func(c *ipamclaims.IPAMClaim) (audit.Claim, error) {
		return audit.Claim{Claim: cluster.ClaimOf(c), Pools: known.ofClaim(c)}, nil
	}); err != nil {
		return st, err
	}
	live := client.MatchingFieldsSelector{Selector: unfinished}
	if st.Pods, err = read(ctx, s, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, known.pod, live); err != nil {
		return st, err
	}
	if st.Nodes, err = s.nodes(ctx); err != nil {
		return st, err
	}
	if st.Seats, err = s.seats(ctx); err != nil {
		return st, err
	}
	st.Now = s.now()
	return st, nil
}

// read lists in pages, and keeps of each object what of says.
func read[T, K any, PL interface {
	*L
	client.ObjectList
}, L any](ctx context.Context, s *session, page PL, items func(PL) []T, of func(*T) (K, error), opts ...client.ListOption) ([]K, error) {
	var fault error
	all, err := listAll(ctx, s.client, page, func(p PL) (kept []K) {
		for _, o := range items(p) {
			k, err := of(&o)
			if err != nil {
				fault = err
				return nil
			}
			kept = append(kept, k)
		}
		return kept
	}, opts...)
	if err == nil {
		err = fault
	}
	return all, err
}

// nodes reads which Nodes there are, and which of them somebody vouches are off.
func (s *session) nodes(ctx context.Context) (map[protocol.NodeName]protocol.Node, error) {
	all, err := listAll(ctx, s.client, &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node {
		for i := range l.Items { // what a kubelet says of itself is long
			l.Items[i] = corev1.Node{ObjectMeta: l.Items[i].ObjectMeta, Spec: l.Items[i].Spec}
		}
		return l.Items
	})
	nodes := make(map[protocol.NodeName]protocol.Node, len(all))
	for i := range all {
		nodes[protocol.NodeName(all[i].Name)] = cluster.NodeOf(&all[i])
	}
	return nodes, err
}

// knownNetworks are the cluster's networks, by the names that claims and statuses use.
type knownNetworks struct {
	byName       map[string][]networks.Network // of the CNI network
	byDefinition map[string]networks.Network   // namespace/name
}

// networks reads the definitions.
func (s *session) networks(ctx context.Context) (knownNetworks, error) {
	k := knownNetworks{byName: map[string][]networks.Network{}, byDefinition: map[string]networks.Network{}}
	all, err := listAll(ctx, s.client, &nad.NetworkAttachmentDefinitionList{}, func(l *nad.NetworkAttachmentDefinitionList) []nad.NetworkAttachmentDefinition { return l.Items })
	for i := range all {
		n := networks.Read(all[i].Namespace, all[i].Name, all[i].CreationTimestamp.Time, all[i].Spec.Config)
		k.byName[n.Name] = append(k.byName[n.Name], n)
		k.byDefinition[n.String()] = n
	}
	return k, err
}

// ofClaim returns the pools of a claim's network.
func (k knownNetworks) ofClaim(c *ipamclaims.IPAMClaim) []protocol.PoolName {
	return poolsOf(networks.Resolve(k.byName[c.Spec.Network], c.Namespace).Network)
}

func poolsOf(n networks.Network) (pools []protocol.PoolName) {
	for _, src := range n.Sources {
		if pool := protocol.PoolName(src.Pool); !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	return pools
}

// pod keeps what is looked at of a pod. A status that does not read shows nothing.
func (k knownNetworks) pod(o *corev1.Pod) (audit.Pod, error) {
	p := audit.Pod{PodRef: cluster.PodRefOf(o), MirrorOf: cluster.MirrorOf(o), Node: protocol.NodeName(o.Spec.NodeName), Leaving: o.DeletionTimestamp != nil}
	status, err := statusOf(o)
	if err != nil {
		return p, nil //nolint:nilerr // anybody can have written it
	}
	for _, st := range status {
		a := audit.Attachment{Interface: st.Interface, Pools: poolsOf(k.byDefinition[st.Name])}
		for _, ip := range st.IPs {
			if addr, err := netip.ParseAddr(ip); err == nil {
				a.Addrs = append(a.Addrs, addr)
			}
		}
		if len(a.Pools) > 0 && len(a.Addrs) > 0 {
			p.Attachments = append(p.Attachments, a)
		}
	}
	return p, nil
}

// unfinished selects pods that run, or will.
var unfinished = fields.ParseSelectorOrDie(fmt.Sprintf("status.phase!=%s,status.phase!=%s", corev1.PodSucceeded, corev1.PodFailed))
