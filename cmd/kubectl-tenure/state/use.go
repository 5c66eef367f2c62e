package state

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// Use is who uses an address, or a claim: an interface of a pod on a node.
type Use struct {
	Node      string `json:"node"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Interface string `json:"interface"`
	// ResourceClaim is the name of the ResourceClaim by which the pod has the device Interface.
	ResourceClaim string `json:"resourceClaim,omitempty"`
}

// String says who u is, for people.
func (u Use) String() string {
	text := fmt.Sprintf("pod %s/%s on node %s, ", u.Namespace, u.Pod, u.Node)
	if u.ResourceClaim != "" {
		return fmt.Sprintf("ResourceClaim %s/%s, device %s, of %s", u.Namespace, u.ResourceClaim, u.Interface, strings.TrimSuffix(text, ", "))
	}
	return text + "interface " + u.Interface
}

// UseOf returns who uses the claim that a sub-lease is a use of.
func UseOf(sub *v1alpha1.IPSubLease) Use {
	u := sub.Spec.Use
	return Use{Node: sub.Spec.Node, Namespace: u.Pod.Namespace, Pod: u.Pod.Name, Interface: u.Interface}
}

// ParseAllocation reads what a node publishes of an address that it has given:
// "address namespace/pod interface", and of a device "resourceclaim/name".
func ParseAllocation(text string) (addr netip.Addr, u Use, ok bool) {
	words := strings.Fields(text)
	if len(words) == 4 {
		u.ResourceClaim, ok = strings.CutPrefix(words[3], "resourceclaim/")
	}
	if len(words) != 3 && !ok {
		return addr, u, false
	}
	addr, err := netip.ParseAddr(words[0])
	u.Namespace, u.Pod, ok = strings.Cut(words[1], "/")
	u.Interface = words[2]
	return addr, u, ok && err == nil
}
