package foreign

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
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
	defaults := selectionsOf(o.Annotations[npwg.AnnotationDefaultNetwork], defaultNamespace)
	for _, s := range slices.Concat(selections, defaults) {
		p.Selected = append(p.Selected, s.String())
	}
	p.Shows = readStatus(o.Annotations[npwg.AnnotationStatus], selections, defaults)
	return p
}

// defaultNamespace is the namespace of a definition that a pod has for its default network, if it
// names none. It is so by the default configuration of Multus and of tenure-attach.
const defaultNamespace = "kube-system"

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

// readStatus returns the addresses of a status annotation that selections explain, and no more than
// mostShown: of the default network those that defaults explain.
func readStatus(annotation string, selections, defaults []npwg.Selection) (shows []Shown) {
	var elements []npwg.Status
	if annotation == "" || json.Unmarshal([]byte(annotation), &elements) != nil {
		return nil
	}
	secondary, own := explained(selections), explained(defaults)
	left := mostShown
	for _, e := range elements {
		of := secondary
		if e.Default {
			of = own
		}
		definition := cmp.Or(of[shown{e.Name, ""}], of[shown{e.Name, e.Interface}])
		if definition == "" && e.Default && len(defaults) > 0 { // by the name of its configuration
			definition = defaults[0].String()
		}
		if definition == "" || left == 0 {
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

// shown is by what an element of a status says of which network it is.
type shown struct{ name, iface string }

// explained returns of which definitions elements of a status are, also by the short name, where
// the interface says which is meant.
func explained(selections []npwg.Selection) map[shown]string {
	of := map[shown]string{}
	for _, s := range selections {
		of[shown{s.String(), ""}], of[shown{s.Name, s.Interface}] = s.String(), s.String()
	}
	return of
}

// address reads an address that may have a prefix length.
func address(text string) (netip.Addr, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err == nil && a.Zone() == ""
}
