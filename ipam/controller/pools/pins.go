package pools

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// takenPins says which subnets of a pool are pinned to one node, and leased by another, or by the
// cluster: the node to which they are pinned waits for them.
func takenPins(pool *v1alpha1.IPPool, leases []v1alpha1.IPLease) (sentences []string) {
	if pool.Spec.PerNode == nil || len(pool.Spec.PerNode.Pinned) == 0 {
		return nil
	}
	pins := map[netip.Prefix]string{}
	for _, pin := range pool.Spec.PerNode.Pinned {
		if sub, err := netip.ParsePrefix(pin.CIDR); err == nil { // else the condition Ready says so
			pins[sub.Masked()] = pin.Node
		}
	}
	for i := range leases {
		block, err := netip.ParsePrefix(leases[i].Spec.Block)
		if err != nil {
			continue
		}
		sub := netip.PrefixFrom(block.Addr(), int(pool.Spec.PerNode.PrefixLength)).Masked()
		switch node, held := pins[sub], leases[i].Spec.Holder; {
		case node == "" || held.Node == node:
		case held.Kind == v1alpha1.HolderCluster:
			sentences = append(sentences, fmt.Sprintf("subnet %v is pinned to node %s, and the cluster has it, for reservations or for pods of another IPAM: it is the node's when these have ended", sub, node))
		default:
			sentences = append(sentences, fmt.Sprintf("subnet %v is pinned to node %s, and node %s has leased it: drain that node, or pin another subnet", sub, node, held.Node))
		}
	}
	slices.Sort(sentences)
	return slices.Compact(sentences)
}
