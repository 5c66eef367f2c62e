package ports

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
)

// subnetOf is a subnet of network net, whose gateway is its first address.
func subnetOf(id, cidr string, pools ...string) neutron.Subnet {
	s := neutron.Subnet{ID: id, Network: "net", Prefix: netip.MustParsePrefix(cidr)}
	s.Gateway = s.Prefix.Addr().Next()
	for _, p := range pools {
		s.Pools = append(s.Pools, netipx.MustParseIPRange(p))
	}
	return s
}

// edited is s after an edit.
func edited(s neutron.Subnet, edit func(*neutron.Subnet)) neutron.Subnet {
	edit(&s)
	return s
}

// followedPool is a pool of two subnets, as it was when both were there.
func followedPool() *v1alpha1.IPPool {
	static := func(cidr, start, end string) v1alpha1.Range {
		return v1alpha1.Range{CIDR: cidr, Start: start, End: end, StaticOnly: []string{cidr}}
	}
	return &v1alpha1.IPPool{
		Spec: v1alpha1.IPPoolSpec{
			Ranges: []v1alpha1.Range{static("10.1.0.0/24", "10.1.0.2", "10.1.0.9"), static("10.2.0.0/24", "10.2.0.2", "10.2.0.9")},
			Routes: []v1alpha1.Route{{Dst: "10.7.0.0/16", GW: "10.2.0.1"}}, DNS: &v1alpha1.DNS{Nameservers: []string{"10.2.0.53"}, Search: []string{"lan"}},
		},
		Status: v1alpha1.IPPoolStatus{Neutron: &v1alpha1.NeutronStatus{
			NetworkID: "net", NodePorts: v1alpha1.NodePortsPairs, Subnets: []v1alpha1.NeutronSubnet{{ID: "a", CIDR: "10.1.0.0/24"}, {ID: "b", CIDR: "10.2.0.0/24"}},
		}},
	}
}

// TestFollow: a pool has one range for each allocation pool of its subnets. What Neutron does not
// show stays as it was.
func TestFollow(t *testing.T) {
	a := subnetOf("a", "10.1.0.0/24", "10.1.0.20-10.1.0.29", "10.1.0.5-10.1.0.9")
	for name, tt := range map[string]struct {
		subnets []neutron.Subnet
		want    string // ranges; the rest
		gone    bool
	}{
		"in order":    {[]neutron.Subnet{a}, "10.1.0.5-10.1.0.9 gw 10.1.0.1, 10.1.0.20-10.1.0.29 gw 10.1.0.1; 1 subnets, [] []", false},
		"no gateway":  {[]neutron.Subnet{edited(a, func(s *neutron.Subnet) { s.Gateway, s.Pools = netip.Addr{}, s.Pools[:1] })}, "10.1.0.20-10.1.0.29 gw ; 1 subnets, [] []", false},
		"no pool":     {[]neutron.Subnet{edited(a, func(s *neutron.Subnet) { s.Pools = nil })}, "- gw 10.1.0.1 without [10.1.0.0/24]; 1 subnets, [] []", false},
		"two subnets": {[]neutron.Subnet{subnetOf("a", "10.1.0.0/24", "10.1.0.2-10.1.0.3"), subnetOf("b", "fd00::/64", "fd00::2-fd00::3")}, "10.1.0.2-10.1.0.3 gw 10.1.0.1, fd00::2-fd00::3 gw fd00::1; 2 subnets, [] []", false},
		"routes, and each name server once": {[]neutron.Subnet{
			edited(subnetOf("a", "10.1.0.0/24", "10.1.0.2-10.1.0.3"), func(s *neutron.Subnet) {
				s.Routes = []neutron.Route{{To: netip.MustParsePrefix("10.9.1.1/16"), Via: s.Gateway}}
				s.DNS = []netip.Addr{s.Gateway, s.Gateway}
			}),
		}, "10.1.0.2-10.1.0.3 gw 10.1.0.1; 1 subnets, [{10.9.0.0/16 10.1.0.1}] [10.1.0.1]", false},
		"one is gone": {
			[]neutron.Subnet{subnetOf("a", "10.1.0.0/24", "10.1.0.2-10.1.0.5"), {ID: "b", Gone: true}},
			"10.1.0.2-10.1.0.5 gw 10.1.0.1, 10.2.0.2-10.2.0.9 gw ; 2 subnets, [{10.7.0.0/16 10.2.0.1}] [10.2.0.53]", true,
		},
		"one that never was there is gone": {
			[]neutron.Subnet{subnetOf("a", "10.1.0.0/24", "10.1.0.2-10.1.0.5"), {ID: "c", Gone: true}}, "10.1.0.2-10.1.0.5 gw 10.1.0.1; 1 subnets, [] []", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := follow(followedPool(), tt.subnets)
			if err != nil {
				t.Fatal(err)
			}
			var ranges []string
			for _, r := range got.ranges {
				text := fmt.Sprintf("%s-%s gw %s", r.Start, r.End, r.Gateway)
				if len(r.Exclude) > 0 {
					text += fmt.Sprintf(" without %v", r.Exclude)
				}
				if !slices.Equal(r.StaticOnly, []string{r.CIDR}) {
					t.Errorf("nodes may lease blocks of %s: static-only are %v", r.CIDR, r.StaticOnly)
				}
				ranges = append(ranges, text)
			}
			text := fmt.Sprintf("%s; %d subnets, %v %v", strings.Join(ranges, ", "), len(got.status.Subnets), got.routes, got.nameservers)
			if text != tt.want {
				t.Errorf("got %s; want %s", text, tt.want)
			}
			if got.gone.None() == tt.gone || got.status.NetworkID != "net" || got.status.NodePorts != v1alpha1.NodePortsPairs {
				t.Errorf("gone %v, status %+v", got.gone, got.status)
			}
		})
	}
}

