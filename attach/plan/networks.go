package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// whereDefault is how messages name what asks for the default network.
const whereDefault = "default network"

// argUnselected is the key of CNI_ARGS that tells Tenure's IPAM plugin that no element
// of the pod's annotation selects an interface, so that its agent need not ask the API
// server for a later annotation: poolspec.ArgUnselected, which is not linked into a
// plugin for a word.
const argUnselected = "TENURE_UNSELECTED"

// addDefault plans the default network: the configuration's, or the one that the
// pod's annotation names.
func (m *maker) addDefault() {
	m.taken[m.call.IfName] = "the " + whereDefault
	if text := m.answer.Pod.Annotations[npwg.AnnotationDefaultNetwork]; text != "" {
		m.addOwnDefault(text)
		return
	}
	l, d, err := m.resolve(m.config.Default)
	if err != nil {
		m.failList(m.config.Default.Key, "", err)
		return
	}
	step := m.defaultStep(l, d)
	m.addDevice(whereDefault, &step, l, d)
	m.add(whereDefault, step, l)
}

// defaultStep begins the default network's step. What the runtime asks for is for
// this network alone (7.5).
func (m *maker) defaultStep(l *list, d facts.Definition) Step {
	return Step{
		Name: nameOf(l, d), Default: true, IfName: m.call.IfName, Network: l.name,
		Args: m.argsOfDefault(), Capabilities: maps.Clone(m.call.Runtime),
	}
}

// nameOf returns a network's name for the status annotation.
func nameOf(l *list, d facts.Definition) string {
	if d.Name == "" {
		return l.name
	}
	return d.Ref.String()
}

// addOwnDefault plans the default network that a pod's own annotation names.
func (m *maker) addOwnDefault(text string) {
	where := "annotation " + npwg.AnnotationDefaultNetwork
	selections, err := npwg.Parse(text, m.config.Namespace, m.version)
	if err == nil && len(selections) != 1 {
		err = fmt.Errorf("it names %d networks; there is one default network", len(selections))
	}
	if err != nil {
		m.fail(where, "", "invalid: "+err.Error(), "name one definition, as in namespace/name")
		return
	}
	sel := selections[0]
	ref := facts.Ref{Namespace: sel.Namespace, Name: sel.Name}
	if sel.Named && sel.Interface != m.call.IfName {
		m.fail(where, ref.String(), fmt.Sprintf("it asks for interface %s; the runtime calls the default network's %s", sel.Interface, m.call.IfName), "remove the interface's name")
	}
	d, l := m.findSelected(where, ref, append([]string{m.config.Namespace}, m.config.GlobalNamespaces...))
	if l == nil {
		return
	}
	step := m.defaultStep(l, d)
	step.Requested, step.GUID, step.DefaultRoute = requested(sel), sel.GUID, sel.DefaultRoute
	if sel.Claim != "" {
		m.warn(ReasonClaim, "%s, network %s: ipam-claim-reference %s has no effect: claims are for the networks beside the default one (NPWG 8); ask for addresses with ips",
			where, step.Name, sel.Claim)
	}
	m.request(where, &step, l, sel)
	m.addDevice(where, &step, l, d)
	m.sayUnknown(where, sel)
	m.add(where, step, l)
}

// addExtras plans the networks that the configuration gives to pods beside the
// default one. Their interfaces get the names that the pod's selections leave, so
// that a selection's name depends on the annotation alone.
func (m *maker) addExtras(selections []npwg.Selection, listed []podnetwork.Element) {
	sources := m.config.extras(m.plan.Pod.Namespace)
	reserved := map[string]bool{m.call.IfName: true}
	for _, sel := range selections {
		reserved[sel.Interface] = true
	}
	for _, e := range listed {
		reserved[e.Interface] = true
	}
	for _, s := range sources {
		reserved[s.IfName] = true
	}
	n := len(selections)
	for _, s := range sources {
		for s.IfName == "" {
			n++
			if name := fmt.Sprintf("net%d", n); !reserved[name] {
				s.IfName = name
			}
		}
		m.addExtra(s)
	}
}

func (m *maker) addExtra(s Source) {
	l, d, err := m.resolve(s)
	if err != nil {
		m.failList(s.Key, "", err)
		return
	}
	m.take(s.Key, nameOf(l, d), s.IfName)
	args := append(m.argsOfOthers(), Arg{Key: argUnselected, Value: "1"})
	step := Step{Name: nameOf(l, d), IfName: s.IfName, Network: l.name, Args: args}
	m.addDevice(s.Key, &step, l, d)
	m.add(s.Key, step, l)
}

// resolve returns the configuration of a network that the plugin's configuration
// names, and its definition if it has one.
func (m *maker) resolve(s Source) (*list, facts.Definition, error) {
	none := facts.Definition{}
	switch {
	case s.Inline != nil:
		l, err := m.usable(s.Inline, "")
		return l, none, err
	case s.Path != "":
		raw, err := m.disk.Read(s.Path)
		if err != nil {
			return nil, none, err
		}
		l, err := m.usable(raw, "")
		return l, none, err
	}
	ref, _ := m.config.ref(s)
	d := m.definition(ref)
	if d.Missing == "" {
		l, err := m.listOf(d)
		return l, d, err
	}
	if s.Namespace != "" {
		return nil, none, fmt.Errorf("definition %v: %s", ref, d.Missing)
	}
	raw, err := m.disk.Lookup(s.Name)
	if errors.Is(err, ErrNotFound) {
		return nil, none, fmt.Errorf("%s names neither a definition (%v: %s) nor a configuration on this node (%w)", s.Name, ref, d.Missing, err)
	}
	if err != nil {
		return nil, none, err
	}
	l, err := m.usable(raw, "")
	return l, none, err
}

// DefaultDefinition returns the definition that may have the default network's
// configuration; ok is false where it cannot be in one.
func (c *Config) DefaultDefinition() (ref facts.Ref, ok bool) { return c.ref(c.Default) }

// HasConfig reports whether the definition ref is among networks and has its
// configuration in it, not in a file of its name.
func HasConfig(networks []facts.Definition, ref facts.Ref) bool {
	return slices.ContainsFunc(networks, func(d facts.Definition) bool {
		return d.Ref == ref && d.Missing == "" && d.Config != nil && strings.TrimSpace(*d.Config) != ""
	})
}

// DefaultNetwork returns the configuration list of the default network that c
// names, for a STATUS or a GC, which are for no pod. networks are the definitions
// that the configuration's question asks for, as far as they are known.
func DefaultNetwork(c *Config, networks []facts.Definition, disk Disk) (Step, error) {
	m := &maker{config: c, answer: facts.Answer{Networks: networks}, disk: disk}
	l, d, err := m.resolve(c.Default)
	if err != nil {
		return Step{}, fmt.Errorf("%s: %w", c.Default.Key, err)
	}
	return Step{Name: nameOf(l, d), Default: true, Network: l.name, List: l.marshal()}, nil
}
