package local

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A network's addresses are opened in blocks of this many bits, whatever its
// ranges are, so that edits of the configuration never make blocks overlap.
const blockLog = 8

// aheadBlocks is how many blocks of what a slot may take are open before any
// address comes back that was in use before: the last 4096 freed addresses rest.
// It is a bound, since an IPv6 network would otherwise open blocks for ever.
const aheadBlocks = 16

func blockBits(f allocator.Family) int { return f.BitLen() - blockLog }

// plan returns the pools that c describes, and the addresses that an attachment
// needs of them.
func plan(c *poolspec.Config) (pools map[string]assign.Pool, slots []assign.Slot, err error) {
	pools = map[string]assign.Pool{}
	for _, src := range c.Sources {
		if _, ok := pools[src.Pool]; ok {
			continue
		}
		if src.Implicit == nil {
			return nil, nil, fmt.Errorf("%w: local mode has no pool %q", poolspec.ErrConfig, src.Pool)
		}
		shape, err := poolspec.ParsePool(*src.Implicit)
		if err != nil {
			return nil, nil, err
		}
		pools[src.Pool] = assign.Pool{Shape: shape}
	}
	slots, err = assign.Slots(c, pools)
	return pools, slots, err
}

// hold does what [assign.Hold] does, and opens blocks as they are needed. Where there is no address
// for a, it takes back what attachments have whose namespaces are provably gone, one after the
// other and no more than it needs: a container that is started again by its ID finds what it had.
// It returns those that it has taken from.
func (h host) hold(tx *store.Tx, pools map[string]assign.Pool, a assign.Demand) (held store.Attachment, from []store.Attachment, err error) {
	if err := prepare(tx, pools, a); err != nil {
		return held, nil, err
	}
	var vanished []store.Attachment
	for {
		held, err = holdOpen(tx, a)
		full, isFull := errors.AsType[*assign.NoRoomError](err)
		taken, isTaken := errors.AsType[*assign.TakenError](err)
		if !isFull && !isTaken {
			return held, from, err
		}
		if from == nil {
			var readErr error
			if vanished, readErr = h.vanished(tx); readErr != nil {
				return held, nil, readErr
			}
		}
		i := slices.IndexFunc(vanished, func(x store.Attachment) bool {
			return isTaken && taken.By.Key == x.Key || isFull && fills(x, full.Slot)
		})
		if i < 0 {
			return held, nil, err
		}
		if _, _, err := assign.Release(tx, vanished[i].Key); err != nil {
			return held, nil, err
		}
		from, vanished = append(from, vanished[i]), slices.Delete(vanished, i, i+1)
	}
}

// fills reports whether x has an address that s could be given.
func fills(x store.Attachment, s assign.Slot) bool {
	return slices.ContainsFunc(x.Addresses, func(a store.Address) bool {
		return allocator.FamilyOf(a.Addr) == s.Family && s.View.Contains(a.Addr) && s.Shape.Assignable(a.Addr) == nil
	})
}

// prepare makes the network's pools what its configuration says, which may have been edited since
// the last call, and opens what a may take.
func prepare(tx *store.Tx, pools map[string]assign.Pool, a assign.Demand) error {
	for name, p := range pools {
		if err := space(tx, protocol.PoolName(name), p.Shape).Reshape(); err != nil {
			return err
		}
		if err := adopt(tx, protocol.PoolName(name), p.Shape); err != nil {
			return err
		}
	}
	for _, s := range a.Slots {
		if err := openFor(tx, s); err != nil {
			return err
		}
	}
	return nil
}

// holdOpen does what [assign.Hold] does, and opens further blocks where those that are open are
// full.
func holdOpen(tx *store.Tx, a assign.Demand) (store.Attachment, error) {
	for {
		held, err := assign.Hold(tx, a)
		full, ok := errors.AsType[*assign.NoRoomError](err)
		if !ok {
			return held, err
		}
		if opened, openErr := openNext(tx, full.Slot); openErr != nil || !opened {
			return store.Attachment{}, errors.Join(openErr, err)
		}
	}
}

