package poolspec_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

func perNode(length int, cidrs ...string) poolspec.PoolText {
	t := poolspec.PoolText{PerNode: &poolspec.PerNodeText{PrefixLength: length, Gateway: true}}
	for _, cidr := range cidrs {
		t.Ranges = append(t.Ranges, poolspec.RangeText{CIDR: cidr})
	}
	return t
}

// TestPerNode: the ranges are parted into subnets, each with its own length and router, and of a
// long one the first 256 addresses are given.
func TestPerNode(t *testing.T) {
	for _, tt := range []struct {
		text        poolspec.PoolText
		subnets     int
		at          string
		prefix, gw  string
		gives, none []string
		block       int
	}{
		{perNode(24, "192.168.0.0/16"), 256, "192.168.7.9", "192.168.7.0/24", "192.168.7.1", []string{"192.168.7.2", "192.168.7.254"}, []string{"192.168.7.0", "192.168.7.1", "192.168.7.255"}, 256},
		{perNode(28, "10.0.0.0/24", "10.9.0.0/26"), 20, "10.9.0.20", "10.9.0.16/28", "10.9.0.17", []string{"10.9.0.18"}, []string{"10.9.0.16", "10.9.0.31"}, 16},
		{perNode(22, "10.0.0.0/16"), 64, "10.0.4.9", "10.0.4.0/22", "10.0.4.1", []string{"10.0.4.255"}, []string{"10.0.5.1"}, 256},
		{perNode(64, "fd00::/56"), 256, "fd00:0:0:3::7", "fd00:0:0:3::/64", "fd00:0:0:3::1", []string{"fd00:0:0:3::ff"}, []string{"fd00:0:0:3::1:0"}, 256},
	} {
		shape, err := poolspec.ParsePool(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(shape.Ranges()); n != tt.subnets {
			t.Errorf("%v: %d subnets; want %d", tt.text, n, tt.subnets)
		}
		at := netip.MustParseAddr(tt.at)
		in, _ := shape.Locate(at)
		if in.Prefix != netip.MustParsePrefix(tt.prefix) || in.Gateway != netip.MustParseAddr(tt.gw) {
			t.Errorf("%v lies in %v, gateway %v; want %s, %s", at, in.Prefix, in.Gateway, tt.prefix, tt.gw)
		}
		for _, a := range tt.gives {
			if err := shape.Assignable(netip.MustParseAddr(a)); err != nil {
				t.Errorf("%s is not given: %v", a, err)
			}
		}
		for _, a := range tt.none {
			if shape.Assignable(netip.MustParseAddr(a)) == nil {
				t.Errorf("%s is given", a)
			}
		}
		f := allocator.FamilyOf(at)
		if n := tt.text.PerNode.BlockSize(f); n != tt.block {
			t.Errorf("%v: blocks of %d; want %d", tt.text, n, tt.block)
		}
		if bits, _ := at.Prefix(f.BitLen() - 8); allocator.BlockBits(shape, f, tt.block) == f.BitLen()-8 && !shape.Meets(bits) {
			t.Errorf("%v: the block %v has no address of the subnet", tt.text, bits)
		}
	}
}

// TestPerNodeFaults: what cannot be parted says where, and what to do.
func TestPerNodeFaults(t *testing.T) {
	pinned := func(pins ...poolspec.Pin) poolspec.PoolText {
		p := perNode(24, "192.168.0.0/16")
		p.PerNode.Pinned = pins
		return p
	}
	excluded := perNode(24, "192.168.0.0/16")
	excluded.Ranges[0].Start = "192.168.0.5"
	for _, tt := range []struct {
		text poolspec.PoolText
		want string
	}{
		{perNode(8, "10.0.0.0/16"), "spec.perNode.prefixLength: subnets of /8 do not fit into spec.ranges[0].cidr, 10.0.0.0/16"},
		{perNode(31, "10.0.0.0/16"), "spec.perNode.prefixLength: 31 leaves a node no address beside its router's; write 30 or less"},
		{perNode(28, "10.0.0.0/8"), "makes too many subnets of the ranges"},
		{perNode(64, "fd00::/16"), "makes too many subnets of the ranges"},
		{perNode(24, "10.0.0.0/16", "fd00::/64"), "spec.ranges[1].cidr: is of another family"},
		{excluded, "spec.ranges[0]: has a start or an end"},
		{pinned(poolspec.Pin{Node: "a", CIDR: "192.168.7.0/25"}), "spec.perNode.pinned[0].cidr: 192.168.7.0/25 is no subnet of the pool; write one of the ranges' subnets of /24"},
		{pinned(poolspec.Pin{Node: "a", CIDR: "10.0.0.0/24"}), "10.0.0.0/24 is no subnet of the pool"},
		{pinned(poolspec.Pin{Node: "a", CIDR: "192.168.7.0/24"}, poolspec.Pin{Node: "b", CIDR: "192.168.7.0/24"}), "spec.perNode.pinned[1].cidr: 192.168.7.0/24 is pinned to node a as well"},
		{pinned(poolspec.Pin{Node: "a", CIDR: "192.168.7.0/24"}, poolspec.Pin{Node: "a", CIDR: "192.168.8.0/24"}), "spec.perNode.pinned[1].node: node a has another pinned subnet"},
	} {
		if _, err := poolspec.ParsePool(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v; want %q", err, tt.want)
		}
	}
	if _, err := poolspec.ParsePool(pinned(poolspec.Pin{Node: "a", CIDR: "192.168.7.0/24"})); err != nil {
		t.Error(err)
	}
}

func BenchmarkPerNode(b *testing.B) {
	text := perNode(24, "10.0.0.0/10")
	for b.Loop() {
		if _, err := poolspec.ParsePool(text); err != nil {
			b.Fatal(err)
		}
	}
}
