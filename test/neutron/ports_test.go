package neutron_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	neutron "github.com/tenure-ipam/tenure/ipam/controller/neutron"
	server "github.com/tenure-ipam/tenure/test/neutron"
)

// cloud is what the tests of ports share: a server takes long to start on a busy machine. Each
// has networks of its own.
type cloud struct {
	*server.Server
	door *server.Door    // where everybody is the tenant
	c    *neutron.Client // the tenant's
}

// TestPorts has what a controller may ask of a real Neutron, and what it is told.
func TestPorts(t *testing.T) {
	s := server.New(t, server.Options{Tenants: true})
	s.Quota(t, mine, -1)
	door := s.Open(t, &server.Door{By: tenant})
	c := cloud{Server: s, door: door, c: client(t, door.URL)}
	for _, tt := range []struct {
		name string
		test func(*testing.T, cloud)
	}{
		{"AnyAddress", anyAddress},
		{"WishedAddress", wishedAddress},
		{"AddressOutside", addressOutside},
		{"OutsidePools", outsidePools},
		{"Exhausted", exhausted},
		{"Quota", quota},
		{"NotFound", notFound},
		{"WhoAsks", whoAsks},
		{"Told", told},
		{"Damaged", damaged},
		{"Delete", deletes},
		{"DeleteChanged", deleteChanged},
		{"Ours", ours},
		{"Subnets", subnets},
		{"Login", login},
		{"Many", many},
		{"ManyLost", manyLost},
		{"LostAnswer", lostAnswer},
		{"LostAlways", lostAlways},
		{"Concurrent", concurrent},
		{"Busy", busy},
		{"Refused", refused},
		{"Slow", slow},
		{"Killed", killed},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, c) })
	}
}

// network makes a network of the tenant with subnets of CIDRs.
func (c cloud) network(t *testing.T, cidrs ...string) server.Network {
	t.Helper()
	n := server.Network{Project: mine}
	for _, cidr := range cidrs {
		sub := server.Subnet{CIDR: cidr, Project: mine}
		if strings.Contains(cidr, ":") {
			sub.IPVersion = 6
		}
		n.Subnets = append(n.Subnets, sub)
	}
	return c.Network(t, n)
}

