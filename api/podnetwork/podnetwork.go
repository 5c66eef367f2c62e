// Package podnetwork reads the annotation by which a pod lists PodNetworks, as the field
// spec.networks of the Kubernetes enhancement proposal "PodNetwork object, phase I" does, and
// writes the one that says which addresses it got by them. It is pure, and plugins link it.
package podnetwork

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// Keys of annotations of pods.
const (
	// AnnotationNetworks is a pod's list of PodNetworks: the proposal's spec.networks, as JSON.
	AnnotationNetworks = "tenure.dev/pod-networks"
	// AnnotationIPs is which addresses the pod has by them: the proposal's status.podIPs, as
	// JSON.
	AnnotationIPs = "tenure.dev/pod-ips"
)

// AnnotationMadeFor is the annotation of a definition that the controller makes, which says for
// which objects by their UIDs: one of an earlier PodNetwork of the same name is not this one's.
const AnnotationMadeFor = "tenure.dev/made-for"

// Gate is the scheduling gate that holds a pod back until its PodNetworks are ready.
const Gate = "tenure.dev/pod-networks"

// LiftPatch returns the strategic merge patch that takes the gate, and no other, from the pod with
// that UID.
func LiftPatch(uid string) []byte {
	return fmt.Appendf(nil, `{"metadata": {"uid": %q}, "spec": {"schedulingGates": [{"$patch": "delete", "name": %q}]}}`, uid, Gate)
}

// Admission is the name of everything that Tenure has the API server do with new pods that list
// PodNetworks: of both webhook configurations, and of the policy that stands in for the mutating
// one.
const Admission = "pod-networks.tenure.dev"

// Namespace is where the definitions stand that the controller makes.
const Namespace = "tenure-system"

// Provider is that of the PodNetworks that tenure-attach attaches pods to.
const Provider = "tenure.dev/attach"

// AnnotationKept is on a default PodNetwork that the controller makes again when it is gone. A
// policy refuses its deletion.
const AnnotationKept = "tenure.dev/kept"

// AnnotationUnserved is on the registration of a node whose pods are not attached to PodNetworks,
// and says why.
const AnnotationUnserved = "tenure.dev/pod-networks-unserved"

// Default is the name of the PodNetwork that stands for the cluster's default network.
const Default = "default"

// DefaultInterface is the name of the default network's interface.
const DefaultInterface = "eth0"

// maxElements is how many elements a list may have.
const maxElements = 256

// An Element is one element of the list.
type Element struct {
	// Network is podNetworkName, and Attachment podNetworkAttachmentName, which is of the pod's
	// namespace. Exactly one of the two is not empty.
	Network, Attachment string
	// Interface is interfaceName, empty where the element has none.
	Interface string
	// Gateway4 and Gateway6 are isDefaultGW4 and isDefaultGW6: the pod's default route of the
	// family goes through the network's gateway.
	Gateway4, Gateway6 bool
}

// String names the element's object for people.
func (e Element) String() string {
	if e.Attachment != "" {
		return "PodNetworkAttachment " + e.Attachment
	}
	return "PodNetwork " + e.Network
}

// IsDefault reports whether the element is the cluster's default network.
func (e Element) IsDefault() bool { return e.Network == Default }

// Parse reads the list; an empty text lists nothing. An error says everything that the list alone
// shows to be wrong: what a Kubernetes with the proposal's field would refuse at once ("static
// validations"). Then the elements are what could be read.
func Parse(text string) ([]Element, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var raws []json.RawMessage
	if err := json.Unmarshal([]byte(text), &raws); err != nil {
		if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			return nil, errors.New("it is one element: put it between [ and ]")
		}
		return nil, fmt.Errorf(`want a JSON list such as [{"podNetworkName": "lan"}]: %w`, err)
	}
	if len(raws) > maxElements {
		return nil, fmt.Errorf("it has %d elements; a pod may list %d", len(raws), maxElements)
	}
	var wrong npwg.Faults
	elements := make([]Element, len(raws))
	for i, raw := range raws {
		if err := elements[i].parse(raw); err != nil {
			wrong.Add(fmt.Errorf("element %d: %w", i+1, err))
		}
	}
	for _, err := range conflicts(elements) {
		wrong.Add(err)
	}
	return elements, wrong.Err() //nolint:wrapcheck // says which element it is about
}

