package ports

import (
	"maps"
	"testing"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestShown: what a claim was told of its port counts if Neutron shows that port as the claim's,
// with that hardware address.
func TestShown(t *testing.T) {
	c := &cloud{ours: []neutron.Port{ourPort("a", "ua", "10.9.0.5", macA), ourPort("b", "ub", "10.9.0.6", macB)}}
	p, _ := newPorts(t, c)
	right := vif.Port{ID: "a", MAC: macA, Network: "net", Subnets: []string{"sub"}}
	if p.Shown("ua", right) {
		t.Error("it is shown before Neutron was asked")
	}
	look := func() {
		t.Helper()
		if _, err := p.sweep(t.Context(), findings{}); err != nil {
			t.Fatal(err)
		}
	}
	look()
	if !p.Shown("ua", right) {
		t.Error("it is not shown")
	}
	for what, told := range map[string]vif.Port{
		"another's hardware address": {ID: "a", MAC: macB, Network: "net"}, "another's port": {ID: "b", MAC: macB, Network: "net"},
		"another network": {ID: "a", MAC: macA, Network: "other"}, "nothing": {},
	} {
		if p.Shown("ua", told) {
			t.Errorf("%s is shown", what)
		}
	}
	c.hold = func(method string) { // a port is made while the list is under way
		if method == "Ours" {
			p.settle(job{make: []*entry{{wants: []neutron.Want{{}}}}}, []neutron.Ensured{{Port: ourPort("c", "uc", "10.9.0.7", macA)}}, Problem{})
		}
	}
	c.ours = c.ours[1:]
	look()
	if p.Shown("ua", right) {
		t.Error("it is shown, and is gone")
	}
	if !p.Shown("uc", vif.Port{ID: "c", MAC: macA, Network: "net"}) {
		t.Error("a port is not shown that was made while the list was under way")
	}
}

// TestToldOfAnother: a claim that tells another port, or another hardware address, than Neutron has
// is looked at like one that has lost its port.
func TestToldOfAnother(t *testing.T) {
	for told, lost := range map[string]bool{
		`{"id":"a","mac":"` + macA + `","network":"net","subnets":["sub"]}`:   false,
		`{"id":"a","mac":"` + macB + `","network":"net","subnets":["sub"]}`:   true,
		`{"id":"b","mac":"` + macA + `","network":"net","subnets":["sub"]}`:   true,
		`{"id":"a","mac":"` + macA + `","network":"other","subnets":["sub"]}`: true,
	} {
		c := &cloud{ours: []neutron.Port{ourPort("a", "ua", "10.9.0.5", macA)}}
		p, _ := newPorts(t, c, claimOf("ua", "10.9.0.5/24", told))
		found := findings{}
		for range 2 {
			var err error
			if found, err = p.sweep(t.Context(), found); err != nil {
				t.Fatal(err)
			}
		}
		if p.Lost("ua") != lost {
			t.Errorf("told %s: lost is %t; want %t", told, p.Lost("ua"), lost)
		}
	}
}

// TestSurplusIsReadLive: a port too many goes by what the API server says of its claim, and not by
// a cache that is behind: by that, a port would go that the claim has by now.
func TestSurplusIsReadLive(t *testing.T) {
	tells := func(id string) string {
		return `{"id":"` + id + `","mac":"` + macA + `","network":"net","subnets":["sub"]}`
	}
	for live, want := range map[string]map[string]protocol.UID{"a": {"b": "ua"}, "b": {}, "": {}, "gone": {}} {
		c := &cloud{ours: []neutron.Port{ourPort("a", "ua", "10.9.0.5", macA), ourPort("b", "ua", "10.9.0.6", macB)}}
		p, _ := newPorts(t, c, claimOf("ua", "10.9.0.5/24", tells("a")))
		switch live {
		case "":
			_, p.Live = newPorts(t, c, claimOf("ua", "10.9.0.5/24", ""))
		case "gone":
			_, p.Live = newPorts(t, c)
		default:
			_, p.Live = newPorts(t, c, claimOf("ua", "10.9.0.5/24", tells(live)))
		}
		found := findings{}
		for range 2 {
			var err error
			if found, err = p.sweep(t.Context(), found); err != nil {
				t.Fatal(err)
			}
		}
		if !maps.Equal(p.surplus, want) {
			t.Errorf("the claim tells %q: too many are %v; want %v", live, p.surplus, want)
		}
	}
}
