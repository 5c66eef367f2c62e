package moving

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// comparison compares what pods show of one segment with what the other IPAM has recorded.
type comparison struct {
	seen  foreignState
	group []foreign.Definition
	// mine are the segment's definitions, and old those that name the other IPAM still.
	mine, old map[string]bool
	// given is on which nodes host-local may have given an address, to which of their pods.
	given map[netip.Addr]map[protocol.NodeName]string
	// inTheWay says that what it has given on several nodes is in the way, and said already.
	inTheWay bool
	// shown is which pods show an address, and recorded for which pods it is recorded.
	shown, recorded map[netip.Addr][]string
	pods            map[string]*foreign.Pod
	findings        []string
}

// compare fills in how much pods have of the segment, and what is wrong with the records.
func (s *moveSegment) compare(seen foreignState, group []foreign.Definition, from string) {
	for _, name := range s.Pools {
		for _, g := range seen.pools[name].kept {
			if a, err := netip.ParseAddr(g.Address); err == nil && inside(group, a) {
				s.Kept++
			}
		}
	}
	c := comparison{
		seen: seen, group: group, mine: map[string]bool{}, old: map[string]bool{},
		given: map[netip.Addr]map[protocol.NodeName]string{}, shown: map[netip.Addr][]string{}, recorded: map[netip.Addr][]string{}, pods: map[string]*foreign.Pod{},
	}
	for _, d := range group {
		c.mine[d.String()], c.old[d.String()] = true, slices.Contains(s.Switch, d.String())
	}
	for i := range seen.pods {
		if has := c.pod(&seen.pods[i]); has > 0 {
			s.Pods++
			s.Addresses += has
		}
	}
	if from == foreign.TypeWhereabouts {
		for _, r := range slices.Concat(seen.records, seen.reserved) {
			if c.ofSegment(r) {
				c.record(r)
			}
		}
		c.findUnrecorded()
	}
	if same := c.ofEachNode(); from == foreign.TypeHostLocal && len(s.Switch) > 0 && len(same) > 0 {
		c.inTheWay = true
		s.InTheWay = append(s.InTheWay, fmt.Sprintf("host-local gives the same addresses on every node: %s. If each node has a network of its own, such as a bridge, this cannot become one pool: "+
			"leave it with host-local. If the nodes share one wire, delete all but one of the pods that have one address, and call again", screen.Some(same, 3)))
	}
	c.findShared()
	c.findGateways()
	if from != foreign.Type {
		c.findAsked()
	}
	slices.Sort(c.findings)
	s.Findings = c.findings
}

// findGateways finds pairs of definitions with two gateways of one subnet.
func (c *comparison) findGateways() {
	for i, d := range c.group {
		for _, o := range c.group[:i] {
			for cidr, gw := range d.Gateways {
				if other, ok := o.Gateways[cidr]; ok && other != gw {
					c.find("%s has gateway %v of %v, and %s has %v; each answers its own, and neither is given to a pod: if these are two wires, %s",
						d, gw, cidr, o, other, poolspec.RemedyTwoWires)
				}
			}
		}
	}
}

// findAsked finds definitions by which pods get whichever addresses they ask for, and that may be
// of the segment: they name no subnet.
func (c *comparison) findAsked() {
	for _, d := range c.seen.definitions {
		if d.AnyAddress && len(d.CIDRs) == 0 && slices.ContainsFunc(c.group, func(o foreign.Definition) bool { return !apart(d, o) }) {
			c.find("%s names %s, and gives a pod whichever address the pod asks for (ips): see that no pod asks for one of the segment, or set its annotation tenure.dev/domain if it is another segment", d, d.IPAM)
		}
	}
}

func (c *comparison) find(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
}

// pod takes up what a pod shows of the segment, and returns how many addresses of that are
// by definitions that name the other IPAM still.
func (c *comparison) pod(p *foreign.Pod) (has int) {
	c.pods[p.String()] = p
	for _, show := range p.Shows {
		if !c.mine[show.Definition] {
			continue
		}
		for _, a := range show.Addrs {
			c.shown[a] = append(c.shown[a], p.String())
			if c.hostLocal(show.Definition) {
				if c.given[a] == nil {
					c.given[a] = map[protocol.NodeName]string{}
				}
				c.given[a][p.Node] = p.String()
			}
		}
		if c.old[show.Definition] {
			has += len(show.Addrs)
		}
	}
	return has
}

// ofSegment reports whether a record is of the segment: the address is, and the object is
// the one that a definition of the segment means, or that none does.
func (c *comparison) ofSegment(r foreign.Record) bool {
	means := func(d foreign.Definition) bool {
		return r.Object == foreign.ReservationName(d.NetworkName, r.Addr) ||
			slices.ContainsFunc(d.Whereabouts, func(o foreign.Object) bool { return o.Name == r.Object })
	}
	return inside(c.group, r.Addr) && (slices.ContainsFunc(c.group, means) || !slices.ContainsFunc(c.seen.definitions, means))
}

