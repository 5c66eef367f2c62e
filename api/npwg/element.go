package npwg

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A reader reads the value of one key of an element into a selection.
type reader struct {
	since13 bool // not a key of version 1
	read    func(*Selection, json.RawMessage, Version) error
}

// readers are the keys of section 4.1.2.1 beside name and namespace, which come
// first. null and an empty string count as absent.
var readers = map[string]reader{
	"ips":                  {read: readIPs},
	"mac":                  {read: readMAC},
	"interface":            {read: readInterface},
	"interfaceRequest":     {read: readInterface}, // as older charts write interface, which comes before it
	"cni-args":             {since13: true, read: readCNIArgs},
	"portMappings":         {since13: true, read: readPortMappings},
	"bandwidth":            {since13: true, read: readBandwidth},
	"default-route":        {since13: true, read: readDefaultRoute},
	"infiniband-guid":      {since13: true, read: readGUID},
	"ipam-claim-reference": {since13: true, read: readClaim},
}

func parseJSON(text, namespace string, version func(namespace, name string) Version) ([]Selection, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(text), &elements); err != nil {
		if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			err = errors.New("it is one element: put it between [ and ]")
		}
		return nil, fmt.Errorf("want names separated by commas, or a JSON list of network selection elements: %w", err)
	}
	var wrong Faults
	tooMany := checkCount(len(elements))
	selections := make([]Selection, min(len(elements), MaxSelections))
	for i := range selections {
		if err := selections[i].parse(elements[i], namespace, version); err != nil {
			wrong.Add(fmt.Errorf("element %d: %w", i+1, err))
		}
	}
	return selections, errors.Join(tooMany, wrong.Err())
}

func (s *Selection) parse(raw json.RawMessage, namespace string, version func(namespace, name string) Version) error {
	members, err := plainjson.Object(raw)
	if err != nil || members == nil {
		return fmt.Errorf("%.80s is not an object", raw)
	}
	var errs []error
	keep := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	keep("name", readText(members["name"], &s.Name))
	if len(errs) == 0 {
		if s.Name == "" {
			keep("name", errors.New("missing"))
		} else {
			keep("name", CheckName(s.Name))
		}
	}
	keep("namespace", readText(members["namespace"], &s.Namespace))
	if s.Namespace == "" {
		s.Namespace = namespace
	} else {
		keep("namespace", CheckNamespace(s.Namespace))
	}
	v := version(s.Namespace, s.Name)
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := members[key]
		r, known := readers[key]
		switch {
		case key == "name" || key == "namespace":
		case !known || r.since13 && v == V1:
			if s.Other == nil {
				s.Other = map[string]json.RawMessage{}
			}
			s.Other[key] = value
		case string(value) != "null":
			keep(key, r.read(s, value, v))
		}
	}
	return errors.Join(errs...)
}

// readText reads a string, which may be absent.
func readText(raw json.RawMessage, s *string) error {
	switch {
	case raw == nil || plainjson.IsNull(raw):
		return nil
	case raw[0] != '"':
		return fmt.Errorf("%.80s is not a string", raw)
	}
	*s = plainjson.Text(raw)
	return nil
}

func readIPs(s *Selection, raw json.RawMessage, v Version) error {
	var texts []string
	if json.Unmarshal(raw, &texts) != nil || len(texts) == 0 {
		return fmt.Errorf("%.80s is not a list of one address or more", raw)
	}
	var wrong Faults
	for _, text := range texts {
		ip, err := ParseIP(text)
		if err == nil && v == V1 && strings.Contains(text, "/") {
			err = fmt.Errorf("%.80q has a prefix length, which version 1 of the specification does not know", text)
		}
		if err != nil {
			wrong.Add(err)
			continue
		}
		s.IPs = append(s.IPs, ip)
	}
	return wrong.Err()
}

// ParseIP reads an address, with or without a prefix length, as an element of ips is
// written (4.1.2.1.3).
func ParseIP(text string) (RequestedIP, error) {
	var ip RequestedIP
	var err error
	if strings.Contains(text, "/") {
		var p netip.Prefix
		p, err = netip.ParsePrefix(text)
		ip = RequestedIP{Addr: p.Addr(), Bits: p.Bits()}
		if err == nil && p.Bits() == 0 {
			err = errors.New("the prefix length is 0")
		}
	} else {
		ip.Addr, err = netip.ParseAddr(text)
	}
	if err != nil || ip.Addr.Zone() != "" {
		return RequestedIP{}, fmt.Errorf("%.80q is no IPv4 or IPv6 address, with or without a prefix length", text)
	}
	return ip, nil
}

func readMAC(s *Selection, raw json.RawMessage, v Version) error {
	if v == V13 {
		return readHardware(raw, &s.MAC, "6-byte MAC address", 6)
	}
	return readHardware(raw, &s.MAC, "MAC address of 6 or 20 bytes", 6, 20)
}

func readGUID(s *Selection, raw json.RawMessage, _ Version) error {
	return readHardware(raw, &s.GUID, "8-byte GUID", 8)
}

