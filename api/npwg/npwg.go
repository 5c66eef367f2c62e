// Package npwg reads and writes the annotations of the Network Plumbing Working
// Group's multi-network specification: the one by which a pod selects networks
// (v1.3 and v1, section 4), and the one that says what became of it (section 5).
package npwg

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// Keys of annotations.
const (
	// AnnotationNetworks is a pod's selection, section 4.1.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	// AnnotationStatus is a pod's status, section 5.
	AnnotationStatus = "k8s.v1.cni.cncf.io/network-status"
	// AnnotationDefaultNetwork names another default network for a pod. It is
	// Multus's, and KubeVirt writes it.
	AnnotationDefaultNetwork = "v1.multus-cni.io/default-network"
	// AnnotationResource names the device plugin's resource that a definition's
	// attachments take a device of.
	AnnotationResource = "k8s.v1.cni.cncf.io/resourceName"
)

// AddressResources is what the names of resources begin with by which pods ask for addresses of a
// pool: the pool's name follows. A definition may name one, so that its pods are made to ask for
// it, and no device is meant.
const AddressResources = "tenure.dev/"

// IsDevice reports whether a resource that a definition names is one whose units are devices.
func IsDevice(resource string) bool {
	return resource != "" && !strings.HasPrefix(resource, AddressResources)
}

// MaxSelections is how many networks an annotation may select. It has room for a hundred thousand:
// to look each of them up would take minutes, again and again.
const MaxSelections = 1024

// MaxAnnotations is how many bytes all annotations of an object may have together in Kubernetes.
const MaxAnnotations = 256 << 10

// ErrTooLarge is the error of an annotation that selects more than [MaxSelections] networks, or
// that is longer than [MaxAnnotations]. It is not to be ignored as one is that is only invalid: the
// pod may be right to want what it selects.
var ErrTooLarge = errors.New("too large")

// A Version is a version of the specification, by whose rules an element is read.
type Version uint8

const (
	// V13 is version 1.3.
	V13 Version = iota
	// V1 is version 1: keys that came later are not read, addresses have no prefix
	// length, and a MAC may have 20 bytes.
	V1
	// Any takes what either takes, for who reads an annotation without knowing the
	// definitions that it names.
	Any
)

// A Selection is one element of the annotation.
type Selection struct {
	// Namespace and Name are the NetworkAttachmentDefinition's.
	Namespace, Name string
	// Interface is the name that the element asks for, or the one it gets by the
	// naming rule: net1, net2, … by its place in the list.
	Interface string
	// Named says that the element asks for Interface.
	Named bool
	// IPs are the addresses asked for.
	IPs []RequestedIP
	// MAC is the hardware address asked for, in lower case and with colons.
	MAC string
	// Claim is the element's ipam-claim-reference: an IPAMClaim of the pod's
	// namespace. Empty if there is none.
	Claim string
	// CNIArgs is cni-args, PortMappings and Bandwidth what their names say; nil or
	// empty if there are none.
	CNIArgs      map[string]json.RawMessage
	PortMappings []PortMapping
	Bandwidth    *Bandwidth
	// DefaultRoute is default-route: nil without it, else a list of gateways that
	// may be empty.
	DefaultRoute *[]netip.Addr
	// GUID is infiniband-guid, in lower case and with colons.
	GUID string
	// Other are keys that are not the specification's.
	Other map[string]json.RawMessage
}

// String returns namespace/name.
func (s Selection) String() string { return s.Namespace + "/" + s.Name }

// A RequestedIP is one element of ips (4.1.2.1.3).
type RequestedIP struct {
	Addr netip.Addr
	Bits int // the prefix length, 0 if the element gives none
}

// String returns the address, with its prefix length if it has one.
func (r RequestedIP) String() string {
	if r.Bits == 0 {
		return r.Addr.String()
	}
	return netip.PrefixFrom(r.Addr, r.Bits).String()
}

// A PortMapping is one element of portMappings (4.1.2.1.7), as the capability of
// that name takes it.
type PortMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp, udp or sctp
	HostIP        string `json:"hostIP,omitempty"`
}

// DefaultBurst is the burst, in bits, of a rate that comes without one: the
// reference bandwidth plugin wants one, and the kubelet's network plugin chose this
// number to mean "none in practice".
const DefaultBurst = math.MaxInt32

