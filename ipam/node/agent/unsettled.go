package agent

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// unsettled returns a block of this node that could serve n again, claimed: one whose
// create is in doubt, that is being given back, or that has room and waits to be said
// again in a new term. Without it an outage would leave one more name behind at every
// try. The Update that uses the block looks at its right again.
func (a *Agent) unsettled(p *pool, known *knownPool, n addressDemand) (block netip.Prefix, err error) {
	term, unserving := a.term(), a.unserving.blocks(p.name)
	var found []netip.Prefix
	err = a.st.Peek(func(tx *store.Tx) error {
		free, err := freeIn(tx, p.name, n.family, unserving)
		if err != nil {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			waits := r.Phase == protocol.Noted || r.Phase == protocol.Releasing || r.Phase == protocol.Held && !r.Serves(term) && free[r.Block] > 0
			if r.Kind != protocol.RightLease || r.Pool != p.name || !waits || allocator.FamilyOf(r.Block.Addr()) != n.family {
				continue
			}
			if known.gives(r.Block, n) {
				found = append(found, r.Block)
			}
		}
		return nil
	})
	if err != nil {
		return netip.Prefix{}, err
	}
	// Not within the Peek: who waits for the demand's lock in a transaction, while
	// whoever has it begins one, waits for ever once the store's file has to grow.
	for _, block := range found {
		if p.demands.claim(block) {
			return block, nil
		}
	}
	return netip.Prefix{}, nil
}

// freeIn returns how many addresses are free in each of some open blocks.
func freeIn(tx *store.Tx, name protocol.PoolName, f allocator.Family, blocks map[netip.Prefix]bool) (map[netip.Prefix]int, error) {
	free := map[netip.Prefix]int{}
	if len(blocks) == 0 {
		return free, nil
	}
	for b, err := range allocator.NewSpace(tx.Table(name), nil).Blocks(f) {
		if err != nil {
			return nil, err
		}
		if blocks[b.Prefix] {
			free[b.Prefix] = b.Free
		}
	}
	return free, nil
}

// gives reports whether block has an ordinary address that n could take.
func (p *knownPool) gives(block netip.Prefix, n addressDemand) bool {
	found, ok := p.shape.NextBlock(n.family, p.bits(n.family), n.view, block.Addr())
	return ok && found == block
}
