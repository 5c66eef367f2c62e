// Package npwg reads the pod annotation by which the Network Plumbing Working
// Group's multi-network specification (v1.3 and v1, section 4) selects networks.
// It reads what decides about addresses; what the delegating meta-plugin needs
// beyond that is not read here.
package npwg

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// AnnotationNetworks is the key of the selection annotation, section 4.1.
const AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"

// A Selection is one element of the annotation.
type Selection struct {
	// Namespace and Name are the NetworkAttachmentDefinition's.
	Namespace, Name string
	// Interface is the name that the element asks for, or the one it gets by the
	// naming rule: net1, net2, … by its place in the list.
	Interface string
	// IPs are the addresses asked for, with the prefix length 0 where the element
	// gives none; the whole list is valid.
	IPs []RequestedIP
	// Claim is the element's ipam-claim-reference: an IPAMClaim of the pod's
	// namespace. Empty if there is none.
	Claim string
}

// A RequestedIP is one element of ips (4.1.2.1.3).
type RequestedIP struct {
	Addr netip.Addr
	Bits int
}

// String returns the address, with its prefix length if it has one.
func (r RequestedIP) String() string {
	if r.Bits == 0 {
		return r.Addr.String()
	}
	return netip.PrefixFrom(r.Addr, r.Bits).String()
}

// Parse reads an annotation in either format: a list of names separated by commas
// (4.1.1), or JSON (4.1.2). namespace is the pod's. An empty annotation selects
// nothing.
func Parse(annotation, namespace string) ([]Selection, error) {
	text := strings.TrimSpace(annotation)
	if text == "" {
		return nil, nil
	}
	var selections []Selection
	var err error
	if strings.ContainsAny(text, `[{"`) {
		selections, err = parseJSON(text)
	} else {
		selections, err = parseList(text)
	}
	if err != nil {
		return nil, err
	}
	for i := range selections {
		s := &selections[i]
		if s.Namespace == "" {
			s.Namespace = namespace
		}
		if s.Interface == "" {
			s.Interface = fmt.Sprintf("net%d", i+1)
		}
	}
	return selections, nil
}

// ByInterface returns the selection of an interface.
func ByInterface(selections []Selection, ifName string) (Selection, bool) {
	for _, s := range selections {
		if s.Interface == ifName {
			return s, true
		}
	}
	return Selection{}, false
}

// parseList reads "name, namespace/name, name@interface".
func parseList(text string) ([]Selection, error) {
	var selections []Selection
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		name, ifName, _ := strings.Cut(item, "@")
		namespace, object, ok := strings.Cut(name, "/")
		if !ok {
			namespace, object = "", name
		}
		if object == "" || strings.ContainsAny(object, "/@") || strings.Contains(ifName, "@") {
			return nil, fmt.Errorf("element %q: want [namespace/]name[@interface]", item)
		}
		selections = append(selections, Selection{Namespace: namespace, Name: object, Interface: ifName})
	}
	return selections, nil
}

// element is an element of the JSON form, as far as it decides about addresses.
type element struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
	Claim     string   `json:"ipam-claim-reference"`
}

func parseJSON(text string) ([]Selection, error) {
	var elements []element
	if err := json.Unmarshal([]byte(text), &elements); err != nil {
		return nil, fmt.Errorf("want a JSON list of network selection elements: %w", err)
	}
	var errs []error
	selections := make([]Selection, len(elements))
	for i, e := range elements {
		if e.Name == "" {
			errs = append(errs, fmt.Errorf("element %d: name is missing", i))
		}
		selections[i] = Selection{Namespace: e.Namespace, Name: e.Name, Interface: e.Interface, Claim: e.Claim}
		for _, text := range e.IPs {
			ip, err := parseIP(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("element %d: ips: %w", i, err))
			}
			selections[i].IPs = append(selections[i].IPs, ip)
		}
	}
	return selections, errors.Join(errs...)
}

func parseIP(text string) (RequestedIP, error) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		return RequestedIP{Addr: p.Addr(), Bits: p.Bits()}, err
	}
	a, err := netip.ParseAddr(text)
	return RequestedIP{Addr: a}, err
}
