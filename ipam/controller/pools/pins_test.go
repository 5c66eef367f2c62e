package pools

import (
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestTakenPins: of a longer subnet the block is the beginning. What a node has that is pinned to
// it, and what is pinned to nobody, is not told of.
func TestTakenPins(t *testing.T) {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{PerNode: &v1alpha1.PerNode{PrefixLength: 20, Pinned: []v1alpha1.PinnedSubnet{
		{Node: "a", CIDR: "10.0.0.0/20"}, {Node: "b", CIDR: "10.0.16.0/20"}, {Node: "c", CIDR: "10.0.32.0/20"}, {Node: "d", CIDR: "10.0.48.0/20"},
	}}}}
	lease := func(block string, of v1alpha1.Holder) v1alpha1.IPLease {
		return v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Block: block, Holder: of}}
	}
	node := func(name string) v1alpha1.Holder { return v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: name} }
	leases := []v1alpha1.IPLease{
		lease("10.0.32.0/24", v1alpha1.Holder{Kind: v1alpha1.HolderCluster}), lease("10.0.0.0/24", node("a")),
		lease("10.0.16.0/24", node("a")), lease("10.0.64.0/24", node("d")), lease("garbled", node("d")),
	}
	want := []string{
		"subnet 10.0.16.0/20 is pinned to node b, and node a has leased it: drain that node, or pin another subnet",
		"subnet 10.0.32.0/20 is pinned to node c, and the cluster has it, for reservations or for pods of another IPAM: it is the node's when these have ended",
	}
	if got := takenPins(pool, leases); !slices.Equal(got, want) {
		t.Errorf("it says %q; want %q", got, want)
	}
	pool.Spec.PerNode = nil
	if got := takenPins(pool, leases); got != nil {
		t.Errorf("of a pool without perNode it says %q", got)
	}
}
