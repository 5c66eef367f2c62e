package pools

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRoom: free is what a node can get without naming it, of each family; used is by whoever has
// an address on a node, but for claims.
func TestRoom(t *testing.T) {
	p := pool("10.0.0.0/27", "fd00::/64")
	p.Spec.Ranges[0].StaticOnly = []string{"10.0.0.30"}
	shape, fault := shapeOf(p)
	if fault != "" {
		t.Fatal(fault)
	}
	node := func(block, node string, used int32) v1alpha1.IPLease {
		return v1alpha1.IPLease{
			Spec:   v1alpha1.IPLeaseSpec{Block: block, Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}},
			Status: v1alpha1.IPLeaseStatus{Used: &used},
		}
	}
	ofCluster := v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{
		Block: "10.0.0.16/29", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderCluster},
		Grants: []v1alpha1.Grant{
			{Address: "10.0.0.16", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, UID: "c", Namespace: "ns", Name: "vm"}},
			{Address: "10.0.0.17", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeSubLease, UID: "s", Name: "sub"}},
			{Address: "10.0.0.18", To: v1alpha1.Grantee{Kind: v1alpha1.GranteePod, UID: "p", Namespace: "ns", Name: "p", Node: "b"}},
			{Address: "10.0.0.19", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeReservation, UID: "r", Name: "printer"}},
			{Address: "10.0.0.20", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeSubLease, UID: "g", Name: "gone"}},
		},
	}}
	leases := []v1alpha1.IPLease{node("10.0.0.8/29", "a", 3), node("fd00::40/122", "a", 2), node("10.0.0.24/29", "lost", 1), ofCluster}
	around := surroundings{reaches: func(l *v1alpha1.IPLease) bool { return l.Spec.Holder.Node != "lost" }}
	parts := partsOf(kube.PoolText(p), leases, shape, around)
	if len(parts) != 1 || !parts[0].For(&corev1.Node{}) {
		t.Fatalf("the parts are %v; want one, for all nodes", parts)
	}
	// Of 29 addresses 9 are somebody's, and 5 are on the node that is lost: its block has 6.
	if d := cmp.Diff(map[allocator.Family]int64{allocator.IPv4: 29 - 9 - 5, allocator.IPv6: math.MaxInt64}, parts[0].Free); d != "" {
		t.Errorf("free (-want +got):\n%s", d)
	}
	want := Room{
		Used: map[protocol.NodeName]map[allocator.Family]int64{
			"a": {allocator.IPv4: 3, allocator.IPv6: 2}, "b": {allocator.IPv4: 2}, "lost": {allocator.IPv4: 1},
		},
		Claims: map[types.NamespacedName]bool{{Namespace: "ns", Name: "vm"}: true},
	}
	if d := cmp.Diff(want, usersOf(leases, map[string]protocol.NodeName{"sub": "b"})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	p.Spec.Ranges[0].StaticOnly = []string{"10.0.0.0/27"}
	p.Generation++
	shape, _ = shapeOf(p)
	if free := partsOf(kube.PoolText(p), nil, shape, around)[0].Free; len(free) != 1 || free[allocator.IPv6] == 0 {
		t.Errorf("free are %v; want those of the family alone of which every interface gets one", free)
	}
}

// TestRoomOfParts: what is free is told of the ranges with each node selector, with the nodes that
// it is for.
func TestRoomOfParts(t *testing.T) {
	p := pool("10.0.0.0/29", "10.0.1.0/28", "10.0.2.0/30")
	rack := func(name string) *v1alpha1.LabelSelector {
		return &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"rack": v1alpha1.LabelValue(name)}}
	}
	p.Spec.Ranges[0].NodeSelector, p.Spec.Ranges[1].NodeSelector = rack("r1"), rack("r2")
	shape, fault := shapeOf(p)
	if fault != "" {
		t.Fatal(fault)
	}
	used := int32(2)
	lease := v1alpha1.IPLease{
		Spec:   v1alpha1.IPLeaseSpec{Block: "10.0.1.0/29", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "a"}},
		Status: v1alpha1.IPLeaseStatus{Used: &used},
	}
	var got []string
	for _, part := range partsOf(kube.PoolText(p), []v1alpha1.IPLease{lease}, shape, near) {
		text := fmt.Sprint(part.Free[allocator.IPv4])
		for _, name := range []string{"r1", "r2", "none"} {
			if part.For(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"rack": name}}}) {
				text += " " + name
			}
		}
		got = append(got, text)
	}
	if want := []string{"6 r1", "12 r2", "2 r1 r2 none"}; !slices.Equal(got, want) {
		t.Errorf("the parts have left, for nodes of which racks: %q; want %q", got, want)
	}
}
