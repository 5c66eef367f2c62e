package podnetwork

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A PodIP is one address of a pod, as the proposal's status.podIPs has it.
type PodIP struct {
	IP netip.Addr `json:"ip"`
	// Network is the PodNetwork's name.
	Network string `json:"podNetwork"`
	// Interface is the interface's name in the pod.
	Interface string `json:"interfaceName"`
}

// AppendIPs appends the JSON of all to b.
func AppendIPs(b []byte, all []PodIP) []byte {
	b = append(b, '[')
	for i, ip := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = plainjson.AppendText(append(b, `{"ip":`...), ip.IP.String())
		b = plainjson.AppendText(plainjson.AppendKey(b, "podNetwork"), ip.Network)
		b = append(plainjson.AppendText(plainjson.AppendKey(b, "interfaceName"), ip.Interface), '}')
	}
	return append(b, ']')
}
