package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// errNothing says that there is no cause to settle a right.
var errNothing = errors.New("there is nothing to do")

// errNoRegistration says that an agent without a registration may not write.
var errNoRegistration = errors.New("the agent has no registration")

// cessions are the leases whose free addresses are to be ceded. From the moment that
// this is known they give nothing any more: what comes free belongs to whoever has
// waited longest, on whatever node. The zero value is ready.
type cessions struct {
	mu  sync.Mutex
	due map[string]*cession // guarded by mu; by lease
}

type cession struct {
	releases int  // releases under way, whose addresses will be free
	running  bool // a worker cedes
	again    bool // something has come free since it began
}

// expect notes that addresses of leases are about to come free. The caller then
// calls done.
func (c *cessions) expect(leases []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due == nil {
		c.due = map[string]*cession{}
	}
	for _, name := range leases {
		if c.due[name] == nil {
			c.due[name] = &cession{}
		}
		c.due[name].releases++
	}
}

// done ends what expect began, and returns the leases that no worker cedes yet: the
// caller starts one for each.
func (c *cessions) done(leases []string) (idle []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range leases {
		d := c.due[name]
		d.releases--
		d.again = true
		if !d.running {
			d.running = true
			idle = append(idle, name)
		}
	}
	return idle
}

// next reports whether the worker of a lease has something to cede; else it ends.
func (c *cessions) next(lease string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.due[lease]
	if d.again {
		d.again = false
		return true
	}
	d.running = false
	if d.releases == 0 {
		delete(c.due, lease)
	}
	return false
}

// pending returns the leases of which what is free is about to be ceded.
func (c *cessions) pending() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var leases map[string]bool
	for name := range c.due {
		if leases == nil {
			leases = map[string]bool{}
		}
		leases[name] = true
	}
	return leases
}

// toCede returns the leases of which att's release will free addresses that are to be
// ceded.
func (bs *blocks) toCede(att store.Attachment) []string {
	var leases []string
	for _, x := range att.Addresses {
		if x.Lease != "" && bs.pools.exhausted(x.Pool) && !slices.Contains(leases, x.Lease) {
			leases = append(leases, x.Lease)
		}
	}
	return leases
}

// freeing runs free, an Update that frees what an attachment has, and then cedes what is
// to be ceded of it. The Update's function tells expect of the attachment before it frees
// anything, each time that it runs. A panic of free goes on: the server of the node socket
// contains it, and until its leases were ceded they would give nothing any more (I5).
func (bs *blocks) freeing(free func(expect func(store.Attachment)) error) error {
	var leases []string
	defer func() { bs.cedeFreed(leases) }()
	return free(func(att store.Attachment) {
		if leases == nil {
			leases = bs.toCede(att)
			bs.ceding.expect(leases)
		}
	})
}

// cede cedes what is free of leases: one write for each lease, and one more if
// something has come free meanwhile.
func (bs *blocks) cede(leases ...string) {
	bs.ceding.expect(leases)
	bs.cedeFreed(leases)
}

// cedeFreed is cede for a caller that has told [cessions.expect].
func (bs *blocks) cedeFreed(leases []string) {
	for _, name := range bs.ceding.done(leases) {
		bs.background(func(ctx context.Context) {
			for bs.ceding.next(name) {
				bs.cedeLease(ctx, name)
			}
		})
	}
}

// cedeLease cedes every free address of a lease. One that nothing rests on goes back
// instead, unless something of it is granted: then it is ceded whole.
func (bs *blocks) cedeLease(ctx context.Context, name string) {
	r, ok := bs.right(name)
	if !ok || r.Phase != protocol.Held {
		return
	}
	used := false
	err := bs.st.View(func(tx *store.Tx) (err error) {
		used, err = inUse(tx, r)
		return err
	})
	if err != nil {
		bs.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	if !used {
		bs.handBack(ctx, r)
		return
	}
	bs.cedeOf(ctx, r, nil)
}

// handBack gives a lease that nothing rests on back, or cedes it whole if something
// of it is granted.
func (bs *blocks) handBack(ctx context.Context, r protocol.Right) {
	// One that had vanished, and waits for its pool to open, may be what keeps the
	// pool closed: its blocks are to have another size.
	if r.Term == 0 && !r.Granted {
		bs.rights.letGo(ctx, r)
		return
	}
	// A lease that was given away on disk serves nobody until the API server has
	// heard of it: while that is away, it is better kept. And what was published
	// since has moved its revision, at which the delete must be.
	r, res, err := bs.rights.settle(ctx, r, bs.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck}))
	switch {
	case err != nil || res.Verdict != protocol.VerdictUsable:
	case r.Granted:
		bs.cedeOf(ctx, r, nil)
	default:
		bs.rights.letGo(ctx, r)
	}
}

