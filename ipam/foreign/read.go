package foreign

import (
	"encoding/json"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ReadPod reads what a look needs of a pod.
func ReadPod(o *corev1.Pod) Pod {
	p := Pod{PodRef: kube.PodRefOf(o), Runtime: kube.MirrorOf(o), Node: protocol.NodeName(o.Spec.NodeName)}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			p.Bound = c.LastTransitionTime.Time
		}
	}
	if o.Spec.HostNetwork {
		return p // no interface is ever attached to it
	}
	selections, _ := npwg.Parse(o.Annotations[npwg.AnnotationNetworks], o.Namespace, npwg.AnyVersion)
	for _, s := range selections { // also where another element is at fault
		p.Selected = append(p.Selected, s.String())
	}
	p.Shows = readStatus(o.Annotations[npwg.AnnotationStatus], selections)
	return p
}

// readStatus returns the addresses of a status annotation that selections explain: not
// the default network's, and no more than maxShown.
func readStatus(annotation string, selections []npwg.Selection) (shows []Shown) {
	var elements []npwg.Status
	if annotation == "" || json.Unmarshal([]byte(annotation), &elements) != nil {
		return nil
	}
	left := maxShown
	for _, e := range elements {
		i := slices.IndexFunc(selections, func(s npwg.Selection) bool {
			return e.Name == s.String() || e.Name == s.Name && e.Interface == s.Interface
		})
		if e.Default || i < 0 {
			continue
		}
		s := Shown{Definition: selections[i].String(), Interface: e.Interface}
		for _, text := range e.IPs {
			if a, ok := address(text); ok && left > 0 {
				s.Addrs = append(s.Addrs, a)
				left--
			}
		}
		shows = append(shows, s)
	}
	return shows
}

// address reads an address that may have a prefix length.
func address(text string) (netip.Addr, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err == nil && a.Zone() == ""
}