// readHardware reads a hardware address of one of the lengths, in bytes.
func readHardware(raw json.RawMessage, to *string, what string, lengths ...int) error {
	var text string
	if err := readText(raw, &text); err != nil || text == "" {
		return err
	}
	address, err := net.ParseMAC(text)
	if err != nil || !slices.Contains(lengths, len(address)) {
		return fmt.Errorf("%.80q is no %s", text, what)
	}
	*to = address.String()
	return nil
}

func readInterface(s *Selection, raw json.RawMessage, _ Version) error {
	var name string
	if err := readText(raw, &name); err != nil || name == "" {
		return err
	}
	if err := CheckInterface(name); err != nil {
		return err
	}
	if s.Interface == "" {
		s.Interface = name
	}
	return nil
}

func readClaim(s *Selection, raw json.RawMessage, _ Version) error { return readText(raw, &s.Claim) }

func readCNIArgs(s *Selection, raw json.RawMessage, _ Version) error {
	if json.Unmarshal(raw, &s.CNIArgs) != nil {
		return fmt.Errorf("%.80s is not an object", raw)
	}
	return nil
}

func readDefaultRoute(s *Selection, raw json.RawMessage, _ Version) error {
	var texts []string
	if json.Unmarshal(raw, &texts) != nil {
		return fmt.Errorf("%.80s is not a list of addresses", raw)
	}
	gateways := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		gateway, err := netip.ParseAddr(text)
		if err != nil || gateway.Zone() != "" {
			return fmt.Errorf("%.80q is no IP address", text)
		}
		if gateway = gateway.Unmap(); gateway.IsUnspecified() || gateway.IsMulticast() {
			return fmt.Errorf("%s is no gateway's address", gateway)
		}
		gateways = append(gateways, gateway)
	}
	s.DefaultRoute = &gateways
	return nil
}

func readPortMappings(s *Selection, raw json.RawMessage, _ Version) error {
	var items []map[string]json.RawMessage // of a struct, encoding/json reads keys in any case
	if json.Unmarshal(raw, &items) != nil || len(items) == 0 {
		return fmt.Errorf("%.80s is not a list of one mapping or more with hostPort and containerPort", raw)
	}
	for _, item := range items {
		m, err := readPortMapping(item)
		if err != nil {
			return err
		}
		s.PortMappings = append(s.PortMappings, m)
	}
	return nil
}

func readPortMapping(members map[string]json.RawMessage) (m PortMapping, err error) {
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := members[key]
		switch key {
		case "hostPort":
			err = readPort(value, &m.HostPort)
		case "containerPort":
			err = readPort(value, &m.ContainerPort)
		case "protocol":
			err = readText(value, &m.Protocol)
		case "hostIP":
			err = readText(value, &m.HostIP)
		default:
			err = errors.New("it is none of hostPort, containerPort, protocol, hostIP")
		}
		if err != nil {
			return m, fmt.Errorf("%.80s: %w", key, err)
		}
	}
	if m.HostPort == 0 || m.ContainerPort == 0 {
		return m, fmt.Errorf("hostPort %d, containerPort %d: both are required, from 1 to 65535", m.HostPort, m.ContainerPort)
	}
	switch m.Protocol = strings.ToLower(m.Protocol); m.Protocol {
	case "":
		m.Protocol = "tcp"
	case "tcp", "udp", "sctp":
	default:
		return m, fmt.Errorf("protocol %.80q is none of TCP, UDP, SCTP", m.Protocol)
	}
	if _, err := netip.ParseAddr(m.HostIP); m.HostIP != "" && err != nil {
		return m, fmt.Errorf("hostIP %.80q is no IP address", m.HostIP)
	}
	return m, nil
}

func readPort(raw json.RawMessage, to *uint16) error {
	if json.Unmarshal(raw, to) != nil {
		return fmt.Errorf("%.80s is no port, from 1 to 65535", raw)
	}
	return nil
}

func readBandwidth(s *Selection, raw json.RawMessage, _ Version) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || len(members) == 0 {
		return fmt.Errorf("%.80s is not an object with a rate", raw)
	}
	b := &Bandwidth{}
	fields := map[string]*uint64{"ingressRate": &b.IngressRate, "ingressBurst": &b.IngressBurst, "egressRate": &b.EgressRate, "egressBurst": &b.EgressBurst}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		field, ok := fields[key]
		if !ok {
			return fmt.Errorf("%.80s is none of ingressRate, ingressBurst, egressRate, egressBurst", key)
		}
		if json.Unmarshal(members[key], field) != nil || *field == 0 {
			return fmt.Errorf("%.80s: %.80s is not a whole number above 0", key, members[key])
		}
	}
	if b.IngressBurst > 0 && b.IngressRate == 0 || b.EgressBurst > 0 && b.EgressRate == 0 {
		return errors.New("a burst needs the rate of its direction")
	}
	s.Bandwidth = b
	return nil
}
