// Package vif has the words by which the interfaces of a pod are decided in the control plane: a
// VIF definition says which network it is, the controller makes an IPAMClaim for each interface,
// and writes the map of a pod's interfaces, and the node carries that out. Kuryr's definitions are
// read as well. It is pure, and knows no Kubernetes.
package vif

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// Annotations.
const (
	// AnnotationNetwork is on a definition without spec.config (NPWG v1.3, section 3.1.1): a
	// [Network] as JSON.
	AnnotationNetwork = "tenure.dev/vif"
	// AnnotationKuryr is what Kuryr reads in its place: the ID of a subnet of Neutron.
	AnnotationKuryr = "openstack.org/kuryr-config"
	// AnnotationMap is on a pod: a [Map] as JSON. The controller alone writes it.
	AnnotationMap = "tenure.dev/vifs"
)

// LabelClaim is on the claims that are made for interfaces of pods. Its value is the UID of the
// pod.
const LabelClaim = "tenure.dev/vif-of"

// MaxSelections is how many elements of a pod's annotation are looked at: it has room for a hundred
// thousand. No node looks up more definitions.
const MaxSelections = 256

// A Network is what a definition says of its interfaces.
type Network struct {
	// Pool is the IPPool that gives addresses.
	Pool string `json:"pool,omitempty"`
	// SubnetID is a subnet of Neutron's. The pool that has it gives addresses in the place of Pool.
	SubnetID string `json:"subnetId,omitempty"`
	// Subnet is one that is to be made, in the place of both.
	Subnet *NewSubnet `json:"subnet,omitempty"`
	// Interface says how the interface is made: the name of InterfaceParameters of the definition's
	// namespace, as a JSON string, or an object with the spec of such. Empty: a pool of Neutron's
	// subnets says it.
	Interface json.RawMessage `json:"interfaceParameters,omitempty"`
}

// Is reports whether a definition with these annotations and this configuration is a VIF
// definition: one whose annotation says which network it is, whether or not that can be read. One
// with a configuration is none: that says all.
func Is(annotations map[string]string, config string) bool {
	return strings.TrimSpace(config) == "" && (annotations[AnnotationNetwork] != "" || annotations[AnnotationKuryr] != "")
}

// NetworkOf reads the annotations of a definition for which [Is] holds.
func NetworkOf(annotations map[string]string) (n Network, err error) {
	own, kuryr := annotations[AnnotationNetwork], annotations[AnnotationKuryr]
	switch {
	case own != "" && kuryr != "":
		return n, fmt.Errorf("annotations %s and %s are both there: keep one", AnnotationNetwork, AnnotationKuryr)
	case own != "":
		if err := decode(own, &n, true); err != nil {
			return n, fmt.Errorf("annotation %s: %w", AnnotationNetwork, err)
		}
	default:
		// Kuryr passes over what it does not know.
		if err := decode(kuryr, &n, false); err != nil {
			return n, fmt.Errorf("annotation %s: %w", AnnotationKuryr, err)
		}
		n.Pool, n.Interface, n.Subnet = "", nil, nil
	}
	n.SubnetID = strings.ToLower(n.SubnetID) // as Neutron writes it
	if n.Subnet != nil {
		if n.Pool != "" || n.SubnetID != "" {
			return n, fmt.Errorf("annotation %s: subnet is there beside pool or subnetId: keep one", AnnotationNetwork)
		}
		if _, _, err := n.Subnet.Parse(); err != nil {
			return n, fmt.Errorf("annotation %s: %w", AnnotationNetwork, err)
		}
	}
	switch {
	case n.Pool != "" && n.SubnetID != "":
		return n, fmt.Errorf("annotation %s: pool and subnetId are both there: keep one", AnnotationNetwork)
	case n.Pool == "" && n.SubnetID == "" && n.Subnet == nil && own != "":
		return n, fmt.Errorf("annotation %s: it has neither pool nor subnetId", AnnotationNetwork)
	case n.SubnetID == "" && own == "":
		return n, fmt.Errorf("annotation %s: it has no subnetId", AnnotationKuryr)
	}
	return n, nil
}

// decode reads one JSON object, and nothing after it.
func decode(text string, into any, strict bool) error {
	dec := json.NewDecoder(strings.NewReader(text))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("it is no JSON object as it should be: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its JSON object")
	}
	return nil
}

