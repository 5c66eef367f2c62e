package state

import "testing"

func TestParseAllocation(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.5 shop/web net1":                    "10.0.0.5 pod shop/web on node , interface net1",
		"10.0.0.5 shop/web eth1 resourceclaim/nic":  "10.0.0.5 ResourceClaim shop/nic, device eth1, of pod shop/web on node ",
		"10.0.0.5 shop/web eth1 something":          "",
		"10.0.0.5 shop/web eth1 resourceclaim/x y":  "",
		"10.0.0.5 c1 eth0":                          "",
		"here shop/web eth1 resourceclaim/nic":      "",
		"in no form that nodes publish in, by rule": "",
	} {
		got := ""
		if a, u, ok := ParseAllocation(text); ok {
			got = a.String() + " " + u.String()
		}
		if got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}
