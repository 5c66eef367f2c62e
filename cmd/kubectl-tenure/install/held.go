package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// held says who has addresses, or networks that only tenure-attach can take back where that
// attaches pods.
func (u *uninstall) held(ctx context.Context, attaches bool) ([]string, error) {
	leases, err := session.ListAll(ctx, u.Client, &v1alpha1.IPLeaseList{}, session.LeasesIn)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	subs, err := session.ListAll(ctx, u.Client, &v1alpha1.IPSubLeaseList{}, session.SubLeasesIn)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	pods, err := session.ListAll(ctx, u.Client, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items })
	if err != nil {
		return nil, err
	}
	held := heldAmong(leases, subs, pods)
	if attaches {
		held = append(held, attached(pods)...)
	}
	slices.Sort(held)
	return slices.Compact(held), nil
}

// heldAmong says which pods that are there, and which claims, have addresses. What is said of pods
// that are gone does not count: their addresses are on their way back.
func heldAmong(leases []v1alpha1.IPLease, subs []v1alpha1.IPSubLease, pods []corev1.Pod) (held []string) {
	there := map[string]bool{}
	for i := range pods {
		there[pods[i].Namespace+"/"+pods[i].Name] = true
	}
	askedBy := map[string]string{} // pods by the UIDs of sub-leases
	for _, s := range subs {
		if r := s.Spec.Request; r != nil {
			askedBy[string(s.UID)] = r.Pod.Namespace + "/" + r.Pod.Name
		}
		if use := s.Spec.Use; use != nil && there[use.Pod.Namespace+"/"+use.Pod.Name] {
			held = append(held, fmt.Sprintf("pod %s/%s uses claim %s", use.Pod.Namespace, use.Pod.Name, use.Claim.Name))
		}
	}
	for i := range leases {
		l := &leases[i]
		for _, a := range l.Status.Allocations {
			address, who, _ := strings.Cut(a, " ")
			if pod, ifName, _ := strings.Cut(who, " "); there[pod] {
				held = append(held, fmt.Sprintf("pod %s has %s of pool %s (%s)", pod, address, l.Spec.Pool, ifName))
			}
		}
		if used := l.Status.Used; len(l.Status.Allocations) == 0 && used != nil && *used > 0 {
			held = append(held, fmt.Sprintf("pods on node %s have %s of pool %s", l.Spec.Holder.Node, screen.Number(int(*used), "address", "addresses"), l.Spec.Pool))
		}
		for _, g := range l.Spec.Grants {
			pod := g.To.Namespace + "/" + g.To.Name
			if g.To.Kind == v1alpha1.GranteeSubLease {
				pod = askedBy[g.To.UID]
			}
			switch {
			case g.To.Kind == v1alpha1.GranteeClaim:
				held = append(held, fmt.Sprintf("claim %s/%s has %s of pool %s", g.To.Namespace, g.To.Name, g.Address, l.Spec.Pool))
			case g.To.Kind != v1alpha1.GranteeReservation && there[pod]:
				held = append(held, fmt.Sprintf("pod %s has %s of pool %s", pod, g.Address, l.Spec.Pool))
			}
		}
	}
	return held
}

// attached says which pods tenure-attach has given more networks than the default one: whoever's
// addresses they have there, only tenure-attach detaches them.
func attached(pods []corev1.Pod) (held []string) {
	for i := range pods {
		p := &pods[i]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if p.Annotations[nad.NetworkAttachmentAnnot] != "" && !p.Spec.HostNetwork && p.Spec.NodeName != "" && !ended {
			held = append(held, fmt.Sprintf("pod %s/%s on node %s is attached to networks of its own", p.Namespace, p.Name, p.Spec.NodeName))
		}
	}
	return held
}
