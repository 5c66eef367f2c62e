package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// podNetworks reads the pod's list of PodNetworks. What is wrong with it is a fault, never
// ignored.
func (m *maker) podNetworks() []podnetwork.Element {
	text := m.answer.Pod.Annotations[podnetwork.AnnotationNetworks]
	if text == "" {
		return nil
	}
	where := "annotation " + podnetwork.AnnotationNetworks
	if m.answer.NoPodNetworks {
		m.warn(ReasonNoPodNetworks, "%s has no effect: PodNetworks are not served on this node: agent and controller need the flag --multi-network", where)
		return nil
	}
	elements, err := podnetwork.Parse(text)
	if err != nil {
		m.fail(where, "", "invalid: "+strings.ReplaceAll(err.Error(), "\n", "; "), "make the pod again with a correct list")
		return nil
	}
	if len(m.answer.PodNetworks) != len(elements) {
		m.fail(where, "", fmt.Sprintf("the agent says something of %d PodNetworks, and the list has %d", len(m.answer.PodNetworks), len(elements)), "look at the agent's version")
		return nil
	}
	return elements
}

// addPodNetworks plans the elements of the pod's list. Those without a name for their interface
// get the first of net1, net2, … that nobody has.
func (m *maker) addPodNetworks(elements []podnetwork.Element) {
	if len(elements) == 0 {
		return
	}
	if !slices.ContainsFunc(elements, podnetwork.Element.IsDefault) {
		m.warn(ReasonUnlisted, "annotation %s does not list PodNetwork %s: the pod is attached to the cluster's default network all the same", podnetwork.AnnotationNetworks, podnetwork.Default)
	}
	for i := range m.plan.Steps {
		if m.plan.Steps[i].Default {
			m.plan.Steps[i].PodNetwork = podnetwork.Default
		}
	}
	reserved := map[string]bool{}
	for _, e := range elements {
		reserved[e.Interface] = true
	}
	next := 0
	for i, e := range elements {
		if m.full("annotation " + podnetwork.AnnotationNetworks) {
			break
		}
		for e.Interface == "" && !e.IsDefault() {
			next++
			name := fmt.Sprintf("net%d", next)
			if _, taken := m.taken[name]; !taken && !reserved[name] {
				e.Interface = name
			}
		}
		m.addPodNetwork(i, e)
	}
}

// addPodNetwork plans one element. Who may use a definition is not asked: whoever wrote the
// PodNetwork has named it.
func (m *maker) addPodNetwork(i int, e podnetwork.Element) {
	where := fmt.Sprintf("element %d of %s", i+1, podnetwork.AnnotationNetworks)
	judged := m.answer.PodNetworks[i]
	missing := Step{Name: cmp.Or(judged.Name, e.Attachment), PodNetwork: judged.Name, IfName: e.Interface}
	switch {
	case judged.Refused != "":
		m.addFault(&Error{Where: where, Why: judged.Refused, Later: judged.Later})
		if !e.IsDefault() { // its step is there
			m.miss(missing)
		}
		return
	case e.IsDefault():
		m.gatewaysOfDefault(where, e)
		return
	case judged.Provider != "":
		m.note("PodNetwork %s is attached by its provider, %s, not by %s", judged.Name, judged.Provider, PluginType)
		return
	}
	m.take(where, judged.Name, e.Interface)
	d, l := m.findMade(where, judged.Name, judged.Definition, judged.MadeFor)
	if l == nil {
		m.miss(missing)
		return
	}
	step := Step{
		Name: judged.Name, PodNetwork: judged.Name, IfName: e.Interface, Network: l.name,
		Args:     append(m.argsOfOthers(), Arg{Key: argUnselected, Value: "1"}),
		Gateway4: e.Gateway4, Gateway6: e.Gateway6,
	}
	m.addDevice(where, &step, l, d)
	m.add(where, step, l)
}

// gatewaysOfDefault gives the default network's step what the list asks of it.
func (m *maker) gatewaysOfDefault(where string, e podnetwork.Element) {
	if e.Interface != "" && e.Interface != m.call.IfName {
		m.fail(where, podnetwork.Default, fmt.Sprintf("it asks for interface %s; the runtime calls the default network's %s", e.Interface, m.call.IfName), "remove interfaceName")
	}
	for i := range m.plan.Steps {
		if m.plan.Steps[i].Default {
			m.plan.Steps[i].Gateway4, m.plan.Steps[i].Gateway6 = e.Gateway4, e.Gateway6
		}
	}
}

// moveDefaultRoute marks the steps that lose default routes to another's: to an NPWG element's
// default-route (4.1.2.1.9), or to the gateway of a PodNetwork.
func (m *maker) moveDefaultRoute() {
	var with, gateways []string
	for _, s := range m.plan.Steps {
		if s.DefaultRoute != nil {
			with = append(with, s.Name)
		}
		if s.Gateway4 || s.Gateway6 {
			gateways = append(gateways, s.Name)
		}
	}
	switch {
	case len(with)+len(gateways) == 0:
		return
	case len(with) > 1:
		m.fail("default-route", strings.Join(with, ", "), "more than one attachment asks for the default route (NPWG 4.1.2.1.9)", "keep the key on one of them")
	case len(with) > 0 && len(gateways) > 0:
		m.fail("default-route", strings.Join(append(with, gateways...), ", "), "a network has default-route, and a PodNetwork isDefaultGW4 or isDefaultGW6", "keep one of them")
	}
	for i := range m.plan.Steps {
		s := &m.plan.Steps[i]
		lose4 := slices.ContainsFunc(m.plan.Steps, func(o Step) bool { return o.Gateway4 }) && !s.Gateway4
		lose6 := slices.ContainsFunc(m.plan.Steps, func(o Step) bool { return o.Gateway6 }) && !s.Gateway6
		s.LosesDefaultRoute = len(with) > 0 && s.DefaultRoute == nil || lose4 || lose6
	}
}

// checkRoutes fails a step that asks for the default route where its interface's routes do not stay
// in the main table: a default route there could not reach the gateway, and in another table
// what the pod sends would not look for it.
func (m *maker) checkRoutes(where string, s Step, l *list) {
	key := ""
	switch {
	case s.DefaultRoute != nil:
		key = "default-route"
	case s.Gateway4:
		key = "isDefaultGW4"
	case s.Gateway6:
		key = "isDefaultGW6"
	}
	chain, moves := l.movesRoutes()
	if key == "" || !moves {
		return
	}
	m.fail(where, s.Name, fmt.Sprintf("it has %s, and the chain %s takes the routes of its interface out of the main table, where the pod's default route is", key, chain),
		"remove "+key+", or select a network without that chain: what is sent from the interface or its address goes by the gateway (sbr) or the routes (vrf) of the network's pool or ipam section without that")
}