func (e *Element) parse(raw json.RawMessage) error {
	members, err := plainjson.Object(raw)
	if err != nil || members == nil {
		return fmt.Errorf("%.80s is not an object", raw)
	}
	var wrong npwg.Faults
	for _, key := range slices.Sorted(maps.Keys(members)) {
		read, known := readers[key]
		if !known {
			wrong.Add(fmt.Errorf("key %.80q does not exist; there are %s", key, strings.Join(slices.Sorted(maps.Keys(readers)), ", ")))
			continue
		}
		if string(members[key]) == "null" {
			continue
		}
		if err := read(e, members[key]); err != nil {
			wrong.Add(fmt.Errorf("%s: %w", key, err))
		}
	}
	switch {
	case wrong.Err() != nil:
	case e.Network == "" && e.Attachment == "":
		wrong.Add(errors.New("it names no network: give podNetworkName or podNetworkAttachmentName"))
	case e.Network != "" && e.Attachment != "":
		wrong.Add(errors.New("it has podNetworkName and podNetworkAttachmentName; keep one"))
	case e.IsDefault() && e.Interface != "" && e.Interface != DefaultInterface:
		wrong.Add(fmt.Errorf("interfaceName: the default network's interface is %s, not %s", DefaultInterface, e.Interface))
	case !e.IsDefault() && e.Interface == DefaultInterface:
		wrong.Add(fmt.Errorf("interfaceName: %s is the default network's interface", DefaultInterface))
	}
	return wrong.Err() //nolint:wrapcheck // says which key it is about
}

// readers read the keys of an element.
var readers = map[string]func(*Element, json.RawMessage) error{
	"podNetworkName":           func(e *Element, raw json.RawMessage) error { return readName(raw, &e.Network) },
	"podNetworkAttachmentName": func(e *Element, raw json.RawMessage) error { return readName(raw, &e.Attachment) },
	"interfaceName": func(e *Element, raw json.RawMessage) error {
		if err := readText(raw, &e.Interface); err != nil || e.Interface == "" {
			return err
		}
		return npwg.CheckInterface(e.Interface)
	},
	"isDefaultGW4": func(e *Element, raw json.RawMessage) error { return readTruth(raw, &e.Gateway4) },
	"isDefaultGW6": func(e *Element, raw json.RawMessage) error { return readTruth(raw, &e.Gateway6) },
}

func readName(raw json.RawMessage, to *string) error {
	if err := readText(raw, to); err != nil || *to == "" {
		return err
	}
	return npwg.CheckName(*to)
}

func readText(raw json.RawMessage, to *string) (err error) {
	if *to, err = plainjson.ReadText[string](raw); err != nil {
		return fmt.Errorf("%.80s is not a string", raw)
	}
	return nil
}

func readTruth(raw json.RawMessage, to *bool) error {
	switch string(raw) {
	case "true":
		*to = true
	case "false":
	default:
		return fmt.Errorf("%.80s is neither true nor false", raw)
	}
	return nil
}

// conflicts says which elements ask for what only one can have.
func conflicts(elements []Element) (faults []error) {
	once := func(what string, of func(Element) string) {
		first := map[string]int{}
		for i, e := range elements {
			value := of(e)
			if value == "" {
				continue
			}
			if at, ok := first[value]; ok {
				faults = append(faults, fmt.Errorf("element %d: %s is on element %d as well; a pod has it once", i+1, strings.ReplaceAll(what, "*", value), at+1))
				continue
			}
			first[value] = i
		}
	}
	flag := func(set bool) string {
		if set {
			return "true"
		}
		return ""
	}
	once("PodNetwork *", func(e Element) string { return e.Network })
	once("PodNetworkAttachment *", func(e Element) string { return e.Attachment })
	once("interface *", func(e Element) string { return e.Interface })
	once("isDefaultGW4", func(e Element) string { return flag(e.Gateway4) })
	once("isDefaultGW6", func(e Element) string { return flag(e.Gateway6) })
	return faults
}
