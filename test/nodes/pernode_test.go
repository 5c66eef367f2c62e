package nodes_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// newPerNode makes a pool that gives each node a subnet, and starts nodes.
func newPerNode(t *testing.T, name string, nodes int, per v1alpha1.PerNode, cidrs ...string) *network {
	t.Helper()
	w := frame(t, name, quick)
	spec := v1alpha1.IPPoolSpec{Domain: name, PerNode: &per}
	for _, text := range cidrs {
		spec.Ranges = append(spec.Ranges, cidr(text))
	}
	fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	w.define("default", w.definition)
	w.start(nodes)
	return w
}

// subnet returns the subnet of a pod's only address.
func (p *pod) subnet() netip.Prefix { return p.addrs[0].Masked() }

// leasesOf returns the blocks that a node has leased of the pool.
func (w *network) leasesOf(n *fleet.Node) (blocks []string) {
	w.t.Helper()
	var all v1alpha1.IPLeaseList
	must(w.t, kc.List(w.t.Context(), &all, client.MatchingFields{"spec.pool": w.name}))
	for _, l := range all.Items {
		if l.Spec.Holder.Node == n.Name {
			blocks = append(blocks, l.Spec.Block)
		}
	}
	return blocks
}

// TestSubnetPerNode: each node has one subnet, with its length, router and routes, whatever comes
// and goes on it; thirty pods at once lease one; and a full subnet is not helped out by others.
func TestSubnetPerNode(t *testing.T) {
	w := newPerNode(t, "pernode", 3, v1alpha1.PerNode{PrefixLength: 27}, "10.67.0.0/24")
	of := map[netip.Prefix]string{}
	var pods []*pod
	for i, n := range w.nodes {
		p := w.run(n, fmt.Sprintf("pernode-first-%d", i))
		res, err := n.Insist(p.Interface)
		if err != nil {
			t.Fatal(err)
		}
		p.addrs = addresses(res)
		pods = append(pods, p)
		sub := p.subnet()
		if sub.Bits() != 27 || of[sub] != "" {
			t.Errorf("node %s has %v, and node %q too", n.Name, sub, of[sub])
		}
		of[sub] = n.Name
		gw := sub.Addr().Next()
		if res.IPs[0].Gateway != gw || len(res.Routes) != 1 || res.Routes[0].Dst != netip.MustParsePrefix("10.67.0.0/24") || res.Routes[0].GW != gw {
			t.Errorf("gateway %v, routes %v; want %v, and one through it to the whole CIDR", res.IPs[0].Gateway, res.Routes, gw)
		}
	}
	n, sub := w.nodes[0], pods[0].subnet()
	s := replicas(w)
	all := w.nodes
	w.nodes = all[:1]
	s.scale(28) // 29 are given, of which one is taken
	w.nodes = all
	for _, p := range s.pods {
		if p.subnet() != sub {
			t.Errorf("pod %s has %v; want one of %v", p.Pod, p.addrs, sub)
		}
	}
	extra := w.run(n, "pernode-extra")
	n.Refused(t, extra.Interface, fmt.Sprintf("subnet %v, which node %s has of pool pernode, has no address left", sub, n.Name))
	foreign := w.run(n, "pernode-foreign").asks(pods[1].subnet().Addr().Next().Next().Next().String())
	_, err := n.Add(foreign.Interface)
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, fmt.Sprintf("this node's subnet is %v", sub))
	s.scale(0)
	pods[0].end(t)
	other := newNetwork(t, "pernode-other", 0, cidr("10.99.0.0/30"))
	idle := other.attached(n, "pernode-idle")
	idle.end(t)
	eventually(t, time.Minute, func() error { // what is idle of another pool goes back
		if got := other.leasesOf(n); len(got) > 0 {
			return fmt.Errorf("node %s has leased %v", n.Name, got)
		}
		return nil
	})
	if got := w.leasesOf(n); len(got) != 1 || got[0] != sub.String() {
		t.Errorf("without pods node %s has leased %v; want %v still", n.Name, got, sub)
	}
	again := w.attached(n, "pernode-again")
	if again.subnet() != sub {
		t.Errorf("then it gives %v; want %v", again.addrs, sub)
	}
	c := w.claim("pernode-claim")
	claimSays(t, c, metav1.ConditionFalse, claims.ReasonTopologyInvalid, "pool pernode gives each node a subnet of its own (spec.perNode)")
}

