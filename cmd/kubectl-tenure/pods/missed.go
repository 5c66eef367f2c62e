package pods

import (
	"strings"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
)

// addMissed says in v that the pod's sandbox was made without its networks.
func (l podLook) addMissed(v *podView, selected []string) {
	var ips []string
	for _, a := range state.PodIPs(l.pod) {
		ips = append(ips, a.String())
	}
	for i := range v.Networks {
		if n := &v.Networks[i]; n.Default {
			n.Attached, n.IPs = true, ips
		}
	}
	v.because("the pod runs without the networks that it selects (%s): node %s made its sandbox without tenure-attach or another meta-plugin. The pod is older than tenure-attach, or the runtime takes another configuration: see the Events of the pod, and of the node by: kubectl describe node %s. When that is mended, delete the pod, so that it is made anew",
		strings.Join(selected, ", "), v.Node, v.Node)
}
