package main

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// missed returns the networks that a pod selects, where its present sandbox has none of them:
// nobody has said that he attached it. since is when the sandbox was made, as far as is known.
func missed(o *corev1.Pod) (selected []string, since time.Time) {
	if o.Spec.HostNetwork || len(o.Status.PodIPs) == 0 || noSandbox(o) || npwg.StatusIsOf(o.Annotations[npwg.AnnotationStatus], podIPs(o)) {
		return nil, time.Time{}
	}
	if o.Status.StartTime != nil {
		since = o.Status.StartTime.Time
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			since = c.LastTransitionTime.Time
		}
	}
	return plan.Selected(facts.Pod{PodRef: facts.PodRef{Namespace: o.Namespace, Name: o.Name}, Annotations: o.Annotations}), since
}

// podIPs are the addresses of a pod on the default network.
func podIPs(o *corev1.Pod) (addrs []netip.Addr) {
	for _, ip := range o.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// addMissed says in v that the pod's sandbox was made without its networks.
func (l podLook) addMissed(v *podView, selected []string) {
	var ips []string
	for _, a := range podIPs(l.pod) {
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
