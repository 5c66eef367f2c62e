package install

import (
	"context"
	"fmt"
	"slices"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
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
	claims, err := session.ListAll(ctx, u.Client, &resource.ResourceClaimList{}, func(l *resource.ResourceClaimList) []resource.ResourceClaim { return l.Items })
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	held := heldAmong(leases, subs, pods, claims)
	if attaches {
		held = append(held, attached(pods)...)
	}
	slices.Sort(held)
	return slices.Compact(held), nil
}

// heldAmong says which pods that are there, ResourceClaims and claims have addresses. What is said
// of others does not count: their addresses are on their way back.
func heldAmong(leases []v1alpha1.IPLease, subs []v1alpha1.IPSubLease, pods []corev1.Pod, claims []resource.ResourceClaim) (held []string) {
	o := owners{map[string]bool{}, claims}
	for i := range pods {
		o.pods[pods[i].Namespace+"/"+pods[i].Name] = true
	}
	askedBy := map[string]string{} // who, by the UIDs of sub-leases
	for _, s := range subs {
		if r := s.Spec.Request; r != nil {
			askedBy[string(s.UID)] = o.of(r.Pod, r.Interface)
		}
		if use := s.Spec.Use; use != nil && o.of(use.Pod, use.Interface) != "" {
			held = append(held, fmt.Sprintf("%s uses claim %s", o.of(use.Pod, use.Interface), use.Claim.Name))
		}
	}
	for i := range leases {
		l := &leases[i]
		for _, a := range l.Status.Allocations {
			addr, use, ok := state.ParseAllocation(a)
			use.Node = l.Spec.Holder.Node
			switch there := o.pods[use.Namespace+"/"+use.Pod]; {
			case !ok:
			case use.ResourceClaim == "" && there:
				held = append(held, fmt.Sprintf("pod %s/%s has %s of pool %s (%s)", use.Namespace, use.Pod, addr, l.Spec.Pool, use.Interface))
			case use.ResourceClaim != "" && (there || o.claimOf(use.Namespace, use.Interface, use.ResourceClaim) != ""):
				held = append(held, fmt.Sprintf("%s has %s of pool %s", use, addr, l.Spec.Pool))
			}
		}
		if used := l.Status.Used; len(l.Status.Allocations) == 0 && used != nil && *used > 0 {
			held = append(held, fmt.Sprintf("pods on node %s have %s of pool %s", l.Spec.Holder.Node, screen.Number(int(*used), "address", "addresses"), l.Spec.Pool))
		}
		for _, g := range l.Spec.Grants {
			pod := v1alpha1.PodReference{Namespace: g.To.Namespace, Name: g.To.Name}
			who := ""
			switch g.To.Kind {
			case v1alpha1.GranteeClaim:
				who = "claim " + g.To.Namespace + "/" + g.To.Name
			case v1alpha1.GranteeSubLease:
				who = askedBy[g.To.UID]
			case v1alpha1.GranteePod:
				who = o.of(pod, "")
			case v1alpha1.GranteeReservation:
			}
			if who != "" {
				held = append(held, fmt.Sprintf("%s has %s of pool %s", who, g.Address, l.Spec.Pool))
			}
		}
	}
	return held
}

// owners are who may have addresses: the pods that are there, and the ResourceClaims, whose devices
// may have theirs for longer than the pod that had them first.
type owners struct {
	pods   map[string]bool // namespace/name
	claims []resource.ResourceClaim
}

// of says who has what was given to an interface of a pod; "" for nobody. Where the pod is gone it
// is the ResourceClaim to which a device of that name is allocated.
func (o owners) of(pod v1alpha1.PodReference, device string) string {
	name := pod.Namespace + "/" + pod.Name
	if o.pods[name] {
		return "pod " + name
	}
	if claim := o.claimOf(pod.Namespace, device, ""); claim != "" {
		return fmt.Sprintf("device %s of ResourceClaim %s/%s", device, pod.Namespace, claim)
	}
	return ""
}

// claimOf returns the ResourceClaim of a namespace to which the device is allocated, that of the
// name if one is given; "" if there is none.
func (o owners) claimOf(namespace, device, name string) string {
	for i := range o.claims {
		c := &o.claims[i]
		if c.Namespace != namespace || name != "" && c.Name != name || c.Status.Allocation == nil {
			continue
		}
		if slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resource.DeviceRequestAllocationResult) bool { return r.Device == device }) {
			return c.Name
		}
	}
	return ""
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
