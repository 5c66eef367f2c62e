package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// A Change says how an attached pod comes to have what it selects now.
type Change struct {
	// Steps are the steps that the pod is to have, in order.
	Steps []Changed
	// Gone are the attachments that it is to have no more, by their places.
	Gone []int
}

// A Changed is a step of a [Change].
type Changed struct {
	Step
	// Was is the place of the attachment that the step has, or comes in the place of. It is -1 if
	// the step is new.
	Was int
	// Anew says that the attachment is ended, and made again by the step.
	Anew bool
}

// None reports whether there is nothing to do.
func (c Change) None() bool {
	return len(c.Gone) == 0 && !slices.ContainsFunc(c.Steps, func(s Changed) bool { return s.Was < 0 || s.Anew })
}

// Ends reports whether an attachment is ended.
func (c Change) Ends() bool {
	return len(c.Gone) > 0 || slices.ContainsFunc(c.Steps, func(s Changed) bool { return s.Anew })
}

// Unchanged returns the change by which all attachments stay.
func Unchanged(attached []Step) (c Change) {
	for i, s := range attached {
		c.Steps = append(c.Steps, Changed{Step: s, Was: i})
	}
	return c
}

// Difference returns the change from the steps that a pod is attached by to its plan of now, which
// [Make] has made. Only elements of the annotation come and go: the default network, the networks
// that the plugin's configuration adds, PodNetworks and VIFs stay as they are. An attachment and an
// element belong together by the interface. Whether the element is another one is seen by what it
// says: that its definition has another configuration by now changes nothing of a running pod.
//
// An error joins one *[Error] for each reason why the pod cannot be changed so; then nothing of it
// is to be changed.
func Difference(attached []Step, now Plan) (Change, error) {
	d := differ{plan: now}
	for i, s := range attached {
		if !s.plugs() {
			d.change.Steps = append(d.change.Steps, Changed{Step: s, Was: i})
		}
	}
	kept := map[int]bool{}
	for _, s := range now.Steps {
		if !s.plugs() {
			d.stays(attached, s)
			continue
		}
		was := slices.IndexFunc(attached, func(a Step) bool { return a.plugs() && a.IfName == s.IfName })
		c := Changed{Step: s, Was: was, Anew: was >= 0 && !attached[was].sameElement(s)}
		if was >= 0 {
			kept[was] = true
			if !c.Anew {
				c.Step = attached[was]
			}
		}
		d.change.Steps = append(d.change.Steps, c)
	}
	for i, s := range attached {
		switch {
		case s.plugs() && !kept[i]:
			d.change.Gone = append(d.change.Gone, i)
			d.checkRoute(s, "detached from")
		case s.decided() && !slices.ContainsFunc(now.Steps, func(n Step) bool { return n.decided() && n.IfName == s.IfName }):
			d.refuse(s, whyDecided, "make another pod")
		}
	}
	d.checkNew(attached)
	if err := errors.Join(d.faults...); err != nil {
		return Change{}, err
	}
	return d.change, nil
}

// whyDecided is why a VIF, or an element of a list of PodNetworks, neither comes nor goes.
const whyDecided = "the control plane decides about its interface when the pod is made, and neither adds nor removes one of a running pod"

// plugs reports whether the step is of an element of the annotation that may come and go.
func (s Step) plugs() bool {
	return !s.Default && !s.decided() && !s.hasArg(argUnselected)
}

// decided reports whether the control plane decides about the step's interface.
func (s Step) decided() bool { return !s.Default && (s.PodNetwork != "" || s.hasArg(argClaim)) }

func (s Step) hasArg(key string) bool {
	return slices.ContainsFunc(s.Args, func(a Arg) bool { return a.Key == key })
}

// sameElement reports whether an element says what that of the step said which attached the pod.
func (s Step) sameElement(now Step) bool {
	sameRoute := (s.DefaultRoute == nil) == (now.DefaultRoute == nil) && (s.DefaultRoute == nil || slices.Equal(*s.DefaultRoute, *now.DefaultRoute))
	return s.Name == now.Name && s.GUID == now.GUID && s.Claim == now.Claim && sameRoute &&
		s.Requested.MAC == now.Requested.MAC && slices.Equal(s.Requested.IPs, now.Requested.IPs) &&
		maps.EqualFunc(s.asked(), now.asked(), func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) &&
		(bytes.Equal(s.CNIArgs, now.CNIArgs) || len(s.CNIArgs) == 0 && s.listHas(now.CNIArgs))
}