// inside reports whether an address is in a range of one of some definitions.
func inside(group []foreign.Definition, a netip.Addr) bool {
	return slices.ContainsFunc(group, func(d foreign.Definition) bool {
		return slices.ContainsFunc(d.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// record takes up a record. What the IPPool has said, the reservation does not say again.
func (c *comparison) record(r foreign.Record) {
	pod := r.PodNamespace + "/" + r.PodName
	if slices.Contains(c.recorded[r.Addr], pod) {
		return
	}
	c.recorded[r.Addr] = append(c.recorded[r.Addr], pod)
	p := c.pods[pod]
	switch {
	case p == nil && !c.seen.idle[pod]:
		c.find("%v is recorded (%s) for pod %s, which is gone: it is not kept", r.Addr, r.Source, pod)
	case p == nil || !p.Selects(c.mine):
		c.find("%v is recorded (%s) for pod %s, which runs but selects no network of the segment: it is not kept", r.Addr, r.Source, pod)
	case slices.Contains(c.shown[r.Addr], pod):
	default:
		if shows := c.showsOf(p); shows != "" {
			c.find("%v is recorded (%s) for pod %s, whose status shows %s: all of them are kept", r.Addr, r.Source, pod, shows)
		} else {
			c.find("%v is recorded (%s) for pod %s, whose status shows no address of the segment: it is kept", r.Addr, r.Source, pod)
		}
	}
}

// showsOf lists what a pod's status shows of the segment.
func (c *comparison) showsOf(p *foreign.Pod) string {
	var all []string
	for _, show := range p.Shows {
		for _, a := range show.Addrs {
			if c.mine[show.Definition] {
				all = append(all, a.String())
			}
		}
	}
	return strings.Join(all, ", ")
}

// findUnrecorded finds addresses that pods show and that the other IPAM has recorded for nobody,
// as far as their definitions still name that IPAM.
func (c *comparison) findUnrecorded() {
	for _, p := range c.pods {
		for _, show := range p.Shows {
			for _, a := range show.Addrs {
				if c.old[show.Definition] && len(c.recorded[a]) == 0 {
					c.find("%v is shown by pod %s and recorded for nobody: it is kept", a, p)
				}
			}
		}
	}
}

// hostLocal reports whether a definition of the segment is in host-local's form.
func (c *comparison) hostLocal(definition string) bool {
	return slices.ContainsFunc(c.group, func(d foreign.Definition) bool { return d.HostLocal && d.String() == definition })
}

// ofEachNode says which addresses host-local has given on several nodes, in their order.
func (c *comparison) ofEachNode() (same []string) {
	for _, a := range slices.SortedFunc(maps.Keys(c.given), netip.Addr.Compare) {
		if len(c.given[a]) < 2 {
			continue
		}
		var pods []string
		for _, node := range slices.Sorted(maps.Keys(c.given[a])) {
			pods = append(pods, fmt.Sprintf("pod %s on node %s", c.given[a][node], node))
		}
		same = append(same, fmt.Sprintf("%v to %s", a, strings.Join(pods, " and to ")))
	}
	return same
}

// findShared finds addresses that more than one pod has.
func (c *comparison) findShared() {
	for a, pods := range c.shown {
		slices.Sort(pods)
		switch pods = slices.Compact(pods); {
		case len(pods) < 2:
		case len(c.given[a]) == len(pods) && c.inTheWay:
		case len(c.given[a]) == len(pods):
			c.find("%v is shown by pods on several nodes: %s. host-local gives the same addresses on every node: delete all but one if the nodes share one wire, and none if each has a network of its own", a, strings.Join(pods, ", "))
		default:
			c.find("%v is shown by several running pods: %s. It is taken from none of them: delete all but one", a, strings.Join(pods, ", "))
		}
	}
	for a, pods := range c.recorded {
		if len(pods) < 2 {
			continue
		}
		slices.Sort(pods)
		run := slices.DeleteFunc(slices.Clone(pods), func(ref string) bool { p := c.pods[ref]; return p == nil || !p.Selects(c.mine) })
		switch {
		case len(run) > 1 && len(c.shown[a]) > 1: // said already, with what to do
			c.find("%v is recorded for several pods: %s", a, strings.Join(pods, ", "))
		case len(run) > 1:
			c.find("%v is recorded for several pods: %s. It is taken from none of them: delete all but one of those that run", a, strings.Join(pods, ", "))
		case len(run) == 1:
			c.find("%v is recorded for several pods: %s. It is kept for %s, which runs", a, strings.Join(pods, ", "), run[0])
		default:
			c.find("%v is recorded for several pods: %s. None of them has it any more", a, strings.Join(pods, ", "))
		}
	}
}
