package state

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Networks are the cluster's networks, by the names that claims and statuses use.
type Networks struct {
	byName       map[string][]networks.Network // of the CNI network
	byDefinition map[string]networks.Network   // namespace/name
	hostLocal    map[string]bool               // definitions in host-local's form
	labels       map[string]map[string]string  // of namespaces, where a definition goes by them and they can be read
}

// ReadNetworks reads the definitions.
func ReadNetworks(ctx context.Context, s *session.Session) (Networks, error) {
	k := Networks{byName: map[string][]networks.Network{}, byDefinition: map[string]networks.Network{}, hostLocal: map[string]bool{}}
	all, err := session.ListAll(ctx, s.Client, &nad.NetworkAttachmentDefinitionList{}, func(l *nad.NetworkAttachmentDefinitionList) []nad.NetworkAttachmentDefinition { return l.Items })
	if err != nil {
		return k, err
	}
	pools, err := DomainPools(ctx, s)
	for i := range all {
		n := networks.Read(all[i].Namespace, all[i].Name, all[i].CreationTimestamp.Time, all[i].Spec.Config).Place(pools)
		k.byName[n.Name] = append(k.byName[n.Name], n)
		k.byDefinition[n.String()] = n
		k.hostLocal[n.String()] = foreign.ReadDefinition(all[i].Namespace, all[i].Name, all[i].Spec.Config, nil).HostLocal
		if n.ByNamespace() && k.labels == nil {
			k.labels = labelsOfAll(ctx, s)
		}
	}
	return k, err
}

// labelsOfAll returns the labels of all namespaces, and none where they cannot be read.
func labelsOfAll(ctx context.Context, s *session.Session) map[string]map[string]string {
	labels := map[string]map[string]string{}
	all, _ := session.ListAll(ctx, s.Client, &corev1.NamespaceList{}, func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items })
	for i := range all {
		labels[all[i].Name] = all[i].Labels
	}
	return labels
}

// in returns a network as it is used in a namespace.
func (k Networks) in(n networks.Network, namespace string) networks.Network {
	if !n.ByNamespace() {
		return n
	}
	return n.OfNamespace(namespace, k.labels[namespace])
}

// DomainPools reads which pools ranges without a name may be of.
func DomainPools(ctx context.Context, s *session.Session) ([]poolspec.DomainPool, error) {
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	return kube.DomainPools(all), err
}

// Faulty returns the definitions that cannot be used, as they are wrong or name none of the pools.
func (k Networks) Faulty(pools []audit.Pool) (all []audit.Unreadable) {
	exists := map[string]bool{}
	for _, p := range pools {
		exists[p.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(k.byDefinition)) {
		n := k.byDefinition[name]
		if fault := cmp.Or(n.Fault, n.Missing(func(pool string) bool { return exists[pool] })); fault != "" {
			all = append(all, audit.Unreadable{Object: "network-attachment-definition " + name, Why: fault})
		}
	}
	return all
}

// OfClaim returns the pools of a claim's network.
func (k Networks) OfClaim(c *ipamclaims.IPAMClaim) []protocol.PoolName {
	return poolsOf(k.in(networks.Resolve(k.byName[c.Spec.Network], c.Namespace).Network, c.Namespace))
}

func poolsOf(n networks.Network) (pools []protocol.PoolName) {
	for _, src := range n.Sources {
		if pool := protocol.PoolName(src.Pool); !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	return pools
}

// Pod keeps what is looked at of a pod. A status that does not read shows nothing.
func (k Networks) Pod(o *corev1.Pod) (audit.Pod, error) {
	p := audit.Pod{PodRef: kube.PodRefOf(o), MirrorOf: kube.MirrorOf(o), Node: protocol.NodeName(o.Spec.NodeName), Leaving: o.DeletionTimestamp != nil || noSandbox(o)}
	p.Lacks, p.Since = Missed(o)
	status, err := StatusOf(o)
	if err != nil {
		return p, nil //nolint:nilerr // anybody can have written it
	}
	for _, st := range status {
		a := audit.Attachment{Interface: st.Interface, Pools: poolsOf(k.in(k.byDefinition[st.Name], o.Namespace)), HostLocal: k.hostLocal[st.Name]}
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