// TestFollowRefuses: what cannot be one pool is said, with what to do.
func TestFollowRefuses(t *testing.T) {
	many := func(id, cidr string, n int) neutron.Subnet {
		s := subnetOf(id, cidr)
		for x := s.Gateway; n > 0; n-- {
			x = x.Next().Next()
			s.Pools = append(s.Pools, netipx.IPRangeFrom(x, x))
		}
		return s
	}
	a := subnetOf("a", "10.1.0.0/24", "10.1.0.2-10.1.0.9")
	for name, tt := range map[string]struct {
		subnets []neutron.Subnet
		want    string
	}{
		"two networks":   {[]neutron.Subnet{a, edited(subnetOf("b", "10.2.0.0/24"), func(s *neutron.Subnet) { s.Network = "other" })}, "SubnetUnfit: subnet b is of network other"},
		"slaac":          {[]neutron.Subnet{edited(subnetOf("s", "fd00::/64"), func(s *neutron.Subnet) { s.SLAAC = true })}, "SubnetUnfit: subnet s has addresses that follow"},
		"too many pools": {[]neutron.Subnet{many("a", "10.1.0.0/24", 40), many("b", "10.2.0.0/24", 25)}, "SubnetUnfit: the subnets have 65 allocation pools together"},
		"too many routes": {[]neutron.Subnet{edited(a, func(s *neutron.Subnet) {
			s.Routes = slices.Repeat([]neutron.Route{{To: s.Prefix, Via: s.Gateway}}, 33)
		})}, "SubnetUnfit: the subnets have 33 host routes together"},
		"none is there": {[]neutron.Subnet{{ID: "x", Gone: true}}, "SubnetNotFound: Neutron has no subnet x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := follow(followedPool(), tt.subnets)
			var why *unfitError
			if !errors.As(err, &why) || !strings.HasPrefix(string(why.reason)+": "+why.message, tt.want) {
				t.Errorf("got %v; want %s", err, tt.want)
			}
		})
	}
}

// TestChange: a pool that is as its subnets are is not written; else it is said what changes. DNS
// keys that are the pool's own stay.
func TestChange(t *testing.T) {
	pool := followedPool()
	pool.Spec.Routes, pool.Spec.DNS = nil, nil
	both := []neutron.Subnet{
		edited(subnetOf("a", "10.1.0.0/24", "10.1.0.2-10.1.0.9"), func(s *neutron.Subnet) { s.Gateway = netip.Addr{} }),
		edited(subnetOf("b", "10.2.0.0/24", "10.2.0.2-10.2.0.9"), func(s *neutron.Subnet) { s.Gateway = netip.Addr{} }),
	}
	same, err := follow(pool, both)
	if err != nil || !same.same(pool.Spec) {
		t.Errorf("%v, and a pool that is as it should be is written: %+v", err, same)
	}
	if got := same.dnsFor(pool.Spec); got != nil {
		t.Errorf("its DNS becomes %v; want none", got)
	}
	both[1].Pools = []netipx.IPRange{netipx.MustParseIPRange("10.2.0.2-10.2.0.20")}
	both[1].DNS = []netip.Addr{netip.MustParseAddr("10.2.0.53")}
	grown, err := follow(pool, both)
	if err != nil || grown.same(pool.Spec) {
		t.Errorf("%v, and a pool that has grown is not written: %+v", err, grown)
	}
	const want = "Neutron's subnets have changed: the pool has now 10.2.0.0/24 from 10.2.0.2 to 10.2.0.20; " +
		"has no more 10.2.0.0/24 from 10.2.0.2 to 10.2.0.9: who has addresses of it keeps them; has other DNS servers"
	if got := grown.change(pool.Spec); got != want {
		t.Errorf("says %q; want %q", got, want)
	}
	pool.Spec.DNS = &v1alpha1.DNS{Search: []string{"lan"}}
	if got := same.dnsFor(pool.Spec); got == nil {
		t.Error("the pool's own search domain goes with the subnets' name servers")
	}
}
