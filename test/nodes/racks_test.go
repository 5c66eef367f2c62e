package nodes_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/test/fleet"
)

const rackLabel = "topology.kubernetes.io/rack"

// ofRack is a range for the nodes of one rack.
func ofRack(rack, cidr, gateway string) v1alpha1.Range {
	return v1alpha1.Range{CIDR: cidr, Gateway: gateway, NodeSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{rackLabel: v1alpha1.LabelValue(rack)}}}
}

// inRacks makes a Node for each rack that is named, "" for one without the label, and starts an
// agent there.
func (w *network) inRacks(racks ...string) {
	w.t.Helper()
	for i, rack := range racks {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.name, i), Labels: map[string]string{}}}
		if rack != "" {
			o.Labels[rackLabel] = rack
		}
		fleet.Create(w.t, kc, o)
		w.t.Cleanup(func() {
			if err := kc.Delete(context.WithoutCancel(w.t.Context()), o); err != nil {
				w.t.Error(err)
			}
		})
	}
	w.start(len(racks))
}

// relabel puts a node into another rack.
func (w *network) relabel(n *fleet.Node, rack string) {
	w.t.Helper()
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	fleet.Edit(w.t, kc, o, func() { o.Labels = map[string]string{rackLabel: rack} })
}

// selectorIs awaits what the pool's status says of a selector.
func (w *network) selectorIs(rack string, want func(v1alpha1.SelectorStatus) bool) {
	w.t.Helper()
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	await(w.t, time.Minute, p, func() error {
		for _, s := range p.Status.Selectors {
			if s.Selector == rackLabel+"="+rack && want(s) {
				return nil
			}
		}
		return fmt.Errorf("selectors are %+v", p.Status.Selectors)
	})
}

// is fails unless all addresses of p are of a range.
func (p *pod) is(t testing.TB, of string) {
	t.Helper()
	if len(p.addrs) != 1 || p.addrs[0].Masked() != netip.MustParsePrefix(of) {
		t.Errorf("pod %s on %s has %v; want an address of %s", p.Pod, p.node.Name, p.addrs, of)
	}
}

// TestRacks: one pool has a range for each rack, and each pod gets an address, a length and a
// gateway of its node's. A full rack beside an empty one says so, and gives on what comes free.
func TestRacks(t *testing.T) {
	w := newNetwork(t, "racks", 0, ofRack("a", "10.61.0.0/29", "10.61.0.1"), ofRack("b", "10.62.0.0/24", "10.62.0.1"))
	w.inRacks("a", "a", "b", "")
	a1, a2, b1, none := w.nodes[0], w.nodes[1], w.nodes[2], w.nodes[3]
	first := w.run(a1, "racks-first")
	res, err := first.node.Insist(first.Interface)
	if err != nil {
		t.Fatal(err)
	}
	first.addrs = addresses(res)
	if gw := res.IPs[0].Gateway; gw != netip.MustParseAddr("10.61.0.1") {
		t.Errorf("gateway %v; want rack a's", gw)
	}
	first.is(t, "10.61.0.0/29")
	pods := []*pod{first, w.attached(b1, "racks-b")}
	pods[1].is(t, "10.62.0.0/24")
	nowhere := w.run(none, "racks-nowhere")
	none.Refused(t, nowhere.Interface, "has no range for this node ("+rackLabel+" is missing): the nodeSelectors of its ranges are "+rackLabel+"=a; "+rackLabel+"=b")

	_, err = a1.Add(w.run(a1, "racks-static").asks("10.62.0.99").Interface)
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "whose range is for nodes with "+rackLabel+"=b, and this node has "+rackLabel+"=a")

	o := &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: v1alpha1.IPReservationSpec{Pool: w.name, Address: "10.62.0.77", For: "a printer"}}
	fleet.Create(t, kc, o)
	w.keeps(o)
	named := w.run(b1, "racks-reserved").asks(o.Spec.Address)
	b1.Refused(t, named.Interface, "10.62.0.77 of pool racks belongs to reservation racks")
	fleet.Delete(t, kc, o)
	must(t, named.attach())
	pods = append(pods, named)

	for i := range 4 { // rack a has five
		pods = append(pods, w.attached(w.nodes[i%2], fmt.Sprintf("racks-a-%d", i)))
		pods[len(pods)-1].is(t, "10.61.0.0/29")
	}
	extra := w.run(a2, "racks-extra")
	a2.Refused(t, extra.Interface, "pool racks is exhausted")
	w.selectorIs("a", func(s v1alpha1.SelectorStatus) bool {
		return s.Pressure == v1alpha1.PressureExhausted && s.Exhausted != "" && s.Nodes == 2 && s.Free == 0
	})
	w.selectorIs("b", func(s v1alpha1.SelectorStatus) bool {
		return s.Pressure == v1alpha1.PressureLow && s.Exhausted == "" && s.Nodes == 1
	})
	w.poolSays(v1alpha1.PoolExhausted, v1alpha1.ReasonNoAddressFree, "pool racks is exhausted for nodes with "+rackLabel+"=a: 5 of 5 in use")
	first.end(t) // on the other node of the rack
	must(t, extra.attach())
	extra.is(t, "10.61.0.0/29")
	w.consistent(append(pods[1:], extra))
}

