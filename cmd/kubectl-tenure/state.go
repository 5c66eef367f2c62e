package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readState reads the whole cluster live, in pages and in the order that
// [audit.State] asks for. Of each object only what is looked at is kept.
func readState(ctx context.Context, s *session.Session) (st audit.State, err error) {
	not := newUnread(s.Client)
	if st.Leases, err = read(ctx, not.of("iplease"), &v1alpha1.IPLeaseList{}, session.LeasesIn, kube.LeaseOf); err != nil {
		return st, err
	}
	if st.SubLeases, err = read(ctx, not.of("ipsublease"), &v1alpha1.IPSubLeaseList{}, session.SubLeasesIn, kube.SubLeaseOf); err != nil {
		return st, err
	}
	if st.Pools, err = read(ctx, not.of("ippool"), &v1alpha1.IPPoolList{}, session.PoolsIn, func(p *v1alpha1.IPPool) (audit.Pool, error) {
		return audit.Pool{Pool: kube.PoolOf(p), Shape: shapeOf(p), Overlaps: overlapsOf(p)}, nil
	}); err != nil {
		return st, err
	}
	reserved, err := session.ListAll(ctx, s.Client, &v1alpha1.IPReservationList{}, func(l *v1alpha1.IPReservationList) []v1alpha1.IPReservation { return l.Items })
	if err != nil && !meta.IsNoMatchError(err) {
		return st, err
	}
	st.Reservations = map[protocol.UID]bool{}
	for i := range reserved {
		st.Reservations[protocol.UID(reserved[i].UID)] = true
	}
	known, err := readNetworks(ctx, s)
	if err != nil {
		return st, err
	}
	st.Faulty = known.faulty(st.Pools)
	if st.Claims, err = read(ctx, not.of("ipamclaim"), &ipamclaims.IPAMClaimList{}, session.ClaimsIn, func(c *ipamclaims.IPAMClaim) (audit.Claim, error) {
		return audit.Claim{Claim: kube.ClaimOf(c), Pools: known.ofClaim(c)}, nil
	}); err != nil {
		return st, err
	}
	live := client.MatchingFieldsSelector{Selector: unfinished}
	if st.Pods, err = read(ctx, not.of("pod"), &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, known.pod, live); err != nil {
		return st, err
	}
	if st.Nodes, st.NotReady, err = readNodes(ctx, s); err != nil {
		return st, err
	}
	if st.Registrations, err = registrations(ctx, s, not.of("registration")); err != nil {
		return st, err
	}
	if st.Webhooks, err = webhooks(ctx, s); err != nil {
		return st, err
	}
	st.Now, st.Unreadable = s.Now(), not.all
	return st, nil
}

// webhooks reads whether there are webhooks of PodNetworks, and until when the API server trusts
// their certificate.
func webhooks(ctx context.Context, s *session.Session) (*audit.Webhooks, error) {
	var o admissionregistration.ValidatingWebhookConfiguration
	err := s.Client.Get(ctx, client.ObjectKey{Name: podnetwork.Admission}, &o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there are none
	case err != nil:
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", podnetwork.Admission, err)
	}
	w := &audit.Webhooks{Soon: certificate.Soon}
	for _, h := range o.Webhooks {
		if end, err := certificate.End(h.ClientConfig.CABundle); err == nil {
			w.End = end
		}
	}
	return w, nil
}

// overlapsOf says with which pools p shares addresses; it is empty if with none.
func overlapsOf(p *v1alpha1.IPPool) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolOverlapping); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	return ""
}

// unread collects the objects that cannot be read, each once: a list that is begun anew
// shows some again.
type unread struct {
	client client.Client
	all    []audit.Unreadable
	told   map[string]bool // by [audit.Unreadable.Object]
}

// newUnread returns one that has not been told of any object.
func newUnread(c client.Client) *unread { return &unread{client: c, told: map[string]bool{}} }

// of returns a reader of the objects of a kind.
func (u *unread) of(kind string) reader {
	return reader{u.client, func(o metav1.Object, why error) {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = o.GetNamespace() + "/" + name
		}
		bad := audit.Unreadable{Object: kind + " " + name, Why: why.Error()}
		if !u.told[bad.Object] {
			u.told[bad.Object] = true
			u.all = append(u.all, bad)
		}
	}}
}

// A reader is where objects are read from, and who is told of those that say what nobody
// understands.
type reader struct {
	client client.Client
	not    func(metav1.Object, error)
}