// adopt moves the addresses that attachments have of other pools into the network's pool. Earlier
// versions named a pool by its ranges in whereabouts' form. After an edit of these there was
// another pool, which knew nothing of the addresses of the first. An address that two attachments
// have from that time stays with both until one of them frees it.
func adopt(tx *store.Tx, pool protocol.PoolName, shape *allocator.Shape) error {
	if !slices.ContainsFunc(tx.Pools(), func(p protocol.PoolName) bool { return p != pool }) {
		return nil
	}
	var others []store.Attachment
	for x, err := range tx.Attachments() {
		if err != nil {
			return err
		}
		if slices.ContainsFunc(x.Addresses, func(a store.Address) bool { return a.Pool != pool }) {
			others = append(others, x)
		}
	}
	for _, x := range others {
		for i, a := range x.Addresses {
			if a.Pool == pool {
				continue
			}
			moved, err := move(tx, a, space(tx, pool, shape))
			if err != nil {
				return err
			}
			if moved {
				x.Addresses[i].Pool = pool
			}
		}
		if err := tx.PutAttachment(x); err != nil {
			return err
		}
	}
	return nil
}

// move takes a in another space instead of its own, unless it is taken there.
func move(tx *store.Tx, a store.Address, to allocator.Space) (moved bool, err error) {
	block, err := a.Addr.Prefix(blockBits(allocator.FamilyOf(a.Addr)))
	if err != nil {
		return false, err
	}
	if err := to.Open(block); err != nil {
		return false, err
	}
	switch err := to.Take(a.Addr); {
	case errors.Is(err, allocator.ErrTaken):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, space(tx, a.Pool, nil).Free(a.Addr)
}

func space(tx *store.Tx, pool protocol.PoolName, shape *allocator.Shape) allocator.Space {
	return allocator.NewSpace(tx.Table(pool), shape)
}

// openFor opens the block of the address that s asks for by name, or the first
// blocks of what it may take.
func openFor(tx *store.Tx, s assign.Slot) error {
	sp := space(tx, s.Pool, s.Shape)
	if s.Exact.IsValid() {
		if _, ok := s.Shape.Locate(s.Exact); !ok {
			return nil // Hold says why not
		}
		return sp.Open(s.Shape.Block(s.Exact, blockBits(allocator.FamilyOf(s.Exact))))
	}
	opened := 0
	return eachBlock(s, func(block netip.Prefix) (more bool, err error) {
		opened++
		return opened < aheadBlocks, sp.Open(block)
	})
}

// openNext opens the next block that s may use and that is not open. ok is false
// if there is none.
func openNext(tx *store.Tx, s assign.Slot) (ok bool, err error) {
	if s.Exact.IsValid() {
		return false, nil // its block is open
	}
	sp := space(tx, s.Pool, s.Shape)
	err = eachBlock(s, func(block netip.Prefix) (more bool, err error) {
		isOpen, err := sp.IsOpen(block)
		if err != nil || isOpen {
			return true, err
		}
		ok = true
		return false, sp.Open(block)
	})
	return ok, err
}

// eachBlock calls do with the blocks of what s may take, in order, until it has
// no more, wants no more, or fails.
func eachBlock(s assign.Slot, do func(netip.Prefix) (more bool, err error)) error {
	bits := blockBits(s.Family)
	from := netip.IPv4Unspecified()
	if s.Family == allocator.IPv6 {
		from = netip.IPv6Unspecified()
	}
	for from.IsValid() {
		block, ok := s.Shape.NextBlock(s.Family, bits, s.View, from)
		if !ok {
			return nil
		}
		if more, err := do(block); err != nil || !more {
			return err
		}
		from = netipx.PrefixLastIP(block).Next()
	}
	return nil
}
