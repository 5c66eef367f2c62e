package workloads

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// A need is a claim that a pod is to have and does not name: it is made when the pod is there.
type need struct {
	name, network, ifName string
	// owner owns the claim, which goes with it: the pod's controlling owner, or the machine's.
	owner metav1.OwnerReference
	// machine is the virtual machine that the claim is for; empty: it is by the pod's name.
	machine string
}

// byName returns the needs of a pod that is to have claims by its name.
func byName(pod workload.Pod, owner metav1.OwnerReference, networks map[workload.Element]string, elements []workload.Element) (all []need) {
	for _, e := range elements {
		all = append(all, need{
			name: workload.PodClaimName(pod.Name, e, pod.Namespace), network: networks[e], ifName: e.Interface, owner: ownedBy(owner),
		})
	}
	return all
}

// ownedBy returns a reference to the same owner. It does not block the owner's deletion: that would
// need a right on owners of its kind.
func ownedBy(o metav1.OwnerReference) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: new(true)}
}

// judge decides about the claim that has the name. One that is nobody's becomes the pod's; one that
// is somebody else's is left alone.
func (n need) judge(c claim) verdict {
	taken := func(format string, args ...any) verdict {
		return verdict{fault: &fault{ReasonTaken, fmt.Sprintf("claim %s is left alone: %s", c.name, fmt.Sprintf(format, args...))}}
	}
	switch {
	case c.deleting: // it goes, and then another is made
		return verdict{}
	case c.network != n.network:
		return taken("it is of network %q, and the pod needs one of %q", c.network, n.network)
	case c.ifName != "" && n.ifName != "" && c.ifName != n.ifName:
		return taken("it is for interface %s, and the pod needs one for %s", c.ifName, n.ifName)
	case c.set != "":
		return taken("it is for StatefulSet %s", c.set)
	case c.vm != n.machine:
		return taken("it is for virtual machine %q", c.vm)
	case slices.ContainsFunc(c.owners, func(o metav1.OwnerReference) bool { return o.UID != n.owner.UID }):
		return taken("it belongs to %s %s", c.owners[0].Kind, c.owners[0].Name)
	case n.machine != "": // one that nobody owns is given back to its machine
		return verdict{}
	case len(c.owners) == 1 && c.byName == n.owner.UID:
		return verdict{}
	}
	return verdict{change: &change{c, []metav1.OwnerReference{n.owner}}}
}

// labels are those of the claim that is made: by them the policies and the agents know whose it is.
func (n need) labels() map[string]string {
	if n.machine != "" {
		return map[string]string{kube.VMLabel: n.machine}
	}
	return map[string]string{workload.LabelOwner: string(n.owner.UID)}
}

// shown reports whether a claim as the cache has it is what is needed: of most claims the cache
// does not know whose they are.
func (n need) shown(c claim) bool {
	return !c.deleting && c.network == n.network && (n.machine != "" || c.byName == n.owner.UID && len(c.owners) == 1)
}
