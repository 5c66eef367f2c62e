package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
)

// publication is what the status of a lease was last told, and when. Of one that has
// not been told anything yet, uid is empty and at when the lease was first seen.
type publication struct {
	uid  protocol.UID
	pool protocol.PoolName
	used int
	free int
	who  []string
	at   protocol.Instant
}

func (p publication) same(o publication) bool {
	return p.uid == o.uid && p.used == o.used && p.free == o.free && slices.Equal(p.who, o.who)
}

// touch notes that the pools of an attachment have changed: their reserve is
// looked after, or under pressure what has become idle given back, once for all
// that touch them meanwhile.
func (a *Agent) touch(att store.Attachment) {
	var last protocol.PoolName
	for _, addr := range att.Addresses {
		if addr.Pool == last || addr.Lease == "" {
			continue
		}
		last = addr.Pool
		if p, err := a.pool(addr.Pool); err == nil && p.touched.CompareAndSwap(false, true) {
			a.background(func(ctx context.Context) {
				p.touched.Store(false)
				a.reserve(p)
				a.mu.Lock()
				pressed := a.pressed(p.name)
				a.mu.Unlock()
				if pressed {
					a.giveBack(ctx)
				}
			})
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, addr := range att.Addresses {
		delete(a.idle, addr.Lease)
	}
}

// publishBatch is how many leases publish tells of at most at a time.
const publishBatch = 16

// hurried returns the pools in which there is a burst.
func (a *Agent) hurried(now protocol.Instant) map[protocol.PoolName]bool {
	a.mu.Lock()
	pools := slices.Collect(maps.Values(a.pools))
	a.mu.Unlock()
	hurried := map[protocol.PoolName]bool{}
	for _, p := range pools {
		hurried[p.name] = p.demand.calm(now) < burstOver
	}
	return hurried
}

// publish writes the status of leases whose content has changed, each at most
// every PublishEvery, and of new ones at once if there is no hurry. It is for people;
// what fails is tried again next time.
func (a *Agent) publish(ctx context.Context) {
	now := a.clock.Now()
	current, err := a.publications()
	if err != nil {
		a.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	var due []string
	hurried := a.hurried(now)
	a.mu.Lock()
	for name := range a.public {
		if _, ok := current[name]; !ok {
			delete(a.public, name)
		}
	}
	for name, p := range current {
		last, seen := a.public[name]
		if !seen {
			last = publication{at: now}
			a.public[name] = last
		}
		first := last.uid == "" && !hurried[p.pool]
		if first || !p.same(last) && now.Since(last.at) >= a.cfg.PublishEvery {
			due = append(due, name)
		}
	}
	// The longest untold first, a few at a time: a node that starts has all its leases
	// to tell of.
	slices.SortFunc(due, func(x, y string) int {
		return cmp.Or(a.public[x].at.Wall.Compare(a.public[y].at.Wall), strings.Compare(x, y))
	})
	a.mu.Unlock()
	due = due[:min(len(due), publishBatch)]
	inParallel(2, due, func(name string) {
		a.tell(ctx, name, current[name], now, "")
	})
}

// tell writes the status of a lease, with the ID of the recall that it answers, if it
// answers one, and reports whether it was written.
func (a *Agent) tell(ctx context.Context, name string, p publication, now protocol.Instant, answered string) bool {
	out, err := a.cl.Leases.PublishLease(ctx, name, p.uid, protocol.Publication{
		Used: p.used, Free: p.free, Allocations: p.who, At: now.Wall, Answered: answered,
	})
	if out == protocol.NotFound || out == protocol.Conflict { // it is gone, or another's
		a.lookIn(name, 0)
	}
	if out != protocol.Done {
		a.log.DebugContext(ctx, "lease status not written", "lease", name, "error", err)
		return false
	}
	p.at = now
	a.mu.Lock()
	a.public[name] = p
	a.mu.Unlock()
	return true
}

// publications returns what there is to say about each Held lease.
func (a *Agent) publications() (map[string]publication, error) {
	all, term := map[string]publication{}, a.term()
	err := a.st.View(func(tx *store.Tx) error {
		clear(all)
		info, err := blocks(tx)
		if err != nil {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Kind == protocol.RightLease && r.Serves(term) {
				b := info[blockKey{r.Pool, r.Block}]
				all[r.Name] = publication{uid: r.UID, pool: r.Pool, used: b.Taken, free: b.Free}
			}
		}
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			for _, addr := range att.Addresses {
				if p, ok := all[addr.Lease]; ok {
					p.who = append(p.who, whoHas(addr.Addr, att))
					all[addr.Lease] = p
				}
			}
		}
		return nil
	})
	for name, p := range all {
		slices.Sort(p.who)
		all[name] = p
	}
	return all, err
}

// whoHas says who has an address, as "address namespace/pod interface".
func whoHas(a netip.Addr, att store.Attachment) string {
	who := att.Pod.String()
	if att.Pod.Name == "" {
		who = att.ContainerID
	}
	return fmt.Sprintf("%v %s %s", a, who, att.IfName)
}

type blockKey struct {
	pool  protocol.PoolName
	block netip.Prefix
}

// blocks returns the state of every block that is open on this node.
func blocks(tx *store.Tx) (map[blockKey]allocator.BlockInfo, error) {
	info := map[blockKey]allocator.BlockInfo{}
	for _, name := range tx.Pools() {
		space := allocator.NewSpace(tx.Table(name), nil)
		for _, f := range allocator.Families() {
			for b, err := range space.Blocks(f) {
				if err != nil {
					return nil, err
				}
				info[blockKey{name, b.Prefix}] = b
			}
		}
	}
	return info, nil
}

// full reports whether a pool has no address left for this node; if so, in which
// words.
func (a *Agent) full(name protocol.PoolName) (bool, string) {
	p, err := a.pool(name)
	if err != nil {
		return false, ""
	}
	known, _, _ := p.now()
	if known == nil || known.Pressure != allocator.PressureExhausted {
		return false, ""
	}
	free := 0
	err = a.st.View(func(tx *store.Tx) error {
		for _, f := range known.shape.Families() {
			c, err := a.counts(tx, name, f)
			if err != nil {
				return err
			}
			free += c.Free
		}
		return nil
	})
	return err == nil && free == 0, cmp.Or(known.Exhausted, fmt.Sprintf("pool %s is exhausted", name))
}
