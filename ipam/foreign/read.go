package foreign

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"strings"

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
	selections := selectionsOf(o.Annotations[npwg.AnnotationNetworks], o.Namespace)
	for _, s := range selections {
		p.Selected = append(p.Selected, s.String())
	}
	p.Shows = readStatus(o.Annotations[npwg.AnnotationStatus], selections)
	return p
}

// selectionsOf returns what an annotation selects as Tenure reads it, and after that what it
// selects for Multus alone, each definition once. Who attaches pods may be either.
func selectionsOf(annotation, namespace string) []npwg.Selection {
	all, _ := npwg.Parse(annotation, namespace, npwg.AnyVersion) // also where another element is at fault
	most := len(all) + npwg.MaxSelections
	known := map[string]bool{}
	for _, s := range all {
		known[s.String()] = true
	}
	for _, s := range asMultus(annotation) {
		s.Namespace = cmp.Or(s.Namespace, namespace)
		if text := s.String(); s.Name != "" && !known[text] && len(all) < most {
			known[text], all = true, append(all, s)
		}
	}
	return all
}

// asMultus reads an annotation as Multus does. It takes the keys of JSON in any case, blanks around
// names, and as many elements as there are.
func asMultus(annotation string) (all []npwg.Selection) {
	if strings.ContainsAny(annotation, `[{"`) {
		var elements []struct{ Namespace, Name, Interface string }
		_ = json.Unmarshal([]byte(annotation), &elements) // as much of it as can be read
		for _, e := range elements {
			all = append(all, npwg.Selection{Namespace: e.Namespace, Name: e.Name, Interface: e.Interface})
		}
		return all
	}
	for item := range strings.SplitSeq(annotation, ",") {
		object, iface, _ := strings.Cut(item, "@")
		namespace, name, ok := strings.Cut(object, "/")
		if !ok {
			namespace, name = "", object
		}
		all = append(all, npwg.Selection{Namespace: strings.TrimSpace(namespace), Name: strings.TrimSpace(name), Interface: strings.TrimSpace(iface)})
	}
	return all
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