// ensure returns the port of w, which must be there at last.
func (c cloud) ensure(t *testing.T, w neutron.Want) neutron.Port {
	t.Helper()
	p, err := c.c.Ensure(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// at wishes an address of the network's first subnet.
func at(n server.Network, addr string) []neutron.FixedIP {
	return []neutron.FixedIP{{Subnet: n.Subnets[0].ID, Addr: netip.MustParseAddr(addr)}}
}

// named returns a claim's name that no other test has.
func named(t *testing.T, n int) string { return fmt.Sprintf("%s-%d", t.Name(), n) }

// anyAddress: a claim that wishes nothing gets an address of each family, once.
func anyAddress(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24", "2001:db8::/64")
	w := neutron.Want{Claim: named(t, 1), Network: n.ID, Name: "default/db-0", Description: "for people"}
	p := c.ensure(t, w)
	if len(p.Addresses) != 2 || len(p.MAC) != 6 || p.Claim != w.Claim || p.Owner != "tenure:here" || p.Project != mine || p.Created.IsZero() {
		t.Errorf("port %+v; want two addresses, a MAC address, and whose it is", p)
	}
	if again := c.ensure(t, w); again.ID != p.ID {
		t.Errorf("the second call has port %s; want %s", again.ID, p.ID)
	}
	only(t, c.Server, w.Claim, p)
	if groups := c.Ports(t, w.Claim)[0].Groups; len(groups) != 0 {
		t.Errorf("security groups %v; want none", groups)
	}
	w6 := neutron.Want{Claim: named(t, 2), Network: n.ID, Addresses: []neutron.FixedIP{{Subnet: n.Subnets[1].ID}}}
	if p := c.ensure(t, w6); len(p.Addresses) != 1 || !p.Addresses[0].Addr.Is6() {
		t.Errorf("of the IPv6 subnet: addresses %v; want one of it", p.Addresses)
	}
}

// wishedAddress: a claim gets the address that it wishes, and the next one learns who has it.
func wishedAddress(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	w := neutron.Want{Claim: named(t, 1), Network: n.ID, Addresses: at(n, "192.0.2.77")}
	p := c.ensure(t, w)
	if !slices.Equal(p.Addresses, w.Addresses) {
		t.Errorf("addresses %v; want %v", p.Addresses, w.Addresses)
	}
	w.Claim = named(t, 2)
	_, err := c.c.Ensure(t.Context(), w)
	fails(t, err, neutron.AddressInUse, "192.0.2.77", p.ID, p.Claim, n.ID)
	want := neutron.Holder{PortID: p.ID, DeviceID: p.Claim, DeviceOwner: p.Owner}
	if e, ok := errors.AsType[*neutron.Error](err); !ok || e.Holder == nil || *e.Holder != want {
		t.Errorf("error %+v; want the holder %v", e, want)
	}
	if found := c.Ports(t, w.Claim); len(found) != 0 {
		t.Errorf("the refused claim has ports %v", found)
	}
}

// addressOutside: the subnet cannot have the address.
func addressOutside(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	for i, addr := range []string{"198.51.100.1", "192.0.2.255"} {
		_, err := c.c.Ensure(t.Context(), neutron.Want{Claim: named(t, i), Network: n.ID, Addresses: at(n, addr)})
		fails(t, err, neutron.AddressOutside, addr, "ask for an address of the subnet")
	}
}

// outsidePools: what Neutron does not refuse the caller has to.
func outsidePools(t *testing.T, c cloud) {
	n := c.Network(t, server.Network{Project: mine, Subnets: []server.Subnet{{
		CIDR: "192.0.2.0/24", Project: mine, Pools: []map[string]string{{"start": "192.0.2.10", "end": "192.0.2.20"}},
	}}})
	for i, addr := range []string{"192.0.2.99", "192.0.2.1"} {
		p := c.ensure(t, neutron.Want{Claim: named(t, i), Network: n.ID, Addresses: at(n, addr)})
		if !slices.Equal(p.Addresses, at(n, addr)) {
			t.Errorf("addresses %v; want %s", p.Addresses, addr)
		}
	}
}

// exhausted: the pool has one address, and it is given.
func exhausted(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/30")
	c.ensure(t, neutron.Want{Claim: named(t, 1), Network: n.ID})
	for i, wish := range [][]neutron.FixedIP{nil, {{Subnet: n.Subnets[0].ID}}} {
		_, err := c.c.Ensure(t.Context(), neutron.Want{Claim: named(t, 2+i), Network: n.ID, Addresses: wish})
		fails(t, err, neutron.SubnetExhausted, n.ID, "larger allocation pools")
	}
}

// quota: the project may have no further port.
func quota(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	c.Quota(t, mine, 0)
	defer c.Quota(t, mine, -1)
	_, err := c.c.Ensure(t.Context(), neutron.Want{Claim: named(t, 1), Network: n.ID})
	fails(t, err, neutron.QuotaExceeded, "port", "quota of ports raised")
}

// notFound: a network or a subnet is not there, or another project's.
func notFound(t *testing.T, c cloud) {
	const nowhere = "00000000-0000-4000-8000-000000000000"
	n := c.network(t, "192.0.2.0/24")
	theirs := c.Network(t, server.Network{Project: others, Subnets: []server.Subnet{{CIDR: "192.0.2.0/24", Project: others}}})
	for i, w := range []neutron.Want{
		{Network: nowhere},
		{Network: theirs.ID},
		{Network: n.ID, Addresses: []neutron.FixedIP{{Subnet: nowhere}}},
	} {
		w.Claim = named(t, i)
		_, err := c.c.Ensure(t.Context(), w)
		fails(t, err, neutron.NotFound, "name one that exists")
	}
	for _, w := range []neutron.Want{{Claim: "a"}, {Network: n.ID}} {
		_, err := c.c.Ensure(t.Context(), w)
		fails(t, err, neutron.Rejected, "empty")
	}
}

// whoAsks: nobody, and somebody who may not choose an address on another project's network.
func whoAsks(t *testing.T, c cloud) {
	n := c.Network(t, server.Network{Project: others, Shared: true, Subnets: []server.Subnet{{CIDR: "192.0.2.0/24", Project: others}}})
	_, err := client(t, c.URL()).Ensure(t.Context(), neutron.Want{Claim: named(t, 1), Network: n.ID})
	fails(t, err, neutron.Unauthorized, "clouds.yaml")
	c.ensure(t, neutron.Want{Claim: named(t, 2), Network: n.ID})
	_, err = c.c.Ensure(t.Context(), neutron.Want{Claim: named(t, 3), Network: n.ID, Addresses: at(n, "192.0.2.9")})
	fails(t, err, neutron.Forbidden, "role")
}

// told: the port that a claim has been told of stays, though an older one fits as well. One
// that does not fit is surplus whatever its age.
func told(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	w := neutron.Want{Claim: named(t, 1), Network: n.ID}
	made := map[string]bool{}
	for i := range 3 {
		made[c.Port(t, server.Port{NetworkID: n.ID, DeviceID: w.Claim, DeviceOwner: "tenure:here",
			FixedIPs: []map[string]string{{"ip_address": fmt.Sprintf("192.0.2.%d", 100+i)}}}).ID] = true
	}
	for id := range made {
		w.Port = id
		p := c.ensure(t, w)
		if p.ID != id || len(p.Surplus) != 2 || slices.Contains(p.Surplus, id) {
			t.Errorf("the claim that was told of %s has %s with surplus %v; want its own and the two others", id, p.ID, p.Surplus)
		}
	}
	w.Addresses = at(n, "192.0.2.200")
	if p := c.ensure(t, w); made[p.ID] || len(p.Surplus) != 3 {
		t.Errorf("with another address: port %s with surplus %v; want a new one and three", p.ID, p.Surplus)
	}
}

// damaged: a port that somebody has taken an address off gets it again, unless another has it by
// now. One without any is known by its ID. What a port has beside that which is wanted stays.
func damaged(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24", "2001:db8::/64", "198.51.100.0/24")
	var wants []neutron.Want
	made := map[string]neutron.Port{}
	for i := range 3 {
		w := neutron.Want{Claim: named(t, i), Network: n.ID}
		for _, s := range n.Subnets[:2+i/2] { // the last has an address of the third as well
			w.Addresses = append(w.Addresses, neutron.FixedIP{Subnet: s.ID})
		}
		p := c.ensure(t, w)
		w.Addresses, w.MAC, w.Port = p.Addresses, p.MAC, p.ID
		slices.SortFunc(w.Addresses, bySubnet(n))
		w.Addresses = w.Addresses[:2]
		wants, made[w.Claim] = append(wants, w), p
	}
	keep := func(w neutron.Want, addrs ...neutron.FixedIP) {
		fixed := []map[string]string{}
		for _, a := range addrs {
			fixed = append(fixed, map[string]string{"subnet_id": a.Subnet, "ip_address": a.Addr.String()})
		}
		c.Do(t, http.MethodPut, "ports/"+w.Port, "port", map[string]any{"fixed_ips": fixed}, nil)
	}
	keep(wants[0], wants[0].Addresses[0])
	keep(wants[1])
	taken := wants[2].Addresses[1]
	keep(wants[2], wants[2].Addresses[0], made[wants[2].Claim].Addresses[2])
	thief := c.ensure(t, neutron.Want{Claim: "thief", Network: n.ID, Addresses: []neutron.FixedIP{taken}})
	got := c.c.EnsureMany(t.Context(), wants)
	fails(t, got[2].Err, neutron.AddressInUse, taken.Addr.String(), thief.ID)
	if err := c.c.Delete(t.Context(), thief.ID, thief.Claim); err != nil {
		t.Fatal(err)
	}
	got[2].Port, got[2].Err = c.c.Ensure(t.Context(), wants[2])
	for i, e := range got {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		only(t, c.Server, wants[i].Claim, e.Port)
		slices.SortFunc(e.Port.Addresses, bySubnet(n))
		was := made[wants[i].Claim]
		if e.Port.ID != was.ID || !slices.Equal(e.Port.Addresses, was.Addresses) || e.Port.MAC.String() != was.MAC.String() {
			t.Errorf("port %+v; want it as it was made: %+v", e.Port, was)
		}
	}
}

// bySubnet orders addresses as the network's subnets are.
func bySubnet(n server.Network) func(a, b neutron.FixedIP) int {
	place := func(a neutron.FixedIP) int {
		return slices.IndexFunc(n.Subnets, func(s server.Subnet) bool { return s.ID == a.Subnet })
	}
	return func(a, b neutron.FixedIP) int { return place(a) - place(b) }
}

// deletes: ours alone, and again.
func deletes(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	p := c.ensure(t, neutron.Want{Claim: named(t, 1), Network: n.ID})
	fails(t, c.c.Delete(t.Context(), p.ID, "another"), neutron.NotOurs, p.ID, p.Claim)
	elsewhere := client(t, c.door.URL, func(c *neutron.Config) { c.Cluster = "elsewhere" })
	fails(t, elsewhere.Delete(t.Context(), p.ID, p.Claim), neutron.NotOurs, p.ID)
	only(t, c.Server, p.Claim, p)
	for range 2 {
		if err := c.c.Delete(t.Context(), p.ID, p.Claim); err != nil {
			t.Fatal(err)
		}
	}
	if found := c.Ports(t, p.Claim); len(found) != 0 {
		t.Errorf("the deleted port is there: %v", found)
	}
}

// deleteChanged: a port that becomes another's after it was looked at stays.
func deleteChanged(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	p := c.ensure(t, neutron.Want{Claim: named(t, 1), Network: n.ID})
	door := c.Open(t, &server.Door{By: tenant, Instead: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			c.Do(t, http.MethodPut, "ports/"+p.ID, "port", server.Port{DeviceID: "another"}, nil)
		}
		return false
	}})
	fails(t, client(t, door.URL).Delete(t.Context(), p.ID, p.Claim), neutron.NotOurs, "another")
	if found := c.Ports(t, "another"); len(found) != 1 {
		t.Errorf("ports %v; want that which was changed", found)
	}
}

