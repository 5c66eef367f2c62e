package podnetwork

import (
	"strings"
	"testing"
)

// TestRenderVIF (K6): a plugin that can be given a hardware address says so, and no other: the CNI
// library would not hand it on, or hand it to one that does not know it.
func TestRenderVIF(t *testing.T) {
	for text, takes := range map[string]bool{
		`{"macvlan": {"master": "eth1"}}`: true, `{"bridge": {"bridge": "br0"}}`: true, `{"sriov": {"resourceName": "a.b/c"}}`: true,
		`{"ipvlan": {"master": "eth1"}}`: false, `{"vlan": {"master": "eth1", "id": 7}}`: false,
	} {
		s, err := ReadInline([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		const capability = `"capabilities":{"mac":true},`
		got, plain := RenderVIF("net", s, "lan").Config, Render("net", s, "lan").Config
		if strings.Contains(got, capability) != takes || strings.ReplaceAll(got, capability, "") != plain {
			t.Errorf("%s is rendered as %s, and as %s for a PodNetwork", text, got, plain)
		}
	}
}

// TestReadInline (K3): what the API server refuses of InterfaceParameters is refused in an
// annotation, too.
func TestReadInline(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:   "they cannot be read",
		`{`:    "they cannot be read",
		`{} x`: "something follows them",
		`{}`:   "they are of 0 plugins",
		`{"macvlan": {"master": "eth1"}, "vlan": {"master": "eth1", "id": 7}}`:        "they are of 2 plugins",
		`{"macvlan": {"master": "eth1"}, "mtuu": 1}`:                                  `unknown field "mtuu"`,
		`{"macvlan": {"parent": "eth1"}}`:                                             `unknown field "parent"`,
		`{"macvlan": {}}`:                                                             "macvlan.master is missing",
		`{"vlan": {"master": "eth1"}}`:                                                "vlan.id is missing",
		`{"macvlan": {"master": "eth1"}, "mtu": 67}`:                                  "mtu is 67",
		`{"macvlan": {"master": "eth1"}, "mtu": 65536}`:                               "mtu is 65536",
		`{"macvlan": {"master": "an interface"}}`:                                     "no name of an interface",
		`{"macvlan": {"master": "sixteenletters16"}}`:                                 "no name of an interface",
		`{"macvlan": {"master": "eth1", "mode": "l2"}}`:                               "give one of bridge, private, vepa, passthru",
		`{"ipvlan": {"master": "eth1", "mode": "bridge"}}`:                            "give one of l2, l3, l3s",
		`{"ipvlan": {"master": "a/b"}}`:                                               "no name of an interface",
		`{"bridge": {"bridge": "br0", "vlan": 4095}}`:                                 "bridge.vlan is 4095",
		`{"vlan": {"master": "eth1", "id": -1}}`:                                      "vlan.id is -1",
		`{"sriov": {"resourceName": "a.b/c", "vlan": 5000}}`:                          "sriov.vlan is 5000",
		`{"sriov": {"resourceName": "` + strings.Repeat("x", 318) + `"}}`:             "longer than 317",
		`{"sriov": {"resourceName": "a.b/c", "vlan": 7, "trust": true}, "mtu": 9000}`: "",
	} {
		if _, err := ReadInline([]byte(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v; want %q", text, err, want)
		}
	}
}