// TestRelabelled: what pods have stays when their node is put into another rack, or a selector is
// edited, and what is given then is of the node's new rack.
func TestRelabelled(t *testing.T) {
	w := newNetwork(t, "relabelled", 0, ofRack("a", "10.63.0.0/24", ""), ofRack("b", "10.64.0.0/24", ""))
	w.inRacks("a", "b", "")
	n, other, none := w.nodes[0], w.nodes[1], w.nodes[2]
	before, theirs := w.attached(n, "relabelled-before"), w.attached(other, "relabelled-theirs")
	before.is(t, "10.63.0.0/24")
	w.relabel(n, "b")
	w.relabel(none, "b")
	w.selectorIs("b", func(s v1alpha1.SelectorStatus) bool { return s.Nodes == 3 })
	w.selectorIs("a", func(s v1alpha1.SelectorStatus) bool { return s.Nodes == 0 })
	lately := w.attached(none, "relabelled-lately")
	lately.is(t, "10.64.0.0/24")
	eventually(t, time.Minute, func() error {
		after := w.attached(n, fleet.Unique("relabelled-after"))
		defer after.end(t)
		if after.addrs[0].Masked() != netip.MustParsePrefix("10.64.0.0/24") {
			return fmt.Errorf("still has %v", after.addrs)
		}
		return nil
	})
	if err := n.CheckAdd(before.Interface.With(before.addrs)); err != nil {
		t.Errorf("the pod that was there before: %v", err)
	}
	p := readPool(t, w.name)
	fleet.Edit(t, kc, p, func() {
		p.Spec.Ranges[0].NodeSelector, p.Spec.Ranges[1].NodeSelector = nil, p.Spec.Ranges[0].NodeSelector
	})
	eventually(t, time.Minute, func() error {
		after := w.attached(other, fleet.Unique("relabelled-edited"))
		defer after.end(t)
		if after.addrs[0].Masked() != netip.MustParsePrefix("10.63.0.0/24") {
			return fmt.Errorf("still has %v", after.addrs)
		}
		return nil
	})
	w.consistent([]*pod{before, theirs, lately})
	for _, p := range []*pod{before, theirs, lately} {
		p.end(t)
	}
	w.nothingLeft(30 * time.Second)
}

// TestClaimsOfRacks: a claim has an address for the node of its first pod, or for the labels of its
// annotation; a pod of it on a node of another rack is refused, and the reason says why.
func TestClaimsOfRacks(t *testing.T) {
	w := newNetwork(t, "rackclaims", 0, ofRack("a", "10.65.0.0/24", "10.65.0.1"), ofRack("b", "10.66.0.0/24", "10.66.0.1"))
	w.inRacks("a", "b", "b")
	a, b, b2 := w.nodes[0], w.nodes[1], w.nodes[2]
	first := w.claim("rackclaims-first")
	claimSays(t, first, metav1.ConditionFalse, claims.ReasonWaitForFirstConsumer, "a pod of the claim comes to a node", workload.AnnotationTopology)
	p := w.runWith(b, "rackclaims-1", first)
	must(t, p.attach())
	p.is(t, "10.66.0.0/24")
	claimSays(t, first, metav1.ConditionTrue, claims.ReasonAllocated)
	p.end(t)
	other := w.runWith(a, "rackclaims-2", first)
	_, err := a.Add(other.Interface)
	fleet.WantCode(t, err, agent.CodeClaimRefused, "whose range is for nodes with "+rackLabel+"=b, and this node has "+rackLabel+"=a: schedule the pod where the claim's addresses are")
	again := w.runWith(b2, "rackclaims-3", first)
	must(t, again.attach())
	if again.addrs[0] != p.addrs[0] {
		t.Errorf("the claim has %v, and had %v", again.addrs, p.addrs)
	}

	named := w.claimWith("rackclaims-named", map[string]string{workload.AnnotationTopology: rackLabel + "=a"})
	claimSays(t, named, metav1.ConditionTrue, claims.ReasonAllocated)
	if ip := netip.MustParsePrefix(named.Status.IPs[0]); ip.Masked() != netip.MustParsePrefix("10.65.0.0/24") {
		t.Errorf("the claim for rack a has %v", ip)
	}
	asks := w.claimWith("rackclaims-asks-alone", map[string]string{workload.AnnotationRequested: "10.66.0.77"})
	claimSays(t, asks, metav1.ConditionTrue, claims.ReasonAllocated)
	if asks.Status.IPs[0] != "10.66.0.77/24" {
		t.Errorf("the claim that asks for an address of rack b has %v", asks.Status.IPs)
	}
	claimSays(t, w.claimWith("rackclaims-nowhere", map[string]string{workload.AnnotationTopology: rackLabel + "=c"}),
		metav1.ConditionFalse, claims.ReasonTopologyInvalid, "has no range for the nodes of the claim ("+rackLabel+"=c, of annotation "+workload.AnnotationTopology+")")
	claimSays(t, w.claimWith("rackclaims-garbled", map[string]string{workload.AnnotationTopology: "rack a"}),
		metav1.ConditionFalse, claims.ReasonTopologyInvalid, "cannot be read")
	claimSays(t, w.claimWith("rackclaims-asks", map[string]string{workload.AnnotationTopology: rackLabel + "=a", workload.AnnotationRequested: "10.66.0.7"}),
		metav1.ConditionFalse, claims.ReasonRequestInvalid, "10.66.0.7 of pool rackclaims is for nodes with "+rackLabel+"=b, and the claim is for annotation "+workload.AnnotationTopology)
}