// ours: more ports than a page has, of two clusters and two networks.
func ours(t *testing.T, c cloud) {
	cluster := func(name string) *neutron.Client {
		return client(t, c.door.URL, func(c *neutron.Config) { c.Cluster = name })
	}
	here, there := cluster("ours"), cluster("theirs")
	n, other := c.network(t, "192.0.2.0/24"), c.network(t, "198.51.100.0/24")
	var wants []neutron.Want
	for i := range 24 {
		wants = append(wants, neutron.Want{Claim: named(t, i), Network: n.ID})
	}
	wants = append(wants, neutron.Want{Claim: named(t, 24), Network: other.ID})
	want := map[string]bool{}
	for _, e := range here.EnsureMany(t.Context(), wants) {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		want[e.Port.ID] = true
	}
	if _, err := there.Ensure(t.Context(), neutron.Want{Claim: named(t, 25), Network: n.ID}); err != nil {
		t.Fatal(err)
	}
	all, err := here.Ours(t.Context())
	for _, p := range all {
		if !want[p.ID] {
			t.Errorf("%v is not ours, or twice there", p)
		}
		delete(want, p.ID)
	}
	if err != nil || len(want) != 0 {
		t.Errorf("error %v, ports that are missing: %v", err, want)
	}
	if on, err := here.Ours(t.Context(), other.ID); len(on) != 1 || err != nil {
		t.Errorf("on the second network: %v, %v; want one port", on, err)
	}
	if on, err := here.Ours(t.Context(), n.ID, other.ID); len(on) != 25 || err != nil {
		t.Errorf("on both networks: %d ports, %v; want 25", len(on), err)
	}
}

