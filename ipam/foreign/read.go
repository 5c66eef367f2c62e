package foreign

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ReadShown reads which addresses the status of a pod shows, of whichever network.
func ReadShown(o *corev1.Pod) []netip.Addr {
	return npwg.ShownAddrs(o.Annotations[npwg.AnnotationStatus], mostShown)
}

// ReadPod reads what a look needs of a pod.
func ReadPod(o *corev1.Pod) Pod {
	p := Pod{PodRef: kube.PodRefOf(o), Runtime: kube.MirrorOf(o), Node: protocol.NodeName(o.Spec.NodeName)}
	if !p.nameable() {
		p.Runtime = "" // no kubelet has written that
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			p.Bound = c.LastTransitionTime.Time
		}
	}
	if o.Spec.HostNetwork {
		return p // no interface is ever attached to it
	}
	p.Selected, p.Shows = npwg.ReadShown(o.Annotations, o.Namespace, mostShown)
	return p
}
