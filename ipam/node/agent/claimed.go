package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// findClaim returns the claim that the interface is to have, as soon as it has addresses.
func (a *Agent) findClaim(ctx context.Context, add *addCall) (protocol.Claim, error) {
	pod, network := add.demand.Pod, add.conf.Name
	moved := false // the claim is of the network on which the pod's machine was before
	c, err := a.awaitClaim(ctx, pod.Namespace, add.sel.Claim, func(c protocol.Claim) error {
		if ok, _ := protocol.BelongsTo(pod, c); ok && c.VM != "" && c.Network != network {
			moved = true
			return &ClaimError{Claim: c.Ref().String(), Why: fmt.Sprintf("is of network %q", c.Network)}
		}
		if add.byName && c.ByName == "" {
			return &ClaimError{Claim: c.Ref().String(), Why: "is not the pod's: either the controller makes it so, or an Event of the pod says whose it is", Later: true}
		}
		return checkClaim(c, pod, network, add.key.IfName)
	})
	if !moved {
		return c, err
	}
	next := workload.MachineClaimName(add.sel.Claim, network)
	c, err = a.awaitClaim(ctx, pod.Namespace, next, func(c protocol.Claim) error { return checkClaim(c, pod, network, add.key.IfName) })
	if refused, ok := errors.AsType[*ClaimError](err); ok {
		refused.Why += fmt.Sprintf("; the controller makes it, since claim %s, which the pod names, is of another network than %q", add.sel.Claim, network)
	}
	return c, err
}

// names reports whether the interface is to have the claim of that name.
func (add *addCall) names(claim string) bool {
	return claim == add.sel.Claim || claim == workload.MachineClaimName(add.sel.Claim, add.conf.Name)
}

// claimAddresses returns a claim's addresses as the attachment will have them, and
// the names of the leases of their blocks. A claim keeps its addresses whatever becomes of
// their pool's ranges: the prefix lengths are those of its status, and the gateways those
// that the pools name now.
func (a *Agent) claimAddresses(ctx context.Context, c protocol.Claim, conf *poolspec.Config) (addrs []store.Address, leases []string, err error) {
	var bare []netip.Addr
	for _, ip := range c.IPs {
		bare = append(bare, ip.Addr())
	}
	if err := conf.CheckVersion(bare); err != nil {
		return nil, nil, err
	}
	known := map[string]*knownPool{}
	for _, ip := range c.IPs {
		src, found, err := a.claimSource(ctx, c, ip.Addr(), conf, known)
		if err != nil {
			return nil, nil, err
		}
		if !found {
			if err := a.unheard(ctx, conf.Sources); err != nil {
				return nil, nil, err
			}
			return nil, nil, &ClaimError{Claim: c.Ref().String(), Why: fmt.Sprintf("has address %v, which is in no pool of network %s", ip.Addr(), c.Network)}
		}
		p := a.pool(protocol.PoolName(src.Pool))
		if _, _, err := p.until(ctx, a.sched, func(*knownPool, bool) string { return a.unopened(p.name) }); err != nil {
			return nil, nil, err
		}
		in, _ := known[src.Pool].shape.Locate(ip.Addr())
		_, gateway := src.Answer(ip.Addr(), in)
		addrs = append(addrs, store.Address{Addr: ip.Addr(), Bits: ip.Bits(), Gateway: gateway, Pool: p.name})
		leases = append(leases, known[src.Pool].leaseOf(ip.Addr()))
	}
	return addrs, leases, nil
}

// leaseOf returns the name of the lease that has an address of p.
func (p *knownPool) leaseOf(addr netip.Addr) string {
	return protocol.LeaseName(protocol.PoolName(p.Name), p.shape.Block(addr, p.bits(allocator.FamilyOf(addr))))
}

// claimSource returns the source of a network that a claim has an address of. Ranges may have
// been edited since the address was granted, so where they leave a doubt the leases decide.
func (a *Agent) claimSource(ctx context.Context, c protocol.Claim, addr netip.Addr, conf *poolspec.Config, known map[string]*knownPool) (poolspec.Source, bool, error) {
	shapeOf := func(pool string) (*allocator.Shape, error) {
		k, err := a.ready(ctx, protocol.PoolName(pool))
		if err != nil {
			return nil, err
		}
		known[pool] = k
		return k.shape, nil
	}
	src, found, err := conf.SourceOf(addr, shapeOf)
	if err != nil {
		return src, false, err
	}
	var pools []string // that may have granted it
	for _, s := range conf.Sources {
		if known[s.Pool] == nil {
			known[s.Pool], _, _ = a.pool(protocol.PoolName(s.Pool)).now()
		}
		if k := known[s.Pool]; k != nil && k.bits(allocator.FamilyOf(addr)) != 0 && !slices.Contains(pools, s.Pool) {
			pools = append(pools, s.Pool)
		}
	}
	if found && len(pools) == 1 {
		return src, true, nil
	}
	for _, pool := range pools {
		l, out, err := a.cl.Leases.ReadLease(ctx, known[pool].leaseOf(addr))
		if out != protocol.Done && out != protocol.NotFound {
			return src, false, &ClaimError{Claim: c.Ref().String(), Why: fmt.Sprintf("the lease of address %v cannot be read: %v", addr, err), Later: true}
		}
		if g, ok := l.GrantOf(addr); out != protocol.Done || !ok || g.To.UID != c.UID {
			continue
		}
		of := *conf
		of.Sources = slices.DeleteFunc(slices.Clone(conf.Sources), func(s poolspec.Source) bool { return s.Pool != pool })
		src, _, err = of.SourceOf(addr, shapeOf)
		return src, err == nil, err
	}
	return src, found, nil
}
