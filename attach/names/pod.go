package names

import (
	"encoding/json"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// A Network is what a [Request] has turned out to mean. One of the two is not empty.
type Network struct {
	Definition string // namespace/name
	PodNetwork string
}

// mostAddresses is how many addresses of a pod's status are looked at.
const mostAddresses = 16

// Addresses returns the addresses that a pod's status shows of the network, each once. Those that
// it has kept of an earlier sandbox do not count, nor those of a network that it does not select,
// and of the rest those do not that no EndpointSlice may have: one of them would have the API
// server refuse all the others.
func (n Network) Addresses(pod *corev1.Pod) (addrs []netip.Addr) {
	if pod.Spec.HostNetwork || len(pod.Status.PodIPs) == 0 || !npwg.StatusIsOf(pod.Annotations[npwg.AnnotationStatus], podIPs(pod)) {
		return nil
	}
	for _, a := range n.shown(pod) {
		if a.IsGlobalUnicast() && a.Zone() == "" && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// shown returns what the pod's annotations show of the network.
func (n Network) shown(pod *corev1.Pod) (addrs []netip.Addr) {
	if n.PodNetwork == "" {
		_, shows := npwg.ReadShown(pod.Annotations, pod.Namespace, mostAddresses)
		for _, s := range shows {
			if s.Definition == n.Definition {
				addrs = append(addrs, s.Addrs...)
			}
		}
		return addrs
	}
	var all []podnetwork.PodIP
	if pod.Annotations[podnetwork.AnnotationNetworks] == "" || json.Unmarshal([]byte(pod.Annotations[podnetwork.AnnotationIPs]), &all) != nil {
		return nil
	}
	for _, ip := range all {
		if ip.Network == n.PodNetwork {
			addrs = append(addrs, ip.IP.Unmap())
		}
	}
	return addrs
}

// podIPs are the addresses of a pod on the cluster's network.
func podIPs(pod *corev1.Pod) (addrs []netip.Addr) {
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}
