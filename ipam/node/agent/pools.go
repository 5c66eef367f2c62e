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
	"sync/atomic"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// pool is a pool that this node uses, as last heard of, and the demand for its
// blocks.
type pool struct {
	name protocol.PoolName

	mu      sync.Mutex
	known   *knownPool    // guarded by mu; nil until heard of
	absent  bool          // guarded by mu; the API server says that there is none
	changed chan struct{} // guarded by mu; closed and replaced at each change
	// refused says why what was heard last was not taken over; empty: it was. Guarded by mu.
	refused string

	// missed is how many looks in a row have found the pool gone, and named by nobody (see
	// forgetPools); guarded by Agent.mu.
	missed   int
	unfollow func() // guarded by Agent.mu; ends the following, and returns when it has ended

	demands   demands
	touched   atomic.Bool // a look at the reserve, and at what is idle, is due
	tending   atomic.Bool // one is under way
	reserving atomic.Bool // one is planned
}

// knownPool is an immutable view of a pool: a change replaces it.
type knownPool struct {
	Pool
	shape *allocator.Shape
	text  string // as kept in the store; empty for a pool that was kept and not heard of since
}

// bits returns the prefix length of p's blocks of family f.
func (p *knownPool) bits(f allocator.Family) int {
	if f == allocator.IPv4 {
		return p.Bits4
	}
	return p.Bits6
}

func newPool(name protocol.PoolName) *pool {
	return &pool{name: name, changed: make(chan struct{})}
}

// now returns the pool as last heard of, and a channel that closes when that
// changes.
func (p *pool) now() (known *knownPool, absent bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known, p.absent, p.changed
}

func (p *pool) set(known *knownPool, absent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.absent, p.refused = known, absent, ""
	p.wakeLocked()
}

// refuse notes why what was heard is not taken over.
func (p *pool) refuse(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = why
	p.wakeLocked()
}

// whyUnknown says why nothing is known of p.
func (p *pool) whyUnknown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.refused, unread)
}

// wake has all that wait for news of the pool look again.
func (p *pool) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

func (p *pool) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// pool returns the entry of a pool, and follows the pool from then on.
func (a *Agent) pool(name protocol.PoolName) *pool {
	a.mu.Lock()
	p, ok := a.pools[name]
	if !ok {
		p = newPool(name)
		a.pools[name] = p
	}
	p.missed = 0
	follow := a.follow
	a.mu.Unlock()
	if !ok {
		follow(name, p)
	}
	return p
}

// heard returns a pool as last heard of; nothing where this node does not follow it.
func (a *Agent) heard(name protocol.PoolName) (known *knownPool, absent bool) {
	a.mu.Lock()
	p := a.pools[name]
	a.mu.Unlock()
	if p == nil {
		return nil, false
	}
	known, absent, _ = p.now()
	return known, absent
}

// followed returns the pools that this node follows, by name.
func (a *Agent) followed() []*pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.pools), func(p, q *pool) int { return cmp.Compare(p.name, q.name) })
}

// adoptPool takes up a pool that the store has kept.
func (a *Agent) adoptPool(ctx context.Context, name protocol.PoolName, kept Pool) {
	shape, err := poolspec.ParsePool(kept.Text)
	if err != nil {
		a.log.WarnContext(ctx, "kept pool not understood", "pool", name, "error", err)
		return
	}
	p := newPool(name)
	p.known = &knownPool{Pool: kept, shape: shape}
	a.mu.Lock()
	a.pools[name] = p
	follow := a.follow
	a.mu.Unlock()
	follow(name, p)
}

// follower returns what follows a pool, by a task that start runs, until ctx ends or the pool
// is not to be followed any more.
func (a *Agent) follower(ctx context.Context, start func(task func() error)) func(protocol.PoolName, *pool) {
	return func(name protocol.PoolName, p *pool) {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		a.mu.Lock()
		p.unfollow = func() { cancel(); a.sched.Wait(context.WithoutCancel(ctx), sched.Forever, ended) }
		a.mu.Unlock()
		start(func() error {
			defer close(ended)
			return a.followPool(ctx, name, p)
		})
	}
}