// Bandwidth is the value of bandwidth (4.1.2.1.8): rates in bits per second, bursts
// in bits, 0 where there is none.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// Parse reads an annotation in either format: a list of names separated by commas
// (4.1.1), or JSON (4.1.2). namespace is the pod's. An empty annotation selects
// nothing. version says by which rules elements that name a definition are read;
// nil stands for 1.3.
//
// An error says what is wrong, and of much how much more there is. Then the annotation is invalid
// as a whole and to be ignored, and the selections, those that could be read in part among them,
// serve only to say what is ignored. Of an annotation that is too large, which is [ErrTooLarge], at
// most [MaxSelections] elements are read.
func Parse(annotation, namespace string, version func(namespace, name string) Version) ([]Selection, error) {
	text := strings.TrimSpace(annotation)
	if text == "" {
		return nil, nil
	}
	if version == nil {
		version = func(string, string) Version { return V13 }
	}
	if len(text) > MaxAnnotations {
		return nil, fmt.Errorf("%w: it has %d bytes; the annotations of an object may have %d", ErrTooLarge, len(text), MaxAnnotations)
	}
	var selections []Selection
	var err error
	if strings.ContainsAny(text, `[{"`) {
		selections, err = parseJSON(text, namespace, version)
	} else {
		selections, err = parseList(text, namespace)
	}
	for i := range selections {
		s := &selections[i]
		if s.Named = s.Interface != ""; !s.Named {
			s.Interface = fmt.Sprintf("net%d", i+1)
		}
	}
	return selections, errors.Join(err, checkDefaultRoutes(selections))
}

// AnnotationVersion is on a definition, "1" or "1.3": the version of the specification by which
// elements that name it are read.
const AnnotationVersion = "tenure.dev/spec-version"

// VersionOf returns the version that the annotations of a definition say, or else what counts where
// they say none.
func VersionOf(annotations map[string]string, unsaid Version) Version {
	switch annotations[AnnotationVersion] {
	case "1":
		return V1
	case "1.3":
		return V13
	}
	return unsaid
}

// AnyVersion has [Parse] read elements by the rules of either version.
func AnyVersion(string, string) Version { return Any }

// ByInterface returns the selection of an interface: the one that asks for the name before one that
// would have it by its place, which may have got another name.
func ByInterface(selections []Selection, ifName string) (Selection, bool) {
	for _, named := range []bool{true, false} {
		for _, s := range selections {
			if s.Interface == ifName && s.Named == named {
				return s, true
			}
		}
	}
	return Selection{}, false
}

// checkDefaultRoutes reports default-route on more than one element (4.1.2.1.9).
func checkDefaultRoutes(selections []Selection) error {
	var with []string
	for i, s := range selections {
		if s.DefaultRoute != nil {
			with = append(with, fmt.Sprintf("%d (%.80s)", i+1, s))
		}
	}
	if len(with) < 2 {
		return nil
	}
	if more := len(with) - maxFaults; more > 0 {
		with = append(with[:maxFaults], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("default-route is on elements %s; at most one may have it", strings.Join(with, " and "))
}

// parseList reads "name, namespace/name, name@interface".
func parseList(text, namespace string) ([]Selection, error) {
	var selections []Selection
	var wrong Faults
	tooMany := checkCount(strings.Count(text, ",") + 1)
	for item := range strings.SplitSeq(text, ",") {
		if len(selections) == MaxSelections {
			break
		}
		s, err := parseItem(strings.TrimSpace(item), namespace)
		if err != nil {
			wrong.Add(fmt.Errorf("element %d, %.80q: %w", len(selections)+1, item, err))
		}
		selections = append(selections, s)
	}
	return selections, errors.Join(tooMany, wrong.Err())
}

// checkCount reports that an annotation selects too many networks.
func checkCount(n int) error {
	if n <= MaxSelections {
		return nil
	}
	return fmt.Errorf("%w: it selects %d networks; a pod may select %d", ErrTooLarge, n, MaxSelections)
}

func parseItem(item, namespace string) (Selection, error) {
	object, ifName, at := strings.Cut(item, "@")
	s := Selection{Namespace: namespace, Name: object, Interface: ifName}
	if ns, name, ok := strings.Cut(object, "/"); ok {
		s.Namespace, s.Name = ns, name
		if err := CheckNamespace(ns); err != nil {
			return s, fmt.Errorf("%w; want [namespace/]name[@interface]", err)
		}
	}
	err := CheckName(s.Name)
	if at && err == nil {
		err = CheckInterface(ifName)
	}
	if err == nil && strings.Contains(ifName, "@") {
		err = errors.New("more than one @")
	}
	if err != nil {
		err = fmt.Errorf("%w; want [namespace/]name[@interface]", err)
	}
	return s, err
}
