package npwg

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// Shown is what a pod's status shows of one network.
type Shown struct {
	Definition string // namespace/name
	Interface  string
	Addrs      []netip.Addr
	// CIDRs says that some are written with the length of their subnet.
	CIDRs bool
	// Default says that it is the pod's default network.
	Default bool
}

// defaultNamespace is the namespace of a definition that a pod has for its default network, if it
// names none. It is so by the default configuration of Multus and of tenure-attach.
const defaultNamespace = "kube-system"

// ReadShown reads the annotations of a pod of a namespace: which definitions it selects, as
// namespace/name, and what its status shows of them, no more than most addresses. What it does not
// select now does not count, whatever the status says.
func ReadShown(annotations map[string]string, namespace string, most int) (selected []string, shows []Shown) {
	selections := selectionsOf(annotations[AnnotationNetworks], namespace)
	defaults := selectionsOf(annotations[AnnotationDefaultNetwork], defaultNamespace)
	for _, s := range slices.Concat(selections, defaults) {
		selected = append(selected, s.String())
	}
	return selected, readStatus(annotations[AnnotationStatus], selections, defaults, most)
}

// selectionsOf returns what an annotation selects as Tenure reads it, and after that what it
// selects for Multus alone, each definition once. Who attaches pods may be either.
func selectionsOf(annotation, namespace string) []Selection {
	all, _ := Parse(annotation, namespace, AnyVersion) // also where another element is at fault
	most := len(all) + MaxSelections
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
func asMultus(annotation string) (all []Selection) {
	if strings.ContainsAny(annotation, `[{"`) {
		var elements []struct{ Namespace, Name, Interface string }
		_ = json.Unmarshal([]byte(annotation), &elements) // as much of it as can be read
		for _, e := range elements {
			all = append(all, Selection{Namespace: e.Namespace, Name: e.Name, Interface: e.Interface})
		}
		return all
	}
	for item := range strings.SplitSeq(annotation, ",") {
		object, iface, _ := strings.Cut(item, "@")
		namespace, name, ok := strings.Cut(object, "/")
		if !ok {
			namespace, name = "", object
		}
		all = append(all, Selection{Namespace: strings.TrimSpace(namespace), Name: strings.TrimSpace(name), Interface: strings.TrimSpace(iface)})
	}
	return all
}

// readStatus returns the addresses of a status annotation that selections explain, and no more than
// most: of the default network those that defaults explain.
func readStatus(annotation string, selections, defaults []Selection, most int) (shows []Shown) {
	var elements []Status
	if annotation == "" || json.Unmarshal([]byte(annotation), &elements) != nil {
		return nil
	}
	secondary, own := explained(selections), explained(defaults)
	left := most
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
		s := Shown{Definition: definition, Interface: e.Interface, Default: e.Default}
		for _, text := range e.IPs[:min(len(e.IPs), left)] {
			if a, ok := address(text); ok {
				s.Addrs, s.CIDRs = append(s.Addrs, a), s.CIDRs || strings.Contains(text, "/")
			}
		}
		left -= min(len(e.IPs), left)
		shows = append(shows, s)
	}
	return shows
}

// ShownAddrs returns the addresses that a status annotation shows, of whichever network, and no
// more than most.
func ShownAddrs(annotation string, most int) (addrs []netip.Addr) {
	var elements []Status
	if annotation == "" || json.Unmarshal([]byte(annotation), &elements) != nil {
		return nil
	}
	for _, e := range elements {
		for _, text := range e.IPs {
			if a, ok := address(text); ok && len(addrs) < most {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// shown is by what an element of a status says of which network it is.
type shown struct{ name, iface string }

// explained returns of which definitions elements of a status are, also by the short name, where
// the interface says which is meant.
func explained(selections []Selection) map[shown]string {
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
