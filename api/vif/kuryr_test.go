package vif

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	portID    = "a0818066-aacc-4e7c-b270-55a072ac28eb"
	networkID = "78f13a6a-586e-43f8-be56-70c5c04239a5"
)

// lan is an interface as Kuryr has one: of a port, with two families.
func lan(change ...func(*KuryrVIF)) KuryrVIF {
	k := KuryrVIF{
		VIF: VIF{
			Network: "team/lan", PodUID: "u", Claim: "c", ClaimUID: "77777777-0000-4000-8000-000000000000", Addresses: []string{"10.0.0.5/24", "fd00::5/64"},
			Gateways: []string{"10.0.0.1"}, Routes: []Route{{Dst: "10.9.0.0/16", GW: "10.0.0.1"}, {Dst: "fd09::/64"}},
			MAC: "fa:16:3e:00:00:01", MTU: 1400, Port: portID,
		},
		Plugin: "macvlan", NetworkID: networkID, Nameservers: []string{"10.0.0.53", "fd00::53"},
	}
	for _, f := range change {
		f(&k)
	}
	return k
}

// kuryrLAN is what Kuryr's programs expect of it.
const kuryrLAN = `{
  "versioned_object.name": "VIFMacvlanNested", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
  "versioned_object.data": {
    "id": "` + portID + `", "address": "fa:16:3e:00:00:01", "vif_name": "eth1", "plugin": "noop",
    "active": true, "preserve_on_delete": false, "has_traffic_filtering": false,
    "network": {
      "versioned_object.name": "Network", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.1",
      "versioned_object.data": {
        "id": "` + networkID + `", "label": "team/lan", "mtu": 1400, "multi_host": false, "should_provide_bridge": false, "should_provide_vlan": false,
        "subnets": {
          "versioned_object.name": "SubnetList", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
          "versioned_object.data": {"objects": [{
            "versioned_object.name": "Subnet", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
            "versioned_object.data": {
              "cidr": "10.0.0.0/24", "dns": ["10.0.0.53"], "gateway": "10.0.0.1",
              "ips": {
                "versioned_object.name": "FixedIPList", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                "versioned_object.data": {"objects": [{
                  "versioned_object.name": "FixedIP", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                  "versioned_object.data": {"address": "10.0.0.5"}}]}},
              "routes": {
                "versioned_object.name": "RouteList", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                "versioned_object.data": {"objects": [{
                  "versioned_object.name": "Route", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                  "versioned_object.data": {"cidr": "10.9.0.0/16", "gateway": "10.0.0.1"}}]}}}
          }, {
            "versioned_object.name": "Subnet", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
            "versioned_object.data": {
              "cidr": "fd00::/64", "dns": ["fd00::53"],
              "ips": {
                "versioned_object.name": "FixedIPList", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                "versioned_object.data": {"objects": [{
                  "versioned_object.name": "FixedIP", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                  "versioned_object.data": {"address": "fd00::5"}}]}},
              "routes": {
                "versioned_object.name": "RouteList", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                "versioned_object.data": {"objects": [{
                  "versioned_object.name": "Route", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
                  "versioned_object.data": {"cidr": "fd09::/64"}}]}}}
          }]}}}}}}`

// mustKuryr returns the annotation with an interface eth1, and its entries.
func mustKuryr(t *testing.T, has string, earlier Map, eth1 KuryrVIF) (string, map[string]any) {
	t.Helper()
	text, err := KuryrMap(has, earlier, map[string]KuryrVIF{"eth1": eth1})
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return text, all
}

// TestKuryrMap (K5): an interface is written as Kuryr wrote it, beside the entries of others, which
// stay; and what stands there is not written again, in whatever order it does.
func TestKuryrMap(t *testing.T) {
	text, _ := mustKuryr(t, "", nil, lan())
	if want := `{"eth1":` + kuryrLAN + `}`; !sameJSON([]byte(text), []byte(want)) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	const eth0 = `{"versioned_object.name": "VIFOpenVSwitch", "versioned_object.data": {"id": "x", "more": [1, null]}}`
	beside, all := mustKuryr(t, `{"eth0": `+eth0+`}`, nil, lan())
	if want := `{"eth0": ` + eth0 + `, "eth1":` + kuryrLAN + `}`; !sameJSON([]byte(beside), []byte(want)) {
		t.Errorf("beside another's: %v", all)
	}
	spaced := strings.Replace(beside, `"eth0":`, ` "eth0" : `, 1)
	if again, _ := mustKuryr(t, spaced, Map{"eth1": lan().VIF}, lan()); again != spaced {
		t.Errorf("what stands there is written again: %s", again)
	}
	other := lan(func(k *KuryrVIF) { k.MAC = "fa:16:3e:00:00:02" })
	if again, all := mustKuryr(t, beside, nil, other); all["eth0"] == nil || !strings.Contains(again, other.MAC) || strings.Contains(again, lan().MAC) {
		t.Errorf("with another hardware address: %s", again)
	}
	// What was in the earlier map and is in none now goes; eth0 was in none.
	two, err := KuryrMap(beside, nil, map[string]KuryrVIF{"eth1": lan(), "eth2": lan()})
	if err != nil {
		t.Fatal(err)
	}
	if again, all := mustKuryr(t, two, Map{"eth1": {}, "eth2": {}}, lan()); len(all) != 2 || all["eth0"] == nil || all["eth2"] != nil {
		t.Errorf("with one interface less: %s", again)
	}
}

// TestKuryrKinds (K5): each plugin has an object of Kuryr's, and what has no port, no hardware
// address and no MTU has something in its place.
func TestKuryrKinds(t *testing.T) {
	for plugin, want := range map[string]string{"macvlan": "VIFMacvlanNested", "vlan": "VIFVlanNested", "bridge": "VIFGeneric", "sriov": "VIFGeneric", "": "VIFGeneric"} {
		text, _ := mustKuryr(t, "", nil, lan(func(k *KuryrVIF) { k.Plugin, k.VLAN = plugin, 7 }))
		if !strings.Contains(text, `"versioned_object.name":"`+want+`"`) || strings.Contains(text, `"vlan_id":7`) != (plugin == "vlan") {
			t.Errorf("of %s: %s; want %s", plugin, text, want)
		}
	}
	bare := lan(func(k *KuryrVIF) {
		k.Port, k.MAC, k.MTU, k.Gateways, k.Routes, k.Nameservers = "", "", 0, nil, nil, nil
	})
	text, _ := mustKuryr(t, "", nil, bare)
	for _, part := range []string{`"id":"` + bare.ClaimUID + `"`, `"address":null`, `"dns":[]`, `"objects":[]`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s; want %s in it", text, part)
		}
	}
	for _, part := range []string{`"mtu"`, `"gateway"`, `"1.1"`} {
		if strings.Contains(text, part) {
			t.Errorf("%s; want no %s", text, part)
		}
	}
}

// TestKuryrMapLeft (K5): what is there and is no map of interfaces is left to whoever wrote it.
func TestKuryrMapLeft(t *testing.T) {
	for _, tt := range []struct{ has, want string }{
		{"{", "it is no JSON object"},
		{"[]", "it is no JSON object"},
		{"null", "it is no JSON object"},
		{`{"versioned_object.name": "PodState", "versioned_object.data": {}}`, "it is one object of Kuryr's"},
	} {
		if text, err := KuryrMap(tt.has, nil, map[string]KuryrVIF{"eth1": lan()}); err == nil || !strings.Contains(err.Error(), tt.want) || text != "" {
			t.Errorf("%s: %q, %v; want an error with %q", tt.has, text, err, tt.want)
		}
	}
}