// Fingerprint tells what a definition said when another was made of it, by its annotations: a node
// that has seen new ones waits for the definition that is made of them. Parameters that are an
// object of their own are immutable. What a pool names may change: then the definition is made
// anew, and nodes take it as they see it.
func Fingerprint(annotations map[string]string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", annotations[AnnotationNetwork], annotations[AnnotationKuryr]))
	return hex.EncodeToString(sum[:8])
}

// DefinitionName returns the name of the definition, with a configuration, that the controller
// makes of a VIF definition. It is the name of the CNI network, too.
func DefinitionName(namespace, name string) string {
	return fit("vif."+namespace+"."+name, namespace+"/"+name)
}

// ClaimName returns the name of the claim for an interface of a pod: another pod of the same name
// has another claim.
func ClaimName(pod, uid, ifName string) string {
	stem := pod + "." + strings.ToLower(ifName)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", pod, uid, ifName))
	return cut(stem) + "." + hex.EncodeToString(sum[:])[:digits]
}

const (
	maxName = 253 // characters of an object's name
	digits  = 10  // of a hash
)

// fit returns name, or if that is no name of an object its beginning and a hash of what it is of.
func fit(name, of string) string {
	if npwg.CheckName(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(of))
	return cut(name) + "." + hex.EncodeToString(sum[:])[:digits]
}

// cut returns so much of stem that a hash has room after it, and only what a name can have.
func cut(stem string) string {
	clean := bytes.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, []byte(stem))
	return strings.Trim(string(clean[:min(len(clean), maxName-digits-1)]), "-.")
}

// Interface returns the name of the interface of a pod's element, whose place in the list counts
// from 0: the one that it asks for, or one by its place. That is eth1, eth2, … where the definition
// is in Kuryr's form, and net1, net2, … of any other.
func Interface(sel npwg.Selection, place int, definition map[string]string) string {
	if sel.Named || definition[AnnotationKuryr] == "" {
		return sel.Interface
	}
	return kuryrName(place)
}

// Interfaces returns the names that the interface can have, whatever the definition says.
func Interfaces(sel npwg.Selection, place int) []string {
	if sel.Named {
		return []string{sel.Interface}
	}
	return []string{sel.Interface, kuryrName(place)}
}

func kuryrName(place int) string { return fmt.Sprintf("eth%d", place+1) }

// A Map is what a pod's annotation says: by the interface's name, what it is to be.
type Map map[string]VIF

// A VIF is one interface of a pod. The node has the addresses from the claim's use alone; what
// stands here of them is for people, and for programs that ask nobody else.
type VIF struct {
	// Network is the definition's namespace/name.
	Network string `json:"network"`
	// PodUID is the UID of the pod that the map is for, Claim the name of its IPAMClaim and
	// ClaimUID that one's.
	PodUID   string `json:"podUID"`
	Claim    string `json:"claim"`
	ClaimUID string `json:"claimUID"`
	// Addresses are the claim's, with their prefix lengths; Gateways those of their ranges.
	Addresses []string `json:"addresses"`
	Gateways  []string `json:"gateways,omitempty"`
	// Routes are those that come with the addresses.
	Routes []Route `json:"routes,omitempty"`
	// MAC is the hardware address; empty: the plugin cannot be given one.
	MAC string `json:"mac,omitempty"`
	MTU int32  `json:"mtu,omitempty"`
	// Port is the ID of the claim's port; empty: no network service gives the addresses.
	Port string `json:"port,omitempty"`
}

// A Route is a route that comes with an address.
type Route struct {
	Dst string `json:"dst"`
	// GW is the next hop; empty: there is none, and the destination is on the link.
	GW string `json:"gw,omitempty"`
}

// ParseMap reads a pod's annotation. The empty text is no map.
func ParseMap(text string) (m Map, err error) {
	if text == "" {
		return Map{}, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationMap, err)
	}
	return m, nil
}

// String returns m as the annotation has it: the same for the same map.
func (m Map) String() string {
	text, err := json.Marshal(m)
	if err != nil { // strings and numbers
		panic("vif: " + err.Error())
	}
	return string(text)
}

// MACOf returns the hardware address of the interface with that claim: a locally administered one,
// the same for the same claim.
func MACOf(claimUID string) string {
	sum := sha256.Sum256([]byte(claimUID))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02 // of one interface, and no vendor's
	return mac.String()
}