// followPool keeps p as the API server has it until ctx ends. What cannot be taken over,
// as while the disk is full, is tried again until it can be, or there is later news: a pool
// that does not change is not told of again.
func (a *Agent) followPool(ctx context.Context, name protocol.PoolName, p *pool) error {
	var mu sync.Mutex
	news := 0 // guarded by mu; how often the pool was told of
	return a.cl.Pools.Follow(ctx, name, func(heard Pool, exists bool) {
		mu.Lock()
		defer mu.Unlock()
		news++
		err := a.hear(ctx, p, heard, exists)
		if err == nil {
			return
		}
		if ctx.Err() != nil { // it is not followed any more
			return
		}
		a.log.WarnContext(ctx, "pool not taken over", "pool", name, "error", err)
		announced := news
		a.background(func(context.Context) {
			for a.wait(ctx, retryAfter) {
				mu.Lock()
				over := news != announced || a.hear(ctx, p, heard, exists) == nil
				mu.Unlock()
				if over {
					return
				}
			}
		})
	})
}

// hear takes over a pool as heard: first in the store, with the allocation state
// made to follow its shape, then in memory.
func (a *Agent) hear(ctx context.Context, p *pool, heard Pool, exists bool) error {
	was, _, _ := p.now()
	if !exists {
		p.set(was, true) // what is leased of it stays until it is given back
		return nil
	}
	a.heardEpoch(heard.Pool, was == nil)
	if heard.Edited && was != nil {
		heard.Text = withoutAdded(heard.Text, was.shape)
	}
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
	shape, err := poolspec.ParsePool(heard.Text)
	if err != nil {
		p.refuse("cannot be used: " + strings.ReplaceAll(cmp.Or(heard.Waits, err.Error()), "\n", "; "))
		return err
	}
	err = a.st.Update(ctx, func(tx *store.Tx) error {
		if err := tx.PutPool(p.name, text); err != nil {
			return err
		}
		return allocator.NewSpace(tx.Table(p.name), shape).Reshape()
	})
	if err != nil {
		p.refuse(fmt.Sprintf("was read, and cannot be kept on this node: %v", err))
		return err
	}
	before, now := was != nil && was.Pressure == allocator.PressureExhausted, heard.Pressure == allocator.PressureExhausted
	if before && !now {
		p.demands.ease(a.sched.Now()) // first: who sees that the pool has eased sees how lately
	}
	p.set(&knownPool{Pool: heard, shape: shape, text: string(text)}, false)
	if now && !before {
		a.background(a.cedeExhausted) // last: it cedes only of a pool that is known to be exhausted
	}
	return nil
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
func (a *Agent) shapeOf(tx *store.Tx, name protocol.PoolName) (*allocator.Shape, error) {
	text, ok, err := tx.Pool(name)
	if err != nil || !ok {
		return nil, err
	}
	if known, _ := a.heard(name); known != nil && known.text == string(text) {
		return known.shape, nil
	}
	var kept Pool
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, fmt.Errorf("kept pool %s: %w", name, err)
	}
	return poolspec.ParsePool(kept.Text)
}

// behind reports whether a pool, as it was read, is of another spec than this node has
// heard of. Addresses are chosen by what was heard: some of them may be another
// pool's by now, or still.
func (a *Agent) behind(live protocol.Pool) bool {
	known, _ := a.heard(protocol.PoolName(live.Name))
	return known != nil && known.Generation != live.Generation
}

// unheard returns a [*notReadyError] if one of the sources' pools, as it is read now, is of
// another spec than this node has heard of: it may have an address by now that this node
// knows of none. A pool that cannot be read is as it was heard of.
func (a *Agent) unheard(ctx context.Context, sources []poolspec.Source) error {
	for _, src := range sources {
		live, out, _ := a.cl.Pools.ReadPool(ctx, protocol.PoolName(src.Pool))
		if out == protocol.Done && a.behind(live) {
			return &notReadyError{Pool: protocol.PoolName(src.Pool), Why: "was edited, and this node has not heard of that yet"}
		}
	}
	return nil
}

// full says in words that an ADD would find no address left for this node in a source's
// pool; it returns "" if it would. An interface gets an address of each family, so that
// one without is enough. The error says why that could not be found out until ctx ended.
func (a *Agent) full(ctx context.Context, src poolspec.Source) (why string, err error) {
	name := protocol.PoolName(src.Pool)
	known, _, _ := a.pool(name).now()
	if known == nil || known.Exhausted == "" { // its pressure may be Exhausted for who asks for a part of it
		return "", nil
	}
	families := src.FamiliesOf(known.shape)
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		for _, f := range families {
			c, err := a.counts(tx, name, f)
			if err != nil {
				return err
			}
			if c.Free == 0 {
				why = known.Exhausted
			}
		}
		return nil
	})
	return why, err
}
