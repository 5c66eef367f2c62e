package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A Call is what the runtime says of an ADD.
type Call struct {
	ContainerID, Netns, IfName string
	// Args are CNI_ARGS, in order.
	Args []Arg
	// Runtime is runtimeConfig: what the runtime asks of the default network.
	Runtime map[string]json.RawMessage
	// Running says that the pod is attached, and runs.
	Running bool
}

// Make returns the plan of an ADD. It reads configurations through disk and does nothing else. An
// error joins one *[Error] for each reason why the pod cannot be attached, and of many says how
// many more there are; then the plan has the steps that could be made, to be shown and never to be
// carried out.
func Make(c *Config, call Call, a facts.Answer, disk Disk) (Plan, error) {
	m := &maker{config: c, call: call, answer: a, disk: disk, taken: map[string]string{}, devices: map[string]bool{}}
	m.plan.Pod, m.plan.Moving = a.Pod.PodRef, a.Pod.Moving
	for _, ignored := range c.Ignored {
		m.note("configuration key without effect: %s", ignored)
	}
	selections, listed := m.selections(), m.podNetworks()
	m.nameVIFs(selections)
	m.addDefault()
	m.addExtras(selections, listed)
	for i, sel := range selections {
		if m.full("annotation " + npwg.AnnotationNetworks) {
			break
		}
		m.addSelected(i, sel)
	}
	m.addPodNetworks(listed)
	m.moveDefaultRoute()
	m.plan.Warnings = facts.Limit(m.plan.Warnings)
	if m.more > 0 {
		m.faults = append(m.faults, fmt.Errorf("and %d more", m.more))
	}
	return m.plan, errors.Join(m.faults...)
}

// A maker makes one plan.
type maker struct {
	config *Config
	call   Call
	answer facts.Answer
	disk   Disk

	plan    Plan
	faults  []error
	more    int               // faults that are not said
	size    int               // of the steps' configurations
	taken   map[string]string // interface name → what has it
	devices map[string]bool   // the names of the devices that are assigned
}

func (m *maker) note(format string, args ...any) {
	m.plan.Notes = append(m.plan.Notes, fmt.Sprintf(format, args...))
}

