package npwg

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// A Status is one element of the status annotation (5.3).
type Status struct {
	Name         string   `json:"name"`
	Interface    string   `json:"interface,omitempty"`
	IPs          []string `json:"ips,omitempty"`
	MAC          string   `json:"mac,omitempty"`
	Default      bool     `json:"default"` // written also where it is false (5.3.5)
	DNS          *DNS     `json:"dns,omitempty"`
	DefaultRoute []string `json:"default-route,omitempty"`
	// Gateway is not of the specification: consumers of the client library read it.
	Gateway    []string        `json:"gateway,omitempty"`
	DeviceInfo json.RawMessage `json:"device-info,omitempty"`
	GUID       string          `json:"infiniband-guid,omitempty"`
	// Warnings say, on the default network's element, what was ignored.
	Warnings []string `json:"dev.tenure.warnings,omitempty"`
}

// StatusIsOf reports whether the text of a status annotation tells of the sandbox with these
// addresses on the default network: a pod keeps the annotation when it gets another sandbox. Where
// either has no addresses it cannot be told, and true is answered. An empty text tells of none.
func StatusIsOf(text string, addrs []netip.Addr) bool {
	var all []Status
	if text == "" || json.Unmarshal([]byte(text), &all) != nil || len(all) == 0 {
		return false
	}
	told := false
	for _, s := range all {
		for _, ip := range s.IPs {
			a, ok := address(ip)
			if !s.Default || !ok {
				continue
			}
			if slices.Contains(addrs, a) {
				return true
			}
			told = true
		}
	}
	return !told || len(addrs) == 0
}

// DNS is what a result says of name servers (5.3.6).
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
}

// A Result is what a delegate's ADD answered, in the terms of CNI 1.0.0 whatever
// its version was.
type Result struct {
	Interfaces []Interface
	IPs        []IP
	Routes     []Route
	DNS        DNS
}

// An Interface is one element of a result's interfaces.
type Interface struct {
	Name, MAC string
	Sandbox   string // empty where the interface is the host's
}

// An IP is one element of a result's ips.
type IP struct {
	Address netip.Prefix
	Gateway netip.Addr // invalid if there is none
	// Interface is the index among the result's interfaces; nil if there is none.
	Interface *int
}

// A Route is one element of a result's routes.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr // invalid if there is none
}

// An Attachment is what is known of an attachment beside its result.
type Attachment struct {
	// Name is namespace/name of the definition, or the network's name.
	Name string
	// IfName is CNI_IFNAME.
	IfName  string
	Default bool
	// DefaultRoute is the element's default-route; nil where it has none.
	DefaultRoute *[]netip.Addr
	// GUID is the element's infiniband-guid.
	GUID string
	// DeviceInfo is what the device information file said, if there was one.
	DeviceInfo json.RawMessage
	// CIDRs asks for ips with their prefix lengths.
	CIDRs bool
}
