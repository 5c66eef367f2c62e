package recovery

import (
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Frozen is what is known of a lost store when its attachments are looked for.
type Frozen struct {
	// Leases and Uses are its rights: leases, and uses of claims and requests.
	Leases, Uses []protocol.Right
	// Unnamed are the pools of the default domain: a configuration of ranges without a name does
	// not tell which of them it is of.
	Unnamed []poolspec.DomainPool
	// Netns are the identities of the network namespaces that are there, by path.
	Netns map[string]string
	// Boot is the machine's present boot.
	Boot string
	// Shape returns the ranges of a pool, nil of one that is not known now. It may take some time.
	Shape func(protocol.PoolName) *allocator.Shape
}

// A Pod is a pod that runs on the node.
type Pod struct {
	protocol.PodRef
	// MirrorOf is, of a static pod's mirror, the UID by which the runtime knows
	// the pod; else empty.
	MirrorOf protocol.UID
}

// Of collects what the store has of a lost store's rights.
func Of(tx *store.Tx, lost protocol.StoreID) (f Frozen, err error) {
	for r, err := range tx.Rights() {
		switch {
		case err != nil:
			return f, err
		case r.Phase != protocol.Frozen || r.Store != lost:
		case r.Kind == protocol.RightLease:
			f.Leases = append(f.Leases, r)
		default:
			f.Uses = append(f.Uses, r)
		}
	}
	return f, nil
}

// leaseOf returns the frozen lease that x lies in, of one of pools, or of any if
// pools is nil.
func (f Frozen) leaseOf(x netip.Addr, pools []protocol.PoolName) (protocol.Right, bool) {
	i := slices.IndexFunc(f.Leases, func(r protocol.Right) bool {
		return r.Block.Contains(x) && (pools == nil || slices.Contains(pools, r.Pool))
	})
	if i < 0 {
		return protocol.Right{}, false
	}
	return f.Leases[i], true
}

// granted returns the frozen use or request of a pod's interface.
func (f Frozen) granted(pod protocol.UID, ifName string) (protocol.Right, bool) {
	i := slices.IndexFunc(f.Uses, func(r protocol.Right) bool {
		switch {
		case r.Use != nil:
			return r.Use.Pod.UID == pod && r.Use.Interface == ifName
		case r.Request != nil:
			return r.Request.Pod.UID == pod && r.Request.Interface == ifName
		}
		return false
	})
	if pod == "" || i < 0 {
		return protocol.Right{}, false
	}
	return f.Uses[i], true
}

// unnamed returns the pools of the default domain that may have given these addresses.
func (f Frozen) unnamed(addrs []netip.Prefix) (pools []protocol.PoolName) {
	for _, p := range f.Unnamed {
		if slices.ContainsFunc(addrs, func(x netip.Prefix) bool {
			return slices.ContainsFunc(p.CIDRs, func(c netip.Prefix) bool { return c.Contains(x.Addr()) }) ||
				slices.ContainsFunc(f.Leases, func(r protocol.Right) bool { return string(r.Pool) == p.Name && r.Block.Contains(x.Addr()) })
		}) {
			pools = append(pools, protocol.PoolName(p.Name))
		}
	}
	return pools
}

// pools returns the pools of which the lost store had addresses.
func (f Frozen) pools() (pools []protocol.PoolName) {
	for _, r := range f.Leases {
		pools = append(pools, r.Pool)
	}
	for _, r := range f.Uses {
		for _, lease := range r.Leases {
			if pool, _, err := protocol.ParseLeaseName(lease); err == nil {
				pools = append(pools, pool)
			}
		}
		if r.Request != nil {
			for _, w := range r.Request.Wants {
				pools = append(pools, w.Pool)
			}
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// poolOf returns which of pools has x. Where none is known to, those that are not known now may.
func (f Frozen) poolOf(x netip.Addr, pools []protocol.PoolName) (pool protocol.PoolName, unknown []protocol.PoolName) {
	for _, name := range pools {
		shape := f.Shape(name)
		if shape == nil {
			unknown = append(unknown, name)
		} else if _, ok := shape.Locate(x); ok {
			return name, nil
		}
	}
	return "", unknown
}