// TestPinnedSubnets: a node has the subnet that is pinned to it, no other node has it, and one that
// another node has already is named.
func TestPinnedSubnets(t *testing.T) {
	pin := func(node, cidr string) v1alpha1.PinnedSubnet { return v1alpha1.PinnedSubnet{Node: node, CIDR: cidr} }
	w := newPerNode(t, "pinned", 2, v1alpha1.PerNode{PrefixLength: 26, Gateway: v1alpha1.PerNodeGatewayNone, Pinned: []v1alpha1.PinnedSubnet{
		pin("pinned-0", "10.68.0.128/26"), pin("pinned-9", "10.68.0.0/26"),
	}}, "10.68.0.0/24")
	first, second := w.attached(w.nodes[0], "pinned-first"), w.attached(w.nodes[1], "pinned-second")
	if first.subnet() != netip.MustParsePrefix("10.68.0.128/26") {
		t.Errorf("the pinned node has %v", first.addrs)
	}
	if s := second.subnet(); s == netip.MustParsePrefix("10.68.0.0/26") || s == first.subnet() {
		t.Errorf("another node has %v, which is pinned", second.addrs)
	}
	p := readPool(t, w.name)
	fleet.Edit(t, kc, p, func() {
		p.Spec.PerNode.Pinned = append(p.Spec.PerNode.Pinned, pin("pinned-2", second.subnet().String()))
	})
	w.nodes = append(w.nodes, w.fleet.Launch("pinned-2"))
	third := w.nodes[2]
	third.AwaitServing()
	late := w.run(third, "pinned-late")
	third.Refused(t, late.Interface, fmt.Sprintf("subnet %v of pool pinned is pinned to node pinned-2, and is leased by node pinned-1", second.subnet()))
	named := w.run(third, "pinned-named").asks(second.subnet().Addr().Next().Next().Next().String())
	third.Refused(t, named.Interface, "is in a block that node pinned-1 holds")
	w.poolSays(v1alpha1.PoolPinsTaken, v1alpha1.ReasonLeasedElsewhere, fmt.Sprintf("subnet %v is pinned to node pinned-2, and node pinned-1 has leased it: drain that node", second.subnet()))
	second.end(t)
	fleet.Edit(t, kc, p, func() { p.Spec.PerNode.Pinned = p.Spec.PerNode.Pinned[:2] })
	w.poolSays(v1alpha1.PoolPinsTaken, "")
	must(t, late.attach())
	for name, change := range map[string]func(){
		"must not be added to a pool":         func() { p.Spec.PerNode = nil },
		"must not change: nodes have subnets": func() { p.Spec.PerNode.PrefixLength = 27 },
		"stands beside a blockSize":           func() { p.Spec.BlockSize = new(int32(4)) },
		"must not be true beside a source":    func() { p.Spec.Advertise = true },
		"stands beside a range with a ":       func() { p.Spec.Ranges[0].Gateway = "10.68.0.1" },
	} {
		if err := fleet.TryEdit(t, kc, p, change); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v; want %q", err, name)
		}
	}
}

// TestEditedSubnets: where the ranges are edited, a node has a subnet of those of now. It gives
// back the one that it had when no pod has an address of it any more.
func TestEditedSubnets(t *testing.T) {
	w := newPerNode(t, "resubnet", 1, v1alpha1.PerNode{PrefixLength: 27}, "10.69.0.0/24")
	n := w.nodes[0]
	before := w.attached(n, "resubnet-before")
	p := readPool(t, w.name)
	fleet.Edit(t, kc, p, func() { p.Spec.Ranges = []v1alpha1.Range{cidr("10.70.0.0/24")} })
	var after *pod
	eventually(t, time.Minute, func() error {
		after = w.run(n, fleet.Unique("resubnet-after"))
		if err := after.attach(); err != nil {
			return err
		}
		if now := netip.MustParsePrefix("10.70.0.0/24"); !now.Contains(after.addrs[0].Addr()) {
			after.end(t)
			return fmt.Errorf("still has %v", after.addrs)
		}
		return nil
	})
	if got := w.leasesOf(n); len(got) != 2 {
		t.Errorf("beside a pod with %v the node has leased %v", before.addrs, got)
	}
	before.end(t)
	eventually(t, time.Minute, func() error {
		if got := w.leasesOf(n); len(got) != 1 || got[0] != after.subnet().String() {
			return fmt.Errorf("the node has leased %v; want %v", got, after.subnet())
		}
		return nil
	})
}

// TestReservedInSubnet: a reservation takes an address out of a node's subnet. When that has ended
// the node gives it again.
func TestReservedInSubnet(t *testing.T) {
	w := newPerNode(t, "subreserved", 1, v1alpha1.PerNode{PrefixLength: 29}, "10.71.0.0/29")
	n := w.nodes[0]
	pods := []*pod{w.attached(n, "subreserved-0")}
	kept := netip.MustParseAddr("10.71.0.6")
	if pods[0].addrs[0].Addr() == kept {
		kept = netip.MustParseAddr("10.71.0.5")
	}
	o := &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: "subreserved"}, Spec: v1alpha1.IPReservationSpec{Pool: w.name, Address: kept.String(), For: "a printer"}}
	fleet.Create(t, kc, o)
	w.keeps(o)
	for i := range 3 { // of six addresses one is the router's
		pods = append(pods, w.attached(n, fmt.Sprint("subreserved-", i+1)))
	}
	extra := w.run(n, "subreserved-extra")
	n.Refused(t, extra.Interface, "has no address left")
	fleet.Delete(t, kc, o)
	must(t, extra.attach())
	if got := extra.addrs[0].Addr(); got != kept {
		t.Errorf("it has %v; want %v", got, kept)
	}
	w.consistent(append(pods, extra))
}
