package assign

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A BlockKey names a block of a pool.
type BlockKey struct {
	Pool  protocol.PoolName
	Block netip.Prefix
}

// Blocks returns the state of every block that is open on this node.
func Blocks(tx *store.Tx) (map[BlockKey]allocator.BlockInfo, error) {
	info := map[BlockKey]allocator.BlockInfo{}
	for _, name := range tx.Pools() {
		space := allocator.NewSpace(tx.Table(name), nil)
		for _, f := range allocator.Families() {
			for b, err := range space.Blocks(f) {
				if err != nil {
					return nil, err
				}
				info[BlockKey{name, b.Prefix}] = b
			}
		}
	}
	return info, nil
}
