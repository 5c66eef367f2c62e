package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// forget forgets pools that are gone, of which this node has nothing, and that nobody names: each
// is watched, and read again at each start. Pools that definitions describe come and go with these.
func (ps *pools) forget(ctx context.Context) {
	gone := ps.gone()
	if len(gone) == 0 {
		return
	}
	var used map[protocol.PoolName]bool
	err := ps.st.View(func(tx *store.Tx) (err error) {
		used, err = poolsInUse(tx)
		return err
	})
	if err != nil {
		ps.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	gone = slices.DeleteFunc(gone, func(p *pool) bool { return used[p.name] || !ps.drop(p) })
	var forgotten []protocol.PoolName
	err = ps.st.Update(ctx, func(tx *store.Tx) error {
		forgotten = nil
		used, err := poolsInUse(tx)
		if err != nil {
			return err
		}
		for _, p := range gone {
			if used[p.name] || ps.isFollowed(p.name) { // the record is what has been heard since
				continue
			}
			if err := tx.DeletePool(p.name); err != nil {
				return err
			}
			forgotten = append(forgotten, p.name)
		}
		return nil
	})
	if err != nil {
		ps.log.WarnContext(ctx, "pools that are gone stay in the store until after the next start", "pools", len(gone), "error", err)
		return
	}
	if len(forgotten) > 0 {
		ps.log.InfoContext(ctx, "pools forgotten: they are gone, and this node has nothing of them", "pools", forgotten)
	}
}

// gone returns, by name, the pools that were gone at the last call, too, and that nobody has named
// since. While the API server's data may have gone back none is: it may come again.
func (ps *pools) gone() (gone []*pool) {
	restored := ps.reg.restored()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.byName {
		if _, absent, _ := p.now(); !absent || restored != nil {
			p.missed = 0
			continue
		}
		if p.missed++; p.missed > 1 {
			gone = append(gone, p)
		}
	}
	slices.SortFunc(gone, func(p, q *pool) int { return cmp.Compare(p.name, q.name) })
	return gone
}

// drop ends the following of p, unless somebody has named it meanwhile, or it is there
// again. It reports whether it has; nobody hears of p any more then.
func (ps *pools) drop(p *pool) bool {
	ps.mu.Lock()
	_, absent, _ := p.now()
	drop, unfollow := absent && p.missed > 1, p.unfollow
	if drop {
		delete(ps.byName, p.name)
	}
	ps.mu.Unlock()
	if drop {
		unfollow()
	}
	return drop
}

func (ps *pools) isFollowed(name protocol.PoolName) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	_, ok := ps.byName[name]
	return ok
}

// poolsInUse returns the pools of which the node has a right, a request or an address.
func poolsInUse(tx *store.Tx) (map[protocol.PoolName]bool, error) {
	used := map[protocol.PoolName]bool{}
	for r, err := range tx.Rights() {
		if err != nil {
			return nil, err
		}
		used[r.Pool] = true
		for _, lease := range r.Leases {
			if pool, _, err := protocol.ParseLeaseName(lease); err == nil {
				used[pool] = true
			}
		}
		if r.Request != nil {
			for _, w := range r.Request.Wants {
				used[w.Pool] = true
			}
		}
	}
	for att, err := range tx.Attachments() {
		if err != nil {
			return nil, err
		}
		for _, x := range att.Addresses {
			used[x.Pool] = true
		}
	}
	return used, nil
}
