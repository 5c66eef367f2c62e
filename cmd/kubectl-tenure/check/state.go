package check

import (
	"context"
	"fmt"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/attach/names"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readState reads the whole cluster live, in pages and in the order that
// [audit.State] asks for. Of each object only what is looked at is kept.
func readState(ctx context.Context, s *session.Session) (st audit.State, err error) {
	not := state.NewUnread(s.Client)
	if st.Leases, err = state.Read(ctx, not.Of("iplease"), &v1alpha1.IPLeaseList{}, session.LeasesIn, kube.LeaseOf); err != nil {
		return st, err
	}
	if st.SubLeases, err = state.Read(ctx, not.Of("ipsublease"), &v1alpha1.IPSubLeaseList{}, session.SubLeasesIn, kube.SubLeaseOf); err != nil {
		return st, err
	}
	if st.Pools, err = state.Read(ctx, not.Of("ippool"), &v1alpha1.IPPoolList{}, session.PoolsIn, func(p *v1alpha1.IPPool) (audit.Pool, error) {
		return audit.Pool{Pool: kube.PoolOf(p), Shape: state.ShapeOf(p), Overlaps: saidOf(p, v1alpha1.PoolOverlapping), Strangers: saidOf(p, v1alpha1.PoolStrangers), PinsTaken: saidOf(p, v1alpha1.PoolPinsTaken)}, nil
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
	known, err := state.ReadNetworks(ctx, s)
	if err != nil {
		return st, err
	}
	st.Faulty = known.Faulty(st.Pools)
	if st.Nameless, err = nameless(ctx, s); err != nil {
		return st, err
	}
	if st.Claims, err = state.Read(ctx, not.Of("ipamclaim"), &ipamclaims.IPAMClaimList{}, session.ClaimsIn, func(c *ipamclaims.IPAMClaim) (audit.Claim, error) {
		return audit.Claim{Claim: kube.ClaimOf(c), Pools: known.OfClaim(c)}, nil
	}); err != nil {
		return st, err
	}
	live := client.MatchingFieldsSelector{Selector: state.Unfinished}
	if st.Pods, err = state.Read(ctx, not.Of("pod"), &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, known.Pod, live); err != nil {
		return st, err
	}
	if st.LetGo, err = letGo(ctx, s, st); err != nil {
		return st, err
	}
	if st.Nodes, st.NotReady, err = readNodes(ctx, s); err != nil {
		return st, err
	}
	if st.Registrations, err = state.Registrations(ctx, s, not.Of("registration")); err != nil {
		return st, err
	}
	if st.Webhooks, err = webhooks(ctx, s); err != nil {
		return st, err
	}
	st.Now, st.Unreadable = s.Now(), not.All
	return st, nil
}

// letGo returns which devices of leases are not allocated to their ResourceClaims any more. Of
// those that the user may not read it says nothing.
func letGo(ctx context.Context, s *session.Session, st audit.State) (map[audit.Device]bool, error) {
	gone := map[audit.Device]bool{}
	for _, d := range st.Alone() {
		var claim resource.ResourceClaim
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.ResourceClaim}, &claim)
		switch {
		case session.Forbidden(err):
			return gone, nil
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			gone[d] = true
		case err != nil:
			return nil, fmt.Errorf("read ResourceClaim %s/%s: %w", d.Namespace, d.ResourceClaim, err)
		default:
			gone[d] = !slices.Contains(kube.DevicesOf(&claim).Devices, d.Name)
		}
	}
	return gone, nil
}

// nameless returns the Services that ask for names of addresses, and have no slices of the
// controller: it makes some also for a Service of whose pods none is there. Who may not read both
// does not look.
func nameless(ctx context.Context, s *session.Session) (all []audit.Unreadable, err error) {
	asks, err := session.ListAll(ctx, s.Client, &corev1.ServiceList{}, func(l *corev1.ServiceList) []corev1.Service {
		return slices.DeleteFunc(l.Items, func(o corev1.Service) bool { return !names.Asks(&o) })
	})
	if session.Forbidden(err) || err == nil && len(asks) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	made, err := session.ListAll(ctx, s.Client, &discovery.EndpointSliceList{}, func(l *discovery.EndpointSliceList) (of []string) {
		for i := range l.Items {
			of = append(of, l.Items[i].Namespace+"/"+l.Items[i].Labels[discovery.LabelServiceName])
		}
		return of
	}, client.MatchingLabels{discovery.LabelManagedBy: names.ManagedBy})
	if session.Forbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range asks {
		key := asks[i].Namespace + "/" + asks[i].Name
		if slices.Contains(made, key) {
			continue
		}
		why := "the controller has made no EndpointSlice for it"
		if _, err := names.Read(&asks[i]); err != nil {
			why = err.Error()
		}
		all = append(all, audit.Unreadable{Object: "service " + key, Why: why})
	}
	return all, nil
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

// saidOf returns the message of a pool's condition that is True; empty if it is not.
func saidOf(p *v1alpha1.IPPool, kind string) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	return ""
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