// asked returns the capability arguments that the element asks for, which are not of a device, also
// where CNI_ARGS stand for them: whether the network declares the capability may have changed.
func (s Step) asked() map[string]json.RawMessage {
	asked := map[string]json.RawMessage{}
	for name, value := range s.Capabilities {
		if name != capabilityDevice && name != capabilityDeviceFile {
			asked[name] = value
		}
	}
	for _, a := range s.Args {
		switch a.Key {
		case "IP":
			asked["ips"] = encode(strings.Split(a.Value, ","))
		case "MAC":
			asked["mac"] = quote(a.Value)
		}
	}
	return asked
}

// listHas reports whether every plugin of the step's list has these arguments already. A step that
// an earlier version has kept does not say what its element's were.
func (s Step) listHas(args json.RawMessage) bool {
	var want map[string]json.RawMessage
	l, err := parseList(s.List)
	if err != nil || json.Unmarshal(args, &want) != nil {
		return false
	}
	for _, p := range l.plugins {
		all, has := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		if member(p.members, "args", &all, "an object") != nil || member(all, "cni", &has, "an object") != nil {
			return false
		}
		for name, value := range want {
			if !bytes.Equal(has[name], value) {
				return false
			}
		}
	}
	return len(want) > 0
}

// A differ finds the difference of two plans.
type differ struct {
	plan   Plan
	change Change
	faults []error
}

func (d *differ) refuse(s Step, why, do string) {
	d.faults = append(d.faults, &Error{Pod: d.plan.Pod, Where: "annotation " + npwg.AnnotationNetworks, Network: s.Name, Why: "interface " + s.IfName + ": " + why, Do: do})
}

// stays refuses an interface that the control plane decides about, and that the pod does not have.
func (d *differ) stays(attached []Step, s Step) {
	if s.decided() && !slices.ContainsFunc(attached, func(a Step) bool { return a.decided() && a.IfName == s.IfName }) {
		d.refuse(s, whyDecided, "make another pod")
	}
}

// checkRoute refuses an element that moves default routes: those of eth0 are untouched while a pod
// runs.
func (d *differ) checkRoute(s Step, what string) {
	if s.DefaultRoute != nil {
		d.refuse(s, "it has default-route, and is not "+what+" a running pod: that would change the routes of the pod's other interfaces", "make another pod, or leave default-route away")
	}
}

// checkNew refuses new attachments that would take what others have.
func (d *differ) checkNew(attached []Step) {
	names, devices := map[string]Step{}, map[string]Step{}
	for _, s := range d.change.Steps {
		if s.Was >= 0 && !s.Anew {
			names[s.IfName] = s.Step
			devices[s.deviceName()] = s.Step
		}
	}
	for _, s := range d.change.Steps {
		if s.Was >= 0 && !s.Anew {
			continue
		}
		d.checkRoute(s.Step, "attached to")
		if s.Anew {
			d.checkRoute(attached[s.Was], "detached from")
		}
		if by, ok := names[s.IfName]; ok {
			d.refuse(s.Step, "the pod has an interface of that name already, of network "+by.Name, "ask for another name with the key interface")
		}
		if by, ok := devices[s.deviceName()]; ok && s.deviceName() != "" {
			d.refuse(s.Step, fmt.Sprintf("device %s of %s is that of interface %s", s.Device.ID, s.Device.Resource, by.IfName), "append the element behind those that the pod has")
		}
	}
}

// deviceName names the device of the step; empty: it has none.
func (s Step) deviceName() string {
	if s.Device == nil || s.Device.ID == "" {
		return ""
	}
	return s.Device.name()
}

// name tells the device, which has an ID, from all others.
func (d Device) name() string { return cmp.Or(d.Name, d.Resource+"="+d.ID) }
