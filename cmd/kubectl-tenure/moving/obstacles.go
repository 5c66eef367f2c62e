package moving

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/ipam/foreign"
)

// obstruct adds what is in the way of moving to whereabouts.
func obstruct(report *moveReport, seen foreignState) {
	for i := range report.Segments {
		s := &report.Segments[i]
		if !seen.whereabouts {
			s.InTheWay = append(s.InTheWay, "the cluster has no whereabouts: install it first")
		}
		for _, d := range seen.definitions {
			switch name := d.String(); {
			case !slices.Contains(s.Switch, name), d.IPAM == foreign.TypeLocal:
			case len(d.Whereabouts) == 0:
				s.InTheWay = append(s.InTheWay, fmt.Sprintf("definition %s has no range that whereabouts reads: describe its addresses with range or ipRanges, not with pool, subnet or ranges", name))
			case d.NodeSlices:
				s.InTheWay = append(s.InTheWay, fmt.Sprintf("definition %s has node_slice_size: whereabouts' slices cannot be written", name))
			}
		}
		if pods := showing(seen.pods, s.Switch, func(s npwg.Shown) bool { return s.CIDRs }); len(pods) > 0 {
			s.InTheWay = append(s.InTheWay, fmt.Sprintf("the status of pods shows addresses with the lengths of their subnets (statusIPs: CIDR): %s. whereabouts does not find an address there, "+
				"and would take the record of a pod that runs away. Set statusIPs to Address, and make these pods anew", screen.Some(pods, 5)))
		}
		pods := showing(seen.pods, s.Switch, func(s npwg.Shown) bool { return s.Default })
		for _, name := range s.Pools {
			pods = append(pods, seen.pools[name].byDefault...)
		}
		slices.Sort(pods)
		if pods = slices.Compact(pods); len(pods) > 0 {
			s.InTheWay = append(s.InTheWay, unkeptDefaults(pods))
		}
	}
	for i := range report.Segments {
		s := &report.Segments[i]
		for _, name := range s.Pools {
			if devices := seen.pools[name].devices; len(devices) > 0 {
				s.InTheWay = append(s.InTheWay, unkeptDevices(devices))
			}
			if seen.pools[name].perNode {
				s.InTheWay = append(s.InTheWay, fmt.Sprintf("pool %s gives each node a subnet of its own (spec.perNode), which whereabouts has no words for: it would give each node addresses of all subnets. "+
					"Leave it with Tenure", name))
			}
			if seen.pools[name].selective {
				s.InTheWay = append(s.InTheWay, fmt.Sprintf("pool %s has ranges for some nodes alone (nodeSelector), which whereabouts has no words for: it would give each node addresses of all ranges. "+
					"Leave it with Tenure, or take the nodeSelectors away", name))
			}
		}
	}
	for again := true; again; { // a pool is stopped as a whole
		again = false
		for i := range report.Segments {
			s := &report.Segments[i]
			j := slices.IndexFunc(report.Segments, func(o moveSegment) bool {
				return len(o.InTheWay) > 0 && slices.ContainsFunc(o.Pools, func(p string) bool { return slices.Contains(s.Pools, p) })
			})
			if len(s.InTheWay) == 0 && j >= 0 {
				s.InTheWay = append(s.InTheWay, fmt.Sprintf("it shares a pool with segment %s, of which something is in the way", report.Segments[j].name()))
				again = true
			}
		}
	}
}

// showing returns the pods whose status shows some definitions in this way.
func showing(pods []foreign.Pod, definitions []string, way func(npwg.Shown) bool) (names []string) {
	for i := range pods {
		if slices.ContainsFunc(pods[i].Shows, func(s npwg.Shown) bool { return way(s) && slices.Contains(definitions, s.Definition) }) {
			names = append(names, pods[i].String())
		}
	}
	slices.Sort(names)
	return names
}

// unkeptDevices says why addresses of devices cannot be exported.
func unkeptDevices(devices []string) string {
	return fmt.Sprintf("devices have addresses by ResourceClaims: %s. whereabouts looks for them in the status of the pod, which does not show devices, "+
		"and would take the record of a pod that runs away. Delete these pods first, or leave the network with Tenure", screen.Some(devices, 5))
}

// unkeptDefaults says why addresses of default networks cannot be exported.
func unkeptDefaults(pods []string) string {
	return fmt.Sprintf("it is the default network of pods: %s. whereabouts looks for no address of that, "+
		"and would take the record of a pod that runs away. Delete these pods first, or leave it with Tenure", screen.Some(pods, 5))
}

// shownBy returns the addresses that a status annotation shows, as they are written: those of other
// networks than the default one, and those of that.
func shownBy(annotation string) (beside, byDefault []string) {
	var elements []npwg.Status
	_ = json.Unmarshal([]byte(annotation), &elements) // as much of it as can be read
	for _, e := range elements {
		if e.Default {
			byDefault = append(byDefault, e.IPs...)
		} else {
			beside = append(beside, e.IPs...)
		}
	}
	return beside, byDefault
}

// isDefault reports whether a pod's status shows an address as one of its default network.
func (s foreignState) isDefault(pod string, addr netip.Addr) bool {
	return slices.ContainsFunc(s.byDefault[pod], func(text string) bool {
		text, _, _ = strings.Cut(text, "/")
		return text == addr.String()
	})
}

// unseen returns which addresses of pods that run whereabouts does not find in their status, as the
// very text that it has: its reconciler would take the records of these away. So it would those of
// pods that are gone, whose sandboxes may still run: deleted by force.
func (s foreignState) unseen(has []registrant) (hidden, gone, byDefault []string) {
	for _, o := range has {
		text := fmt.Sprintf("%v of pod %s", o.addr, o.ref())
		switch shown, runs := s.shown[o.ref()]; {
		case !runs:
			gone = append(gone, text)
		case slices.Contains(shown, o.addr.String()):
		case s.isDefault(o.ref(), o.addr):
			byDefault = append(byDefault, o.ref())
		default:
			hidden = append(hidden, text)
		}
	}
	return hidden, gone, byDefault
}