// read lists in pages, and keeps of each object what of says. What that cannot read
// is left out, and r is told.
func read[T, K any, PL interface {
	*L
	client.ObjectList
}, L any, PT interface {
	*T
	metav1.Object
}](ctx context.Context, r reader, page PL, items func(PL) []T, of func(PT) (K, error), opts ...client.ListOption) ([]K, error) {
	return session.ListAll(ctx, r.client, page, func(p PL) (kept []K) {
		for _, o := range items(p) {
			if k, err := of(&o); err != nil {
				r.not(PT(&o), err)
			} else {
				kept = append(kept, k)
			}
		}
		return kept
	}, opts...)
}

// readNodes reads which Nodes there are, which of them somebody vouches are off, and which
// are known not to be Ready.
func readNodes(ctx context.Context, s *session.Session) (nodes map[protocol.NodeName]protocol.Node, notReady map[protocol.NodeName]bool, err error) {
	all, err := session.ListAll(ctx, s.Client, &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node {
		for i := range l.Items { // what a kubelet says of itself is long
			l.Items[i] = corev1.Node{ObjectMeta: l.Items[i].ObjectMeta, Spec: l.Items[i].Spec, Status: corev1.NodeStatus{Conditions: l.Items[i].Status.Conditions}}
		}
		return l.Items
	})
	nodes, notReady = make(map[protocol.NodeName]protocol.Node, len(all)), map[protocol.NodeName]bool{}
	for i := range all {
		name := protocol.NodeName(all[i].Name)
		nodes[name] = kube.NodeOf(&all[i])
		notReady[name] = slices.ContainsFunc(all[i].Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
	}
	return nodes, notReady, err
}

// knownNetworks are the cluster's networks, by the names that claims and statuses use.
type knownNetworks struct {
	byName       map[string][]networks.Network // of the CNI network
	byDefinition map[string]networks.Network   // namespace/name
	hostLocal    map[string]bool               // definitions in host-local's form
}

// readNetworks reads the definitions.
func readNetworks(ctx context.Context, s *session.Session) (knownNetworks, error) {
	k := knownNetworks{byName: map[string][]networks.Network{}, byDefinition: map[string]networks.Network{}, hostLocal: map[string]bool{}}
	all, err := session.ListAll(ctx, s.Client, &nad.NetworkAttachmentDefinitionList{}, func(l *nad.NetworkAttachmentDefinitionList) []nad.NetworkAttachmentDefinition { return l.Items })
	if err != nil {
		return k, err
	}
	pools, err := readDomainPools(ctx, s)
	for i := range all {
		n := networks.Read(all[i].Namespace, all[i].Name, all[i].CreationTimestamp.Time, all[i].Spec.Config).Place(pools)
		k.byName[n.Name] = append(k.byName[n.Name], n)
		k.byDefinition[n.String()] = n
		k.hostLocal[n.String()] = foreign.ReadDefinition(all[i].Namespace, all[i].Name, all[i].Spec.Config, nil).HostLocal
	}
	return k, err
}

// readDomainPools reads which pools ranges without a name may be of.
func readDomainPools(ctx context.Context, s *session.Session) ([]poolspec.DomainPool, error) {
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	return kube.DomainPools(all), err
}

// faulty returns the definitions that cannot be used, as they are wrong or name none of the pools.
func (k knownNetworks) faulty(pools []audit.Pool) (all []audit.Unreadable) {
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
	p := audit.Pod{PodRef: kube.PodRefOf(o), MirrorOf: kube.MirrorOf(o), Node: protocol.NodeName(o.Spec.NodeName), Leaving: o.DeletionTimestamp != nil || noSandbox(o)}
	p.Lacks, p.Since = missed(o)
	status, err := statusOf(o)
	if err != nil {
		return p, nil //nolint:nilerr // anybody can have written it
	}
	for _, st := range status {
		a := audit.Attachment{Interface: st.Interface, Pools: poolsOf(k.byDefinition[st.Name]), HostLocal: k.hostLocal[st.Name]}
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

// noSandbox reports whether the kubelet says that a pod has no sandbox with a network. Its
// status annotation is then of one that it had, or is only about to have.
func noSandbox(o *corev1.Pod) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse
	})
}

// unfinished selects pods that run, or will.
var unfinished = fields.ParseSelectorOrDie(fmt.Sprintf("status.phase!=%s,status.phase!=%s", corev1.PodSucceeded, corev1.PodFailed))
