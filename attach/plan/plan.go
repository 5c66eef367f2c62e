// Package plan turns what is known of a pod into the steps that attach it to all
// its networks. It is pure: the same facts give the same plan, on a node and in
// `kubectl tenure explain`.
package plan

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// A Plan is all that is needed to attach a pod, to check it and to detach it
// again, without asking anybody. It is kept on disk from before the first delegate
// is called until the last one has been undone.
type Plan struct {
	Pod facts.PodRef `json:"pod"`
	// Steps are carried out in this order, the default network's first (NPWG v1.3,
	// section 6), and undone in the reverse order.
	Steps []Step `json:"steps"`
	// Moving says that a virtual machine moves to the pod, which does not announce its addresses.
	// It is not kept.
	Moving bool `json:"-"`
	// Missing are the networks that were asked for and for which no step could be made: only their
	// names and interfaces. They are for people, and not kept.
	Missing []Step `json:"-"`
	// Warnings are what was ignored, and why.
	Warnings []facts.Warning `json:"warnings,omitempty"`
	// Notes are what is worth knowing and changes nothing, for people who look at a
	// plan. They are not kept.
	Notes []string `json:"-"`
}

// DefaultStep returns the index of the step of the default network, -1 if there is none.
func DefaultStep(steps []Step) int {
	return slices.IndexFunc(steps, func(s Step) bool { return s.Default })
}

// A Step is one attachment: one network configuration list, run for one
// interface of the pod.
type Step struct {
	// Name is the network's in the status annotation: namespace/name of its
	// definition, or the name of a network that has none.
	Name string `json:"name"`
	// PodNetwork is the name of the PodNetwork that the step is of. Empty: it is of none.
	PodNetwork string `json:"podNetwork,omitempty"`
	// Default says that it is the default network's: its result is the pod's.
	Default bool `json:"default,omitempty"`
	// IfName is CNI_IFNAME (4.1.2.1.5.1).
	IfName string `json:"ifName"`
	// Network is the name in the configuration, which is part of the attachment's
	// key (4.2.1).
	Network string `json:"network"`
	// List is the network configuration list whose plugins are run; a single
	// configuration has become a list of one.
	List json.RawMessage `json:"list"`
	// Args are CNI_ARGS, in order.
	Args []Arg `json:"args,omitempty"`
	// Capabilities become runtimeConfig, of the plugins that declare them.
	Capabilities map[string]json.RawMessage `json:"capabilities,omitempty"`

	// Requested is what the result must show, or the attachment fails (4.1.2.1.3.2,
	// 4.1.2.1.4.2 of version 1; kept in both).
	Requested Requested `json:"want,omitzero"`
	// DefaultRoute is the element's default-route: nil where it has none, empty
	// where the list is.
	DefaultRoute *[]netip.Addr `json:"defaultRoute,omitempty"`
	// Gateway4 and Gateway6 say that the pod's default route of the family goes through the
	// network's gateway: isDefaultGW4 and isDefaultGW6 of a PodNetwork.
	Gateway4 bool `json:"gateway4,omitempty"`
	Gateway6 bool `json:"gateway6,omitempty"`
	// LosesDefaultRoute says that another step of the plan has a DefaultRoute, or a gateway of
	// its family: this one's default routes are removed (4.1.2.1.9). It is for people, and not
	// kept.
	LosesDefaultRoute bool `json:"-"`
	// GUID is the element's infiniband-guid, for the status.
	GUID string `json:"guid,omitempty"`
	// Claim is the element's ipam-claim-reference, an IPAMClaim of the pod's namespace; the default
	// network has none. IPAM plugins find it in the pod's annotation: it is for people.
	Claim string `json:"claim,omitempty"`
	// CNIArgs are the element's cni-args, which the list has already: by them it is seen whether
	// the element has changed.
	CNIArgs json.RawMessage `json:"cniArgs,omitempty"`
	// Device is the device given to the pod for this attachment, or where its
	// delegate is to put the information about one.
	Device *Device `json:"device,omitempty"`
}

// An Arg is one pair of CNI_ARGS.
type Arg struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Requested is what a selection element asked for by name.
type Requested struct {
	IPs []netip.Addr `json:"ips,omitempty"`
	MAC string       `json:"mac,omitempty"` // in lower case, separated by colons
}

// A Device is a device of a device plugin, and where its information lies
// (Device Information Specification 1.1.0, section 4).
type Device struct {
	// Resource and ID are empty where the delegate alone knows of a device.
	Resource string `json:"resource,omitempty"`
	ID       string `json:"id,omitempty"`
	// Name tells the device from all others, "kind=ID", where that is not "Resource=ID": Resource
	// is the name of a ResourceClaim then.
	Name string `json:"name,omitempty"`
	// Source is the device plugin's file, which need not exist: it is copied to
	// File before the ADD. Empty without an ID.
	Source string `json:"source,omitempty"`
	// File is the one that the delegate is told of, unique to the attachment: read
	// into the status after the ADD, removed with the attachment. Empty where no
	// plugin declares the capability CNIDeviceInfoFile.
	File string `json:"file,omitempty"`
}