func (m *maker) warn(reason, format string, args ...any) {
	m.plan.Warnings = append(m.plan.Warnings, facts.Warning{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// maxFaults is how many faults are said: an annotation may name what does not exist a
// hundred thousand times, and all of them would go to the runtime's log, again and again.
const maxFaults = 16

// fail adds a fault of what asks for network.
func (m *maker) fail(where, network, why, do string) {
	m.addFault(&Error{Where: where, Network: network, Why: why, Do: do})
}

func (m *maker) addFault(e *Error) {
	if len(m.faults) == maxFaults {
		m.more++
		return
	}
	e.Pod, e.Why = m.plan.Pod, facts.Cut(e.Why)
	m.faults = append(m.faults, e)
}

// maxSize is how many bytes of configurations a plan may have: a large one that is selected
// again and again would fill the node's memory, and the journal has no room for it.
const maxSize = 8 << 20

// full reports whether the configurations so far are more than a plan may have, and says so of
// what asks for more.
func (m *maker) full(where string) bool {
	if m.size <= maxSize {
		return false
	}
	m.fail(where, "", fmt.Sprintf("the configurations of what it selects have more than %d bytes", maxSize), "select fewer networks, or smaller ones")
	return true
}

// selections reads the pod's annotation. An invalid one selects nothing, unless the pod runs, and
// would lose what it has, or the configuration makes it an error, or it is too large, or it selects
// VIFs: of these the specification, by which it is ignored, says nothing, and who decides about
// them makes none.
func (m *maker) selections() []npwg.Selection {
	selections, err := npwg.Parse(m.answer.Pod.Annotations[npwg.AnnotationNetworks], m.plan.Pod.Namespace, m.version)
	if err == nil {
		return selections
	}
	faults := strings.ReplaceAll(err.Error(), "\n", "; ")
	switch where := "annotation " + npwg.AnnotationNetworks; {
	case errors.Is(err, npwg.ErrTooLarge):
		m.fail(where, "", faults, "select fewer networks")
		return nil
	case m.call.Running:
		m.fail(where, "", "invalid: "+faults, "correct it: until then the pod, which runs, stays as it is")
		return nil
	case m.config.FailInvalid:
		m.fail(where, "", "invalid: "+faults, "correct it (invalidAnnotation is Fail)")
		return nil
	case len(m.answer.VIFs) > 0:
		m.fail(where, "", "invalid: "+faults, "correct it (it selects a network whose interfaces the control plane decides, so that it is not ignored)")
		return nil
	}
	m.warn(ReasonInvalid, "annotation %s is invalid and is ignored as a whole, so that the pod has its default network only: %s", npwg.AnnotationNetworks, faults)
	return nil
}

// version returns by which version's rules an element of a definition is read.
func (m *maker) version(namespace, name string) npwg.Version {
	return npwg.VersionOf(m.definition(facts.Ref{Namespace: namespace, Name: name}).Annotations, m.config.Version)
}

func (m *maker) definition(ref facts.Ref) facts.Definition {
	i := slices.IndexFunc(m.answer.Networks, func(d facts.Definition) bool { return d.Ref == ref })
	if i < 0 {
		why := "the agent says nothing of it"
		if len(m.answer.Networks) >= maxWanted {
			why = fmt.Sprintf("the pod names more than %d definitions, and no others are looked up", maxWanted)
		}
		return facts.Definition{Ref: ref, Missing: why}
	}
	return m.answer.Networks[i]
}

// addSelected plans element i of the annotation.
func (m *maker) addSelected(i int, sel npwg.Selection) {
	where := fmt.Sprintf("element %d", i+1)
	if v, ok := m.vif(i); ok {
		m.addVIF(where, sel, v)
		return
	}
	ref := facts.Ref{Namespace: sel.Namespace, Name: sel.Name}
	m.take(where, ref.String(), sel.Interface)
	d, l := m.findSelected(where, ref, m.config.GlobalNamespaces)
	if l == nil {
		m.miss(Step{Name: ref.String(), IfName: sel.Interface})
		return
	}
	step := Step{Name: ref.String(), IfName: sel.Interface, Network: l.name, Args: m.argsOfOthers(), Requested: requested(sel)}
	m.request(where, &step, l, sel)
	step.DefaultRoute = sel.DefaultRoute
	step.GUID, step.Claim = sel.GUID, sel.Claim
	m.addDevice(where, &step, l, d)
	m.sayUnknown(where, sel)
	m.add(where, step, l)
}

// findSelected returns the definition that an annotation names, and its configuration. l is nil
// if the pod cannot have it, and then it has said why. Definitions of the namespaces in global
// are for everybody.
func (m *maker) findSelected(where string, ref facts.Ref, global []string) (d facts.Definition, l *list) {
	d = m.definition(ref)
	if why := m.whyForbidden(d, global...); why != "" { // first: what exists elsewhere is not the pod's business
		m.fail(where, ref.String(), why, howToAllow)
		return d, nil
	}
	if d.Missing != "" {
		m.fail(where, ref.String(), d.Missing, "create the definition, or correct the annotation")
		return d, nil
	}
	l, err := m.listOf(d)
	if err != nil {
		m.failList(where, ref.String(), err)
		return d, nil
	}
	return d, l
}

// miss notes that no step could be made.
func (m *maker) miss(s Step) { m.plan.Missing = append(m.plan.Missing, s) }

// maxDepth is how deep objects and lists may lie in each other in what plugins are given.
// Results and the journal wrap it further, and no program reads beyond some depth.
const maxDepth = 100

// add appends a step with its list.
func (m *maker) add(where string, step Step, l *list) {
	m.checkRoutes(where, step, l)
	step.List = l.marshal()
	if plainjson.Deeper(step.List, maxDepth) {
		m.fail(where, step.Name, fmt.Sprintf("its configuration, or cni-args, has more than %d objects and lists in each other", maxDepth), "make it flatter")
	}
	m.size += len(step.List)
	m.plan.Steps = append(m.plan.Steps, step)
}

// take reserves an interface name, which a previous attachment must not have
// (4.1.2.1.5).
func (m *maker) take(where, network, ifName string) {
	if by, ok := m.taken[ifName]; ok {
		m.fail(where, network, fmt.Sprintf("interface %s is already that of %s (NPWG 4.1.2.1.5)", ifName, by), "ask for another name with the key interface")
		return
	}
	m.taken[ifName] = where
}

// listOf returns the configuration of a definition (3.4.1), with the definition's
// name where it has none (3.4.2).
func (m *maker) listOf(d facts.Definition) (*list, error) {
	if v := d.Annotations[npwg.AnnotationVersion]; v != "" && v != "1" && v != "1.3" {
		return nil, fmt.Errorf(`annotation %s: %q is neither "1" nor "1.3"`, npwg.AnnotationVersion, v)
	}
	text, from := []byte(nil), "spec.config"
	if d.Config != nil {
		text = []byte(strings.TrimSpace(*d.Config))
	}
	if len(text) == 0 {
		raw, err := m.disk.Lookup(d.Name)
		if err != nil {
			return nil, fmt.Errorf("it has no spec.config, and on this node there is no configuration named %s (NPWG 3.4.1): %w", d.Name, err)
		}
		text, from = raw, "file"
	}
	l, err := m.usable(text, d.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	if l.name != d.Name {
		m.note("definition %v: its configuration has the name %s; the same name for both is recommended (NPWG 3.4.3)", d.Ref, l.name)
	}
	return l, nil
}

// usable reads a configuration that is to be run, and names it if it has no name.
func (m *maker) usable(text []byte, name string) (*list, error) {
	l, err := parseList(text)
	if err != nil {
		return nil, err
	}
	if l.name == "" {
		l.name = name
	}
	switch err := cmp.Or(l.checkName(), l.checkPlugins()); {
	case err != nil:
		return nil, err
	case len(l.plugins) == 0:
		return nil, fmt.Errorf("plugins: network %s has none", l.name)
	}
	l.loadsMore = false // a file's have been loaded, a definition's are all there
	return l, nil
}

func (m *maker) failList(where, network string, err error) {
	m.fail(where, network, err.Error(), "correct the network's configuration")
}

// argsOfDefault returns CNI_ARGS of the default network: the runtime's, but for what
// the plan alone can say.
func (m *maker) argsOfDefault() []Arg {
	args := slices.DeleteFunc(slices.Clone(m.call.Args), func(a Arg) bool { return a.Key == argUnselected })
	if !slices.ContainsFunc(args, func(a Arg) bool { return a.Key == "IgnoreUnknown" }) {
		args = append(args, Arg{Key: "IgnoreUnknown", Value: "1"})
	}
	return args
}

// argsOfOthers returns CNI_ARGS of the other networks: the runtime's without what
// it asks of the default network (7.5).
func (m *maker) argsOfOthers() []Arg {
	return slices.DeleteFunc(m.argsOfDefault(), func(a Arg) bool { return a.Key == "IP" || a.Key == "MAC" || a.Key == "GATEWAY" })
}

// sayUnknown warns of keys of an element that are reserved and mean nothing: most
// often misspelt ones (4.1.2.1).
func (m *maker) sayUnknown(where string, sel npwg.Selection) {
	for _, key := range slices.Sorted(maps.Keys(sel.Other)) {
		if !strings.Contains(key, ".") {
			m.warn(ReasonUnknownKey, "annotation %s: %s (%v): key %s has no effect: the version of the specification in use does not know it", npwg.AnnotationNetworks, where, sel, key)
		}
	}
}

// requested returns what a result must show of what sel asks for.
func requested(sel npwg.Selection) (w Requested) {
	for _, ip := range sel.IPs {
		w.IPs = append(w.IPs, ip.Addr.Unmap())
	}
	w.MAC = sel.MAC
	return w
}
