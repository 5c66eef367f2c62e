package foreign

import (
	"cmp"
	"encoding/json"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

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
	selections, _ := npwg.Parse(o.Annotations[npwg.AnnotationNetworks], o.Namespace, npwg.AnyVersion)
	for _, s := range selections { // also where another element is at fault
		p.Selected = append(p.Selected, s.String())
	}
	p.Shows = readStatus(o.Annotations[npwg.AnnotationStatus], selections)
	return p
}

// readStatus returns the addresses of a status annotation that selections explain: not
// the default network's, and no more than mostShown.
func readStatus(annotation string, selections []npwg.Selection) (shows []Shown) {
	var elements []npwg.Status
	if annotation == "" || json.Unmarshal([]byte(annotation), &elements) != nil {
		return nil
	}
	type shown struct{ name, iface string }
	of := map[shown]string{} // also by the short name, where the interface says which is meant
	for _, s := range selections {
		of[shown{s.String(), ""}], of[shown{s.Name, s.Interface}] = s.String(), s.String()
	}
	left := mostShown
	for _, e := range elements {
		definition := cmp.Or(of[shown{e.Name, ""}], of[shown{e.Name, e.Interface}])
		if e.Default || definition == "" || left == 0 {
			continue
		}
		s := Shown{Definition: definition, Interface: e.Interface}
		for _, text := range e.IPs[:min(len(e.IPs), left)] {
			if a, ok := address(text); ok {
				s.Addrs = append(s.Addrs, a)
			}
		}
		left -= min(len(e.IPs), left)
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
