package vif

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
)

// AnnotationKuryrMap is on a pod, for programs that were made for Kuryr: by the interface's name, a
// VIF as Kuryr and os-vif wrote it. Nothing of Tenure reads it.
const AnnotationKuryrMap = "openstack.org/kuryr-vif"

// A KuryrVIF is an interface, and what Kuryr says of one beside what a [VIF] has.
type KuryrVIF struct {
	VIF
	// Plugin is the type of the CNI plugin that makes the interface, and VLAN what plugin vlan has.
	Plugin string
	VLAN   int32
	// NetworkID is the UUID of Neutron's network, or of the pool where that has nothing of Neutron.
	NetworkID   string
	Nameservers []string
}

// KuryrMap returns a pod's annotation with these interfaces: that which it has, where they stand
// there already. Entries of others stay as they are, and those that are in no map but the earlier
// one go. An error says why nothing can be put into what the pod has.
func KuryrMap(has string, earlier Map, now map[string]KuryrVIF) (string, error) {
	all := map[string]json.RawMessage{}
	if has != "" {
		if err := json.Unmarshal([]byte(has), &all); err != nil || all == nil {
			return "", errors.New("it is no JSON object")
		}
	}
	if _, ok := all["versioned_object.name"]; ok {
		return "", errors.New("it is one object of Kuryr's, and has none for each interface")
	}
	changed := false
	for name := range earlier {
		_, stands := all[name]
		if _, stays := now[name]; stands && !stays {
			delete(all, name)
			changed = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		text := now[name].object(name).text()
		if !sameJSON(all[name], text) {
			all[name] = text
			changed = true
		}
	}
	if !changed {
		return has, nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("write it again: %w", err)
	}
	return string(text), nil
}

// sameJSON reports whether two texts say the same, however they are written.
func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// versioned is an object as OpenStack writes one for others to read.
type versioned struct {
	Name      string `json:"versioned_object.name"`
	Namespace string `json:"versioned_object.namespace"`
	Version   string `json:"versioned_object.version"`
	Data      any    `json:"versioned_object.data"`
}

// osVIF returns an object of os-vif in version 1.0.
func osVIF(name string, data any) versioned { return versioned{name, "os_vif", "1.0", data} }

// list returns a list of objects of that name.
func list(name string, objects []versioned) versioned {
	if objects == nil {
		objects = []versioned{} // and not null
	}
	return osVIF(name, map[string]any{"objects": objects})
}

func (v versioned) text() json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil { // strings, numbers and lists of such
		panic("vif: " + err.Error())
	}
	return text
}

// object returns the VIF as Kuryr has it: of a port's ID, or of the claim's where there is no port.
func (k KuryrVIF) object(ifName string) versioned {
	data := map[string]any{
		"id": k.ClaimUID, "address": nil, "network": k.network(), "plugin": "noop", "vif_name": ifName,
		"active": true, "preserve_on_delete": false, "has_traffic_filtering": false,
	}
	if k.Port != "" {
		data["id"] = k.Port
	}
	if k.MAC != "" {
		data["address"] = k.MAC
	}
	switch k.Plugin {
	case "macvlan":
		return osVIF("VIFMacvlanNested", data)
	case "vlan":
		data["vlan_id"] = k.VLAN
		return osVIF("VIFVlanNested", data)
	}
	return osVIF("VIFGeneric", data)
}

func (k KuryrVIF) network() versioned {
	data := map[string]any{
		"id": k.NetworkID, "label": k.Network, "subnets": list("SubnetList", k.subnets()),
		"multi_host": false, "should_provide_bridge": false, "should_provide_vlan": false,
	}
	v := osVIF("Network", data)
	if k.MTU != 0 {
		data["mtu"] = k.MTU
		v.Version = "1.1" // has an mtu
	}
	return v
}

// subnets returns a subnet for each address.
func (k KuryrVIF) subnets() (all []versioned) {
	for _, text := range k.Addresses {
		at, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		of := func(text string) bool { // the same family
			a, err := netip.ParseAddr(text)
			return err == nil && a.Is4() == at.Addr().Is4()
		}
		dns := []string{}
		for _, server := range k.Nameservers {
			if of(server) {
				dns = append(dns, server)
			}
		}
		data := map[string]any{
			"cidr": at.Masked().String(), "dns": dns, "routes": list("RouteList", k.routes(at)),
			"ips": list("FixedIPList", []versioned{osVIF("FixedIP", map[string]any{"address": at.Addr().String()})}),
		}
		if i := slices.IndexFunc(k.Gateways, of); i >= 0 {
			data["gateway"] = k.Gateways[i]
		}
		all = append(all, osVIF("Subnet", data))
	}
	return all
}

// routes returns the routes of an address's family.
func (k KuryrVIF) routes(at netip.Prefix) (all []versioned) {
	for _, r := range k.Routes {
		if dst, err := netip.ParsePrefix(r.Dst); err != nil || dst.Addr().Is4() != at.Addr().Is4() {
			continue
		}
		data := map[string]any{"cidr": r.Dst}
		if r.GW != "" {
			data["gateway"] = r.GW
		}
		all = append(all, osVIF("Route", data))
	}
	return all
}
