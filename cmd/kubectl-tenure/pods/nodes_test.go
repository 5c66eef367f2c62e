package pods

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// TestNodes: of a pool with ranges for some nodes alone, what speaks against the pod's node is
// said, and nothing that speaks against others.
func TestNodes(t *testing.T) {
	rack := func(name, cidr string) v1alpha1.Range {
		return v1alpha1.Range{CIDR: cidr, NodeSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"rack": v1alpha1.LabelValue(name)}}}
	}
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "fabric"}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{rack("a", "10.1.0.0/24"), rack("b", "10.2.0.0/24")}}}
	const full = "pool fabric is exhausted for nodes with rack=a: 5 of 5 in use"
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolExhausted, Status: metav1.ConditionTrue, Message: full}}
	p.Status.Selectors = []v1alpha1.SelectorStatus{{Selector: "rack=a", Exhausted: full}, {Selector: "rack=b"}}
	in := func(name string) poolspec.NodeLabels { return poolspec.NodeLabels{"rack": &name} }
	for _, tt := range []struct {
		name  string
		node  poolspec.NodeLabels
		claim []string
		asks  string
		want  string // empty: nothing is said
	}{
		{name: "its rack is full", node: in("a"), want: full},
		{name: "the other rack is full", node: in("b")},
		{name: "a node that is not known", want: full},
		{name: "a node without the label", node: poolspec.NodeLabels{"rack": nil}, want: "pool fabric has no range for node n1 (rack is missing): the nodeSelectors of its ranges are rack=a; rack=b; label the node"},
		{name: "labels that were not told", node: poolspec.NodeLabels{}, want: "node n1 has not been told its labels yet: is the controller running?"},
		{name: "the claim's address is of its rack", node: in("b"), claim: []string{"10.2.0.7/24"}},
		{name: "the claim's address is of the other rack", node: in("b"), claim: []string{"10.1.0.7/24"},
			want: "claim db has address 10.1.0.7 of pool fabric, whose range is for nodes with rack=a, and node n1 has rack=b: have the pod run where the claim's addresses are"},
		{name: "it asks for an address of its rack", node: in("b"), asks: "10.2.0.7"},
		{name: "it asks for one of the other rack", node: in("b"), asks: "10.1.0.7",
			want: "it asks for 10.1.0.7 of pool fabric, whose range is for nodes with rack=a, and node n1 has rack=b: ask for an address that is for its node"},
	} {
		v, n := &podView{Node: "n1"}, networkView{Network: "ns/fabric", Claim: "db"}
		v.addresses(n, p, tt.node)
		v.claimElsewhere(n, tt.claim, p, tt.node)
		if tt.asks != "" {
			v.askedElsewhere(n, netip.MustParseAddr(tt.asks), p, tt.node)
		}
		if got := strings.Join(v.Pending, "\n"); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") || len(v.Pending) > 1 {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}
