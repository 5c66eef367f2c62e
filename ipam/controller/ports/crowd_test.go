package ports

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// crowdAsk is what the i-th claim of many asks for.
func crowdAsk(i int) Ask {
	uid := fmt.Sprint("u", i)
	return Ask{UID: protocol.UID(uid), Claim: grants.ClaimKey{Namespace: "team", Name: uid}, From: []Source{{Pool: "pool"}}}
}

// TestCrowdOfClaims: many claims that wait for a port cost other claims no time, and one that asks
// for the same again wakes nobody.
func TestCrowdOfClaims(t *testing.T) {
	const many = 30_000
	p, _ := newPorts(t, &cloud{}, sourcedPool())
	p.Shapes = &pools.Shapes{}
	for i := range many {
		if _, err := p.Ask(t.Context(), crowdAsk(i)); err != nil {
			t.Fatal(err)
		}
	}
	p.gates["pool"] = &gate{problem: Problem{Reason: neutron.SubnetExhausted}, until: p.Now().Add(time.Hour), wait: longWait}
	select {
	case <-p.work:
	default:
		t.Error("nobody makes the ports")
	}
	if a, err := p.Ask(t.Context(), crowdAsk(7)); err != nil || a.Problem.Reason != neutron.SubnetExhausted {
		t.Errorf("it waits for %+v, %v", a.Problem, err)
	}
	select {
	case <-p.work:
		t.Error("who asks for the same again has all looked at")
	default:
	}
	begun := time.Now()
	for i := range 5000 {
		if got := p.Known(crowdAsk(i).Claim); !slices.Equal(got, []protocol.UID{crowdAsk(i).UID}) {
			t.Fatalf("known of claim %d are %v", i, got)
		}
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("to find 5000 claims among %d takes %v", many, took)
	}
	for i := range many {
		switch i % 3 {
		case 0:
			p.Withdraw(crowdAsk(i).UID)
		case 1:
			p.Release(crowdAsk(i).UID)
		default:
			p.Settle(crowdAsk(i).UID, "")
		}
	}
	if got := p.Known(crowdAsk(7).Claim); len(got) > 0 || len(p.entries) > 0 {
		t.Errorf("%v is known of a claim that has settled, and %d are left", got, len(p.entries))
	}
}

// TestPortsOfAllNamespaces: however many claims of one namespace ask for a port, the claims of
// another have theirs with the next call.
func TestPortsOfAllNamespaces(t *testing.T) {
	p, _ := newPorts(t, &cloud{}, sourcedPool())
	p.Shapes = &pools.Shapes{}
	for i := range 400 {
		if _, err := p.Ask(t.Context(), crowdAsk(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		a := crowdAsk(1000 + i)
		a.Claim.Namespace = fmt.Sprint("other", i/2)
		if _, err := p.Ask(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	j, _ := p.take(p.Now())
	of := map[string]int{}
	for _, e := range j.make {
		of[e.ask.Claim.Namespace]++
	}
	if want := map[string]int{"team": batch - 4, "other0": 2, "other1": 2}; !maps.Equal(of, want) {
		t.Errorf("ports are made for claims of %v; want %v", of, want)
	}
	p.gates["pool"] = &gate{problem: Problem{Reason: neutron.SubnetExhausted}, wait: longWait}
	if j, _ := p.take(p.Now()); len(j.make) != 1 {
		t.Errorf("%d try whether a subnet has addresses again; want 1", len(j.make))
	}
}

// TestPortsAreMadeBesideDeletions: however many claims are gone, ports are made meanwhile.
func TestPortsAreMadeBesideDeletions(t *testing.T) {
	p, _ := newPorts(t, &cloud{}, sourcedPool())
	p.Shapes = &pools.Shapes{}
	for i := range 400 {
		p.Release(crowdAsk(i).UID)
	}
	if _, err := p.Ask(t.Context(), crowdAsk(1000)); err != nil {
		t.Fatal(err)
	}
	first, _ := p.take(p.Now())
	second, _ := p.take(p.Now())
	third, _ := p.take(p.Now())
	if len(first.releases) != batch || len(second.make) != 1 || len(third.releases) != batch {
		t.Errorf("jobs delete %d ports, make %d, delete %d; want %d, 1 and %d", len(first.releases), len(second.make), len(third.releases), batch, batch)
	}
}

// TestForbiddenAddresses: credentials may suffice for ports, and not for their addresses to be
// chosen, as on another project's network. Who asks for addresses by name keeps nobody back who
// takes any.
func TestForbiddenAddresses(t *testing.T) {
	for want, addrs := range map[int][]netip.Addr{1: nil, 2: {netip.MustParseAddr("10.9.0.7")}} {
		p, _ := newPorts(t, &cloud{}, sourcedPool())
		p.Shapes = &pools.Shapes{}
		named := crowdAsk(0)
		named.Addresses = addrs
		if _, err := p.Ask(t.Context(), named); err != nil {
			t.Fatal(err)
		}
		j, _ := p.take(p.Now())
		p.settle(j, []neutron.Ensured{{Err: &neutron.Error{Reason: neutron.Forbidden, Message: "no role"}}}, Problem{})
		for i := range 2 {
			if _, err := p.Ask(t.Context(), crowdAsk(1+i)); err != nil {
				t.Fatal(err)
			}
		}
		j, _ = p.take(p.Now().Add(firstWait))
		if len(j.make) != want {
			t.Errorf("after one that asked for %v was forbidden %d try; want %d", addrs, len(j.make), want)
		}
	}
}
