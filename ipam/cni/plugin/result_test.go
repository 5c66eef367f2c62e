package plugin

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// TestResultByHand: what is printed by hand is what the CNI library prints.
func TestResultByHand(t *testing.T) {
	table, scope := 254, 0
	for name, r := range map[string]agentapi.Result{
		"one address": {IPs: []agentapi.IP{{Address: netip.MustParsePrefix("10.0.0.5/16"), Gateway: netip.MustParseAddr("10.0.0.1")}}},
		"both families, no gateway": {IPs: []agentapi.IP{
			{Address: netip.MustParsePrefix("10.0.0.5/16")}, {Address: netip.MustParsePrefix("fd00::a:0:0:5/64"), Gateway: netip.MustParseAddr("fe80::1")},
		}},
		"routes and DNS": {
			IPs: []agentapi.IP{{Address: netip.MustParsePrefix("10.0.0.5/16")}},
			Routes: []agentapi.Route{
				{Dst: netip.MustParsePrefix("0.0.0.0/0")},
				{Dst: netip.MustParsePrefix("192.168.0.0/24"), GW: netip.MustParseAddr("10.0.0.9"), MTU: 1400, AdvMSS: 1360, Priority: 5, Table: &table, Scope: &scope},
			},
			DNS: agentapi.DNS{Nameservers: []string{"10.0.0.53"}, Domain: "a.example", Search: []string{"b.example", "\"quoted\""}, Options: []string{"ndots:5"}},
		},
	} {
		for _, version := range []string{"1.0.0", "1.1.0"} {
			var byHand, byLibrary bytes.Buffer
			c := &call{Plugin{Stdout: &byHand}}
			if err := c.printResult(r, version); err != nil {
				t.Fatal(err)
			}
			versioned, err := libraryResult(r).GetAsVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			if err := versioned.PrintTo(&byLibrary); err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(byHand.Bytes(), &got); err != nil {
				t.Fatalf("%s: %s: %v", name, &byHand, err)
			}
			if err := json.Unmarshal(byLibrary.Bytes(), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, version %s: got %s; want %s", name, version, &byHand, &byLibrary)
			}
		}
	}
}