// concurrent: twelve callers make the port of one claim, with a wish and without. In the end
// there is one. The wish comes first, since Neutron could choose its address for the other.
func concurrent(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	for i, wish := range [][]neutron.FixedIP{at(n, "192.0.2.50"), nil} {
		w := neutron.Want{Claim: named(t, i), Network: n.ID, Addresses: wish}
		var g errgroup.Group
		for range 12 {
			g.Go(func() error {
				_, err := c.c.Ensure(t.Context(), w)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		p := c.ensure(t, w)
		if got := len(c.Ports(t, w.Claim)); got != 1+len(p.Surplus) {
			t.Errorf("%d ports, and surplus %v; want all but one to be surplus", got, p.Surplus)
		}
		t.Logf("twelve callers with the wish %v: %d surplus", wish, len(p.Surplus))
		for _, id := range p.Surplus {
			if err := c.c.Delete(t.Context(), id, w.Claim); err != nil {
				t.Error(err)
			}
		}
		p.Surplus = nil
		only(t, c.Server, w.Claim, p)
		if again := c.ensure(t, w); again.ID != p.ID || len(again.Surplus) != 0 {
			t.Errorf("afterwards port %s, surplus %v; want %s alone", again.ID, again.Surplus, p.ID)
		}
	}
}

// many: one bad claim does not fail the others, and what is there is not made again.
func many(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	const bad, there, empty = 3, 5, 7
	var wants []neutron.Want
	for i := range 9 {
		wants = append(wants, neutron.Want{Claim: named(t, i), Network: n.ID})
	}
	wants[bad].Addresses, wants[empty].Network = at(n, "198.51.100.1"), ""
	before := c.ensure(t, wants[there])
	for range 2 {
		got := c.c.EnsureMany(t.Context(), wants)
		for i, e := range got {
			switch i {
			case bad:
				fails(t, e.Err, neutron.AddressOutside, "198.51.100.1")
			case empty:
				fails(t, e.Err, neutron.Rejected, "empty")
			default:
				if e.Err != nil {
					t.Fatal(e.Err)
				}
				only(t, c.Server, wants[i].Claim, e.Port)
			}
		}
		if got[there].Port.ID != before.ID {
			t.Errorf("port %s; want that which was there, %s", got[there].Port.ID, before.ID)
		}
	}
}

// posts counts requests that make ports, in a Door's Lose.
func posts(lose func(n int64) bool) func(*http.Request) bool {
	var n atomic.Int64
	return func(r *http.Request) bool { return r.Method == http.MethodPost && lose(n.Add(1)) }
}

// manyLost: an answer for many is lost, and each has one port.
func manyLost(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	door := c.Open(t, &server.Door{By: tenant, Lose: posts(func(n int64) bool { return n == 1 })})
	var wants []neutron.Want
	for i := range 6 {
		wants = append(wants, neutron.Want{Claim: named(t, i), Network: n.ID})
	}
	for i, e := range client(t, door.URL).EnsureMany(t.Context(), wants) {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		only(t, c.Server, wants[i].Claim, e.Port)
	}
	if got, want := door.Requests(), 3; got != want {
		t.Errorf("%d requests; want %d: a list, one that makes all, a list", got, want)
	}
}

// wait is longer than any test of a fault takes, and fails it instead of hanging.
const wait = 5 * time.Minute
