package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// use makes sure that this node has a confirmed use of c for pod's interface and
// returns its name, with the claim's addresses. It must run under the claim's
// lock. What it read live is as new as this call.
func (a *Agent) use(ctx context.Context, c protocol.Claim, wanted protocol.Use, conf *poolspec.Config, key store.Key) (name string, addrs []store.Address, err error) {
	has, err := a.hasClaim(ctx, c, wanted, key)
	if err != nil {
		return "", nil, err
	}
	ready := a.pools.ready
	if has {
		ready = a.pools.answerable
	}
	addrs, leases, err := a.claimAddresses(ctx, c, conf, ready)
	if err != nil {
		return "", nil, err
	}
	bare := make([]netip.Addr, len(addrs))
	for i, addr := range addrs {
		bare[i] = addr.Addr
	}
	names, err := a.useNames(ctx, c.UID)
	if err != nil {
		return "", nil, err
	}
	blocked, why := "is in use on two other nodes", ""
	for _, name := range names {
		r := protocol.Right{Kind: protocol.RightUse, Name: name, SubLeaseRight: protocol.SubLeaseRight{Use: &wanted, Addrs: bare, Leases: leases}}
		if err := a.sameNode(ctx, r, wanted, key); err != nil {
			return "", nil, err
		}
		got, res, err := a.settleUse(ctx, r)
		if err != nil {
			return "", nil, &ClaimError{Claim: c.Ref().String(), Why: "use not settled: " + err.Error(), Later: true}
		}
		switch res.Verdict {
		case protocol.VerdictUsable:
			return got.Name, addrs, nil
		case protocol.VerdictTaken:
			why = res.Why
			if got.Phase == protocol.Frozen {
				blocked = "cannot be used on this node now"
			}
			continue
		case protocol.VerdictRefused:
			return "", nil, &ClaimError{Claim: c.Ref().String(), Why: res.Why, Later: res.Passes}
		case protocol.VerdictLater, protocol.VerdictDenied, protocol.VerdictGone, protocol.VerdictNone:
			return "", nil, &ClaimError{Claim: c.Ref().String(), Why: cmp.Or(res.Why, "its use on this node has gone meanwhile"), Later: true}
		}
	}
	return "", nil, &ClaimError{Claim: c.Ref().String(), Why: blocked + ": " + why, Later: true}
}

// hasClaim reports whether this node has given the interface all of c's addresses, and no DEL has
// come since: then it has them again, also of a pool that is stopped.
func (a *Agent) hasClaim(ctx context.Context, c protocol.Claim, wanted protocol.Use, key store.Key) (has bool, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		has = false
		for att, err := range tx.OfPod(wanted.Pod.UID, wanted.Interface) {
			if err != nil {
				return err
			}
			has = has || att.Network == key.Network && att.Claim != nil && att.Claim.UID == c.UID && !slices.ContainsFunc(c.IPs, func(ip netip.Prefix) bool {
				return !slices.ContainsFunc(att.Addresses, func(x store.Address) bool { return x.Addr == ip.Addr() })
			})
		}
		return nil
	})
	return has, err
}

// settleUse settles a use again and again, until ctx ends, where it is not known yet: a
// pod that moves often comes to the new node while the old one still gives back the use,
// which is there at one moment and gone at the next.
func (a *Agent) settleUse(ctx context.Context, r protocol.Right) (protocol.Right, protocol.Result, error) {
	ev := protocol.Event{Kind: protocol.EventRenew, Use: r.Use, Addrs: r.Addrs, Leases: r.Leases}
	for wait := claimWait; ; wait = min(2*wait, 16*claimWait) {
		got, res, err := a.rights.settleForADD(ctx, r, a.rights.beginWith(ev), nil)
		if err != nil || res.Verdict != protocol.VerdictLater && res.Verdict != protocol.VerdictGone {
			return got, res, err
		}
		if !a.wait(ctx, wait) {
			return got, res, nil
		}
	}
}

// useNames returns the names of a claim's uses in the order to try them: one that this node
// has a record of is the only one, and of two the one that pods may have, or have had.
func (a *Agent) useNames(ctx context.Context, claim protocol.UID) ([]string, error) {
	names := []string{protocol.UseName(claim, 0), protocol.UseName(claim, 1)}
	err := a.st.ViewContext(ctx, func(tx *store.Tx) error {
		var recorded []protocol.Right
		for _, name := range names {
			r, ok, err := tx.Right(name)
			if err != nil {
				return err
			}
			if ok {
				recorded = append(recorded, r)
			}
		}
		if len(recorded) > 0 {
			names = []string{protocol.PickUse(recorded).Name}
		}
		return nil
	})
	return names, err
}

