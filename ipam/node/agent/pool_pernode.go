package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A pool with perNode gives each node one subnet, as one lease, which the node keeps. The cluster
// gives none of its addresses to others.

// staying returns which leases this node keeps, though nothing rests on them: of each pool that
// gives each node a subnet one, the first on which something rests, or else the first of all. It
// may have two after edits that took the ranges of one away and gave them back.
func (ps *pools) staying(rights []protocol.Right, empty map[string]bool) map[string]bool {
	of := map[protocol.PoolName]string{}
	for _, r := range rights {
		if own, ok := of[r.Pool]; ps.mayStay(r) && (!ok || empty[own] && !empty[r.Name]) {
			of[r.Pool] = r.Name
		}
	}
	stay := map[string]bool{}
	for _, name := range of {
		stay[name] = true
	}
	return stay
}

// mayStay reports whether a right is to the subnet that this node may have as its pool is now.
func (ps *pools) mayStay(r protocol.Right) bool {
	if r.Kind != protocol.RightLease || r.Phase != protocol.Held {
		return false
	}
	known, absent := ps.heard(r.Pool)
	return known != nil && !absent && known.Open && !known.Deleting && known.Text.PerNode != nil && known.mayLease(ps.cfg.Node)(r.Block)
}

// mayLease returns a function that reports whether a node may lease a block. Without perNode it may
// lease any. With perNode it may lease only one that the ranges have and that is pinned to no other
// node; and if one is pinned to the node, only that.
func (p *knownPool) mayLease(node protocol.NodeName) func(block netip.Prefix) bool {
	if p.Text.PerNode == nil {
		return func(netip.Prefix) bool { return true }
	}
	pin, others := p.Text.PerNode.Pins(string(node))
	return func(block netip.Prefix) bool {
		in, ok := p.shape.Locate(block.Addr())
		_, taken := others[in.Prefix]
		return ok && !taken && (!pin.IsValid() || in.Prefix == pin)
	}
}

// perNode reports whether one of the slots is of a pool that gives each node a subnet.
func (ps *pools) perNode(slots []assign.Slot) bool {
	return slices.ContainsFunc(slots, func(s assign.Slot) bool {
		known, _ := ps.heard(s.Pool)
		return known != nil && known.Text.PerNode != nil
	})
}

// isSubnet reports whether a right is to a subnet that this node has of the pool, or may have got,
// where each node has one. Then it takes none back that it gives back.
func (p *knownPool) isSubnet(r protocol.Right) bool {
	if p.Text.PerNode == nil || r.Kind != protocol.RightLease || string(r.Pool) != p.Name {
		return false
	}
	_, there := p.shape.Locate(r.Block.Addr())
	return there && (r.Phase == protocol.Noted || r.Phase == protocol.Held)
}

// ownLease returns the lease of a pool that this node has, or may have; one without a block if
// there is none. One of a block that the ranges do not have any more does not count. Nor does one
// of which nothing new is given, since it was taken away, or the store was lost that had it. One
// that is being given back counts only if there is no other.
func (bs *blocks) ownLease(known *knownPool) (own protocol.Right, err error) {
	err = bs.st.Peek(func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Kind != protocol.RightLease || string(r.Pool) != known.Name || r.Phase == protocol.Lost || r.Phase == protocol.Frozen {
				continue
			}
			if _, there := known.shape.Locate(r.Block.Addr()); there {
				if own = r; r.Phase != protocol.Releasing {
					return nil
				}
			}
		}
		return nil
	})
	return own, err
}

// subnetsFor returns which blocks of a pool this node may lease; nil if it may lease none now. In a
// pool that gives each node a subnet that is one, unless an acquire is at one already. p's acquires
// are locked.
func (bs *blocks) subnetsFor(p *pool, known *knownPool) (may func(block netip.Prefix) bool, err error) {
	if known.Text.PerNode != nil {
		if own, err := bs.ownLease(known); err != nil || own.Block.IsValid() || len(p.acquires.trying) > 0 {
			return nil, err
		}
	}
	return known.mayLease(bs.cfg.Node), nil
}

// noBlock says why there is no block for a slot.
func (bs *blocks) noBlock(ctx context.Context, p *pool, known *knownPool, slot assign.Slot) error {
	e := &ExhaustedError{Pool: p.name, Family: slot.Family, View: slot.View}
	per := known.Text.PerNode
	if per == nil {
		return e
	}
	own, err := bs.ownLease(known)
	pin, _ := per.Pins(string(bs.cfg.Node))
	switch {
	case err != nil:
		return e
	case own.Phase == protocol.Releasing:
		e.Message = fmt.Sprintf("subnet %v of pool %s is still being given back by node %s: wait until that has ended", own.Block, p.name, bs.cfg.Node)
	case own.Block.IsValid():
		in, _ := known.shape.Locate(own.Block.Addr())
		e.Message = fmt.Sprintf("subnet %v, which node %s has of pool %s, has no address left: delete pods on the node, or make a pool with wider subnets", in.Prefix, bs.cfg.Node, p.name)
	case pin.IsValid():
		holder, remedy := "is not free", "correct spec.perNode.pinned, or drain that node"
		if l, out, _ := bs.cl.Leases.ReadLease(ctx, known.leaseOf(pin.Addr())); out == protocol.Done {
			holder = fmt.Sprintf("is leased by %v", l.Holder)
			if l.Holder.Cluster {
				remedy = "it comes free when no reservation and no pod of another IPAM, or of a dead node, has an address of it any more"
			}
		}
		e.Message = fmt.Sprintf("subnet %v of pool %s is pinned to node %s, and %s: %s", pin, p.name, bs.cfg.Node, holder, remedy)
	default:
		e.Message = fmt.Sprintf("pool %s has no subnet left for node %s: widen its ranges", p.name, bs.cfg.Node)
	}
	return e
}

// notThisNodes returns why an address that was asked for by name cannot be this node's: it lies in
// another node's subnet.
func (bs *blocks) notThisNodes(known *knownPool, a netip.Addr, block netip.Prefix) error {
	own, err := bs.ownLease(known)
	pin, others := known.Text.PerNode.Pins(string(bs.cfg.Node))
	in, _ := known.shape.Locate(a)
	var why error
	switch {
	case err != nil:
		return err
	case own.Phase == protocol.Releasing && own.Block != block:
		return &notReadyError{Pool: protocol.PoolName(known.Name), Why: fmt.Sprintf("has no subnet for this node yet: %v is still being given back", own.Block)}
	case own.Phase == protocol.Releasing && pin.IsValid() && in.Prefix != pin:
		why = fmt.Errorf("this node's subnet is %v (spec.perNode.pinned)", pin)
	case own.Block.IsValid() && own.Block != block:
		has, _ := known.shape.Locate(own.Block.Addr())
		why = fmt.Errorf("this node's subnet is %v (spec.perNode)", has.Prefix)
	case !own.Block.IsValid() && pin.IsValid() && in.Prefix != pin:
		why = fmt.Errorf("this node's subnet is %v (spec.perNode.pinned)", pin)
	case others[in.Prefix] != "":
		why = fmt.Errorf("%v is pinned to node %s (spec.perNode.pinned)", in.Prefix, others[in.Prefix])
	default:
		return nil
	}
	return &assign.UnassignableError{Addr: a, Pool: protocol.PoolName(known.Name), Reason: why}
}