// cedeOf cedes the free addresses of a lease that lie in ranges, or anywhere if that
// is nil, with one write, and reports whether the API server has heard of it. Of a
// block that nothing rests on, and of which something is granted, all is ceded, what
// nobody can be given too: only then may the cluster take the block over.
func (bs *blocks) cedeOf(ctx context.Context, r protocol.Right, within *netipx.IPSet) bool {
	ceded := 0
	_, res, err := bs.rights.settle(ctx, r, func(tx *store.Tx, self protocol.Self, was protocol.Right) (protocol.Event, error) {
		r = was
		addrs, err := bs.barFree(tx, self, r, within)
		if err == nil && len(addrs) == 0 {
			err = errNothing
		}
		ceded = len(addrs)
		return protocol.Event{Kind: protocol.EventCede, Addrs: addrs}, err
	})
	switch {
	case errors.Is(err, errNothing):
		return within == nil || bs.heardCeded(ctx, r, within)
	// It is tried again.
	case errors.Is(err, errUnanswered), errors.Is(err, errNoRegistration), is[*poolWaitsError](err), is[*restoreError](err):
		return false
	case err != nil:
		bs.log.WarnContext(ctx, "addresses not ceded", "lease", r.Name, "error", err)
		return false
	}
	bs.metrics.ceded.Add(float64(ceded))
	bs.log.InfoContext(ctx, "addresses ceded", "lease", r.Name, "addresses", ceded, "verdict", res.Verdict)
	return res.Verdict == protocol.VerdictUsable
}

// heardCeded is asked where nothing of r is free within ranges. It reports whether the API server
// knows what r has ceded there before: that write may have had no answer. What r was taking back
// may be free once that is settled.
func (bs *blocks) heardCeded(ctx context.Context, r protocol.Right, within *netipx.IPSet) bool {
	if !slices.ContainsFunc(r.Ceded, within.Contains) {
		return true
	}
	_, res, err := bs.rights.settle(ctx, r, bs.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck}))
	return len(r.Taking) == 0 && err == nil && res.Verdict == protocol.VerdictUsable
}

// barFree bars the free addresses of the block of r, which must be held, and returns
// them. A step without a registration records nothing as ceded: what it had barred nobody would
// give any more.
func (bs *blocks) barFree(tx *store.Tx, self protocol.Self, r protocol.Right, within *netipx.IPSet) ([]netip.Addr, error) {
	if r.Phase != protocol.Held { // nothing would be recorded of it
		return nil, errNothing
	}
	if self.Term == 0 {
		return nil, errNoRegistration
	}
	shape, err := bs.pools.shapeOf(tx, r.Pool)
	if err != nil {
		return nil, err
	}
	used, err := inUse(tx, r)
	if err != nil {
		return nil, err
	}
	whole := !used && r.Granted && within == nil
	space := allocator.NewSpace(tx.Table(r.Pool), shape)
	var addrs []netip.Addr
	for x := r.Block.Addr(); r.Block.Contains(x); x = x.Next() {
		// What a recall names goes also if the pool as this node knows it does not have it: an edit
		// may add it.
		if within != nil && !within.Contains(x) || within == nil && !whole && shape.Assignable(x) != nil {
			continue
		}
		state, err := space.State(x)
		if err != nil {
			return nil, err
		}
		if state != allocator.Free {
			continue
		}
		if err := space.Bar(x, true); err != nil {
			return nil, err
		}
		addrs = append(addrs, x)
	}
	return addrs, nil
}

// cedeExhausted cedes what is free of every pool that is exhausted, and hands back what is idle.
func (bs *blocks) cedeExhausted(ctx context.Context) {
	for _, p := range bs.pools.followed() {
		name := p.name
		if !bs.pools.exhausted(name) {
			continue
		}
		used, idle := bs.cedable(name)
		bs.cede(used...)
		// While the API server is away an idle lease is kept, and serves: it is to be handed
		// back, and serves no more, only from when a recheck of it is answered.
		sched.Each(ctx, bs.sched, bs.cfg.Parallel, idle, func(r protocol.Right) {
			if r.Term != 0 {
				_, res, err := bs.rights.settle(ctx, r, bs.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck}))
				if err != nil || res.Verdict != protocol.VerdictUsable {
					return
				}
			}
			bs.cede(r.Name)
		})
	}
}

// cedable returns the leases of a pool that have addresses to cede: those that something
// rests on, and those that are idle.
func (bs *blocks) cedable(name protocol.PoolName) (used []string, idle []protocol.Right) {
	err := bs.st.View(func(tx *store.Tx) error {
		used, idle = nil, nil
		info, err := assign.Blocks(tx)
		if err != nil {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			b := info[assign.BlockKey{Pool: r.Pool, Block: r.Block}]
			if r.Kind != protocol.RightLease || r.Pool != name || r.Phase != protocol.Held || b.Free == 0 {
				continue
			}
			switch rests, err := inUse(tx, r); {
			case err != nil:
				return err
			case rests:
				used = append(used, r.Name)
			default:
				idle = append(idle, r)
			}
		}
		return nil
	})
	if err != nil {
		bs.log.Error("store not read", "error", err)
		return nil, nil
	}
	return used, idle
}
