package pods

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/who"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// correctPools has the pools of networks that the pod has be those that its addresses are of: a
// definition may name another pool by now.
func (l podLook) correctPools(ctx context.Context, v *podView) error {
	for i := range v.Networks {
		n := &v.Networks[i]
		if !n.Attached || len(n.Pools) == 0 {
			continue
		}
		named := n.Pools
		pools, err := l.poolsHolding(ctx, v, *n)
		if err != nil {
			return err
		}
		if n.Pools = pools; slices.ContainsFunc(pools, func(pool string) bool { return !slices.Contains(named, pool) }) || len(pools) == 0 && len(n.IPs) > 0 {
			v.Remarks = append(v.Remarks, fmt.Sprintf("network %s: its definition names pool %s, and the pod has an address of %s, which it keeps as long as it is there",
				n.Network, strings.Join(named, ", "), cmp.Or(strings.Join(pools, ", "), "no pool that is known")))
		}
	}
	return nil
}

// poolsHolding returns the pools that the addresses of a network that the pod has are of.
func (l podLook) poolsHolding(ctx context.Context, v *podView, n networkView) (pools []string, err error) {
	for _, text := range n.IPs {
		ip, err := npwg.ParseIP(text)
		if err != nil {
			continue
		}
		pool, err := l.poolHolding(ctx, v, n, ip.Addr.Unmap())
		if err != nil {
			return nil, err
		}
		if pool != "" && !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	return pools, nil
}

// poolHolding returns the pool that an address of a network is of: one of those that its definition
// names, or another that has given it to the pod; empty: none is known.
func (l podLook) poolHolding(ctx context.Context, v *podView, n networkView, addr netip.Addr) (string, error) {
	named := map[string]bool{}
	for _, name := range n.Pools {
		p, out, err := l.API.ReadIPPool(ctx, protocol.PoolName(name))
		if out != protocol.Done && out != protocol.NotFound {
			return "", fmt.Errorf("read pool %s: %w", name, err)
		}
		if out == protocol.NotFound {
			continue
		}
		named[name] = true
		if holds, err := l.holds(ctx, v, n, p, addr); err != nil || holds {
			return name, err
		}
	}
	others, err := session.ListAll(ctx, l.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	if err != nil {
		return "", err
	}
	for i := range others {
		if p := &others[i]; !named[p.Name] {
			if holds, err := l.holds(ctx, v, networkView{Claim: n.Claim, Interface: n.Interface}, p, addr); err != nil || holds {
				return p.Name, err
			}
		}
	}
	return "", nil
}

// holds reports whether an address of a network is of a pool. Of a pool that the network's
// definition names it is if the pool's ranges have it; else if the pool has given it to the pod.
// What is a claim's has to be granted to the claim.
func (l podLook) holds(ctx context.Context, v *podView, n networkView, p *v1alpha1.IPPool, addr netip.Addr) (bool, error) {
	if n.Claim == "" && slices.Contains(n.Pools, p.Name) && who.HasAddress(p, addr) {
		return true, nil
	}
	has, _, err := who.InPool(ctx, l.Session, p, addr)
	return has.ServesPod(v.Namespace, v.Name) && has.Lease != "" || has.Claim != "" && has.Claim == v.Namespace+"/"+n.Claim, err
}
