package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// pools are those that this node uses.
type pools struct {
	*base
	reg         *registration
	onExhausted func(context.Context)          // cedes what is free of pools that are exhausted
	follow      func(protocol.PoolName, *pool) // set by Run
	listing     listing

	mu     sync.Mutex
	byName map[protocol.PoolName]*pool // guarded by mu
	labels string                      // guarded by mu; the node's, as its registration told them last
}

// get returns the entry of a pool, and follows the pool from then on.
func (ps *pools) get(name protocol.PoolName) *pool {
	ps.mu.Lock()
	p, ok := ps.byName[name]
	if !ok {
		p = newPool(name)
		ps.byName[name] = p
	}
	p.missed = 0
	follow := ps.follow
	ps.mu.Unlock()
	if !ok {
		follow(name, p)
	}
	return p
}

// entry returns the entry of a pool, nil where this node does not follow it.
func (ps *pools) entry(name protocol.PoolName) *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.byName[name]
}

// heard returns a pool as last heard of; nothing where this node does not follow it.
func (ps *pools) heard(name protocol.PoolName) (known *knownPool, absent bool) {
	p := ps.entry(name)
	if p == nil {
		return nil, false
	}
	known, absent, _ = p.now()
	return known, absent
}

// followed returns the pools that this node follows, by name.
func (ps *pools) followed() []*pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.SortedFunc(maps.Values(ps.byName), func(p, q *pool) int { return cmp.Compare(p.name, q.name) })
}

// adopt takes up a pool that the store has kept.
func (ps *pools) adopt(ctx context.Context, name protocol.PoolName, kept Pool) {
	known, err := knownAs(kept, "")
	if err != nil {
		ps.log.WarnContext(ctx, "kept pool not understood", "pool", name, "error", err)
		return
	}
	p := newPool(name)
	p.known = known
	ps.mu.Lock()
	ps.byName[name] = p
	follow := ps.follow
	ps.mu.Unlock()
	follow(name, p)
}

// follower returns what follows a pool, by a task that start runs, until ctx ends or the pool
// is not to be followed any more.
func (ps *pools) follower(ctx context.Context, start func(task func() error)) func(protocol.PoolName, *pool) {
	return func(name protocol.PoolName, p *pool) {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		ps.mu.Lock()
		p.unfollow = func() { cancel(); ps.sched.Wait(context.WithoutCancel(ctx), sched.Forever, ended) }
		ps.mu.Unlock()
		start(func() error {
			defer close(ended)
			return ps.followPool(ctx, name, p)
		})
	}
}

// followPool keeps p as the API server has it until ctx ends. What cannot be taken over,
// as while the disk is full, is tried again until it can be, or there is later news: a pool
// that does not change is not told of again.
func (ps *pools) followPool(ctx context.Context, name protocol.PoolName, p *pool) error {
	return ps.cl.Pools.Follow(ctx, name, func(heard Pool, exists bool) {
		unlock, err := p.hearing.Lock(ctx, ps.sched, struct{}{})
		if err != nil { // it is not followed any more
			return
		}
		defer unlock()
		p.news++
		err = ps.hear(ctx, p, heard, exists)
		if err == nil || ctx.Err() != nil {
			return
		}
		ps.log.WarnContext(ctx, "pool not taken over", "pool", name, "error", err)
		announced := p.news
		ps.background(func(context.Context) {
			for over := false; !over && ps.wait(ctx, retryAfter); {
				unlock, err := p.hearing.Lock(ctx, ps.sched, struct{}{})
				if err != nil {
					return
				}
				over = p.news != announced || ps.hear(ctx, p, heard, exists) == nil
				unlock()
			}
		})
	})
}

// hear takes over a pool as heard: first in the store, with the allocation state made to follow the
// part of it that is for this node, then in memory. The caller holds p.hearing.
func (ps *pools) hear(ctx context.Context, p *pool, heard Pool, exists bool) error {
	was, _, _ := p.now()
	if !exists {
		p.set(was, true) // what is leased of it stays until it is given back
		return nil
	}
	first := false
	if was == nil {
		leased, err := ps.leased(ctx)
		if err != nil {
			return err
		}
		first = !leased[p.name]
	}
	since := ps.reg.heardEpoch(heard.Pool, first)
	p.heardEpoch(heard.Epoch)
	if heard.Edited && was != nil {
		heard.Text = withoutAdded(heard.Text, was.whole)
	}
	heard = ps.forNode(heard, was)
	heard.Revision = "" // counts change it every minute, and nothing here depends on it
	text, err := json.Marshal(heard)
	if err != nil {
		return fmt.Errorf("encode pool: %w", err)
	}
	if was != nil && string(text) == was.text {
		same := *was
		same.Edited = heard.Edited // it is not kept: the controller has looked at the edit since, or not
		p.set(&same, false)
		return nil
	}
	now, err := knownAs(heard, string(text))
	if err != nil {
		p.refuse("cannot be used: " + strings.ReplaceAll(cmp.Or(heard.Waits, err.Error()), "\n", "; "))
		return err
	}
	err = ps.st.Update(ctx, func(tx *store.Tx) error {
		if since && was == nil { // an agent that starts after this one has to know it, too
			if _, err := ps.reg.putHistory(tx); err != nil {
				return err
			}
		}
		if err := tx.PutPool(p.name, text); err != nil {
			return err
		}
		return allocator.NewSpace(tx.Table(p.name), now.shape).Reshape()
	})
	if err != nil {
		p.refuse(fmt.Sprintf("was read, and cannot be kept on this node: %v", err))
		return err
	}
	before, full := was != nil && was.Pressure == allocator.PressureExhausted, heard.Pressure == allocator.PressureExhausted
	if before && !full {
		p.acquires.ease(ps.sched.Now()) // first: who sees that the pool has eased sees how lately
	}
	p.set(now, false)
	if full && !before {
		ps.background(ps.onExhausted) // last: it cedes only of a pool that is known to be exhausted
	}
	return nil
}

