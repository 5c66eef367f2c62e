package podnetwork

import "net/netip"

// A PodIP is one address of a pod, as the proposal's status.podIPs has it.
type PodIP struct {
	IP netip.Addr `json:"ip"`
	// Network is the PodNetwork's name.
	Network string `json:"podNetwork"`
	// Interface is the interface's name in the pod.
	Interface string `json:"interfaceName"`
}