// sameNode refuses what may not share this node's use r: another interface of the
// same pod, or another pod that still runs.
func (a *Agent) sameNode(ctx context.Context, r protocol.Right, wanted protocol.Use, key store.Key) error {
	var others []store.Attachment
	err := a.st.ViewContext(ctx, func(tx *store.Tx) error {
		others = others[:0]
		for att, err := range tx.OfUse(r.Name) {
			if err != nil {
				return err
			}
			if att.Key != key {
				others = append(others, att)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, att := range others {
		if why, later := a.mayShare(att, wanted); why != "" {
			return &ClaimError{Claim: wanted.Claim.String(), Why: why, Later: later}
		}
	}
	return nil
}

// mayShare returns why another attachment of a claim on this node forbids a new
// one: while its sandbox is there, there would be two. Later says that the end of that
// sandbox is all that it takes; another interface of the pod stays as long as the pod.
func (a *Agent) mayShare(att store.Attachment, wanted protocol.Use) (why string, later bool) {
	switch {
	case att.Pod.UID == wanted.Pod.UID && att.IfName != wanted.Interface:
		return fmt.Sprintf("is already used by interface %s of this pod", att.IfName), false
	case a.host.Gone(att):
		return "", false
	default:
		return fmt.Sprintf("is in use by pod %s on this node%s", att.Pod, wanted.Pod.Standoff(att.Pod)), true
	}
}

// claimAddresses returns a claim's addresses as the attachment will have them, and
// the names of the leases of their blocks. A claim keeps its addresses whatever becomes of
// their pool's ranges: the prefix lengths are those of its status, and the gateways those
// that the pools name now. It waits for the pools by ready.
func (a *Agent) claimAddresses(ctx context.Context, c protocol.Claim, conf *poolspec.Config, ready readiness) (addrs []store.Address, leases []string, err error) {
	var bare []netip.Addr
	for _, ip := range c.IPs {
		bare = append(bare, ip.Addr())
	}
	if err := conf.CheckVersion(bare); err != nil {
		return nil, nil, err
	}
	known := claimPools{ready: ready, of: map[string]*knownPool{}}
	for _, ip := range c.IPs {
		src, found, err := a.claimSource(ctx, c, ip.Addr(), conf, known)
		if err != nil {
			return nil, nil, err
		}
		if !found {
			if err := a.pools.unheard(ctx, conf.Sources); err != nil {
				return nil, nil, err
			}
			return nil, nil, &ClaimError{Claim: c.Ref().String(), Why: fmt.Sprintf("has address %v, which is in no pool of network %s%s", ip.Addr(), c.Network, whichLabels(conf))}
		}
		p := a.pools.get(protocol.PoolName(src.Pool))
		if _, _, err := p.until(ctx, a.sched, func(*knownPool, bool) string { return a.pools.waitsFor(p.name) }); err != nil {
			return nil, nil, err
		}
		in, _ := known.of[src.Pool].whole.Locate(ip.Addr())
		if why := known.of[src.Pool].elsewhere(ip.Addr()); why != "" {
			return nil, nil, &ClaimError{Claim: c.Ref().String(), Why: fmt.Sprintf("has address %v of pool %s, %s: schedule the pod where the claim's addresses are, by a node affinity", ip.Addr(), src.Pool, why)}
		}
		_, gateway := src.Answer(ip.Addr(), in)
		addrs = append(addrs, store.Address{Addr: ip.Addr(), Bits: ip.Bits(), Gateway: gateway, Pool: p.name})
		leases = append(leases, known.of[src.Pool].leaseOf(ip.Addr()))
	}
	return addrs, leases, nil
}

// claimPools are the pools of a claim's network, as they are looked through for its addresses.
type claimPools struct {
	ready readiness
	of    map[string]*knownPool
}

// claimSource returns the source of a network that a claim has an address of. Ranges may have
// been edited since the address was granted, so where they leave a doubt the leases decide.
func (a *Agent) claimSource(ctx context.Context, c protocol.Claim, addr netip.Addr, conf *poolspec.Config, known claimPools) (poolspec.Source, bool, error) {
	shapeOf := func(pool string) (*allocator.Shape, error) {
		k, err := known.ready(ctx, protocol.PoolName(pool))
		if err != nil {
			return nil, err
		}
		known.of[pool] = k
		return k.whole, nil
	}
	src, found, err := conf.SourceOf(addr, shapeOf)
	if err != nil {
		return src, false, err
	}
	var pools []string // that may have granted it
	for _, s := range conf.Sources {
		if known.of[s.Pool] == nil {
			known.of[s.Pool], _, _ = a.pools.get(protocol.PoolName(s.Pool)).now()
		}
		if k := known.of[s.Pool]; k != nil && k.bits(allocator.FamilyOf(addr)) != 0 && !slices.Contains(pools, s.Pool) {
			pools = append(pools, s.Pool)
		}
	}
	if found && len(pools) == 1 {
		return src, true, nil
	}
	for _, pool := range pools {
		l, out, err := a.cl.Leases.ReadLease(ctx, known.of[pool].leaseOf(addr))
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