// withoutAdded returns the text of a pool that was edited without the addresses that it
// did not give before: pods of another IPAM may have them, and the controller has yet to
// look.
func withoutAdded(text poolspec.PoolText, before *allocator.Shape) poolspec.PoolText {
	now, err := poolspec.ParsePool(text)
	if err != nil {
		return text
	}
	var b netipx.IPSetBuilder
	b.AddSet(now.Usable())
	b.RemoveSet(before.Usable())
	added, _ := b.IPSet() // of sets alone
	var spans []string
	for _, r := range added.Ranges() {
		spans = append(spans, r.String())
	}
	return text.Without(spans)
}

// keptPools returns the pools that the store has records of.
func keptPools(tx *store.Tx) ([]Pool, error) {
	var kept []Pool
	for name, text := range tx.KeptPools() {
		var p Pool
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("kept pool %s: %w", name, err)
		}
		kept = append(kept, p)
	}
	return kept, nil
}

// shapeOf returns the shape under which the store's state of a pool stands, as of
// this transaction: what is in memory may be behind it.
func (ps *pools) shapeOf(tx *store.Tx, name protocol.PoolName) (*allocator.Shape, error) {
	text, ok, err := tx.Pool(name)
	if err != nil || !ok {
		return nil, err
	}
	if known, _ := ps.heard(name); known != nil && known.text == string(text) {
		return known.shape, nil
	}
	var kept Pool
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, fmt.Errorf("kept pool %s: %w", name, err)
	}
	of, err := knownAs(kept, "")
	if err != nil {
		return nil, err
	}
	return of.shape, nil
}

// behind reports whether a pool, as it was read, is of another spec than this node has
// heard of. Addresses are chosen by what was heard: some of them may be another
// pool's by now, or still.
func (ps *pools) behind(live protocol.Pool) bool {
	known, _ := ps.heard(protocol.PoolName(live.Name))
	return known != nil && known.Generation != live.Generation
}

// unheard returns a [*notReadyError] if one of the sources' pools, as it is read now, is of
// another spec than this node has heard of: it may have an address by now that this node
// knows of none. A pool that cannot be read is as it was heard of.
func (ps *pools) unheard(ctx context.Context, sources []poolspec.Source) error {
	for _, src := range sources {
		live, out, _ := ps.cl.Pools.ReadPool(ctx, protocol.PoolName(src.Pool))
		if out == protocol.Done && ps.behind(live) {
			return &notReadyError{Pool: protocol.PoolName(src.Pool), Why: "was edited, and this node has not heard of that yet"}
		}
	}
	return nil
}

// readiness returns a pool once it will do for the caller, waiting until ctx ends.
type readiness func(ctx context.Context, name protocol.PoolName) (*knownPool, error)

// ready returns pool name once it can be used, waiting until ctx ends.
func (ps *pools) ready(ctx context.Context, name protocol.PoolName) (*knownPool, error) {
	known, _, err := ps.get(name).until(ctx, ps.sched, unready)
	return known, err
}

// answerable is ready, but does not wait for a pool that is stopped: the caller gives nothing new
// of it.
func (ps *pools) answerable(ctx context.Context, name protocol.PoolName) (*knownPool, error) {
	known, _, err := ps.get(name).until(ctx, ps.sched, unanswerable)
	return known, err
}

// readBackWait bounds how long a reading back waits for each pool.
const readBackWait = 2 * time.Second

// shape returns the ranges of a pool, whether or not it gives addresses; nil if it is not known
// soon, or not there.
func (ps *pools) shape(ctx context.Context, name protocol.PoolName) *allocator.Shape {
	ctx, cancel := ps.sched.WithTimeout(ctx, readBackWait, context.DeadlineExceeded)
	defer cancel()
	known, _, err := ps.get(name).until(ctx, ps.sched, func(known *knownPool, absent bool) string {
		if known == nil && !absent {
			return unread
		}
		return ""
	})
	if err != nil || known == nil {
		return nil
	}
	return known.whole
}

// exhausted reports whether a pool has no address left, so that what comes free is
// the cluster's to give.
func (ps *pools) exhausted(name protocol.PoolName) bool {
	known, absent := ps.heard(name)
	return known != nil && !absent && known.Pressure == allocator.PressureExhausted
}

// pressed reports whether idle leases of a pool go back at once.
func (ps *pools) pressed(name protocol.PoolName) bool {
	known, absent := ps.heard(name)
	return absent || known != nil && (known.Pressure != allocator.PressureLow || known.Deleting || !known.Open)
}
