package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// requester is whom a request is for: an interface of a pod.
type requester struct {
	pod    protocol.UID
	ifName string
}

// A request is what memory has of a request of this node, while it may serve an
// ADD. The store's record is the truth.
type request struct {
	name string
	by   requester

	tried   protocol.Instant  // guarded by requests.mu; when an ADD last wanted it
	refused *protocol.Refusal // guarded by requests.mu; the controller's answer, if it was no
}

// requests finds requests by whom they are for. A kubelet that tries an ADD again
// must find the one that waits: another one would stand at the end of the line.
// The zero value is ready.
type requests struct {
	mu     sync.Mutex
	byName map[string]*request      // guarded by mu
	of     map[requester][]*request // guarded by mu; the same
}

// namesOf returns the names of the requests for by, the oldest first.
func (q *requests) namesOf(by requester) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var names []string
	for _, r := range q.of[by] {
		names = append(names, r.name)
	}
	return names
}

// try notes that an ADD wants the request of that name now.
func (q *requests) try(name string, by requester, now protocol.Instant) *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.entry(name, by, now)
	r.tried = now
	return r
}

// entry returns the entry of name, a new one if there is none. q.mu must be held.
func (q *requests) entry(name string, by requester, now protocol.Instant) *request {
	if r, ok := q.byName[name]; ok {
		return r
	}
	if q.byName == nil {
		q.byName, q.of = map[string]*request{}, map[requester][]*request{}
	}
	r := &request{name: name, by: by, tried: now}
	q.byName[name] = r
	q.of[by] = append(q.of[by], r)
	return r
}

// follow keeps the index with what a step has recorded of a request.
func (q *requests) follow(res protocol.Result, now protocol.Instant) {
	r := res.Next
	q.mu.Lock()
	defer q.mu.Unlock()
	if !res.Forget && r.Request != nil && (r.Phase == protocol.Noted || r.Phase == protocol.Held) {
		q.entry(r.Name, requester{r.Request.Pod.UID, r.Request.Interface}, now)
		return
	}
	q.drop(r.Name)
}

// drop forgets the entry of name. q.mu must be held.
func (q *requests) drop(name string) {
	r, ok := q.byName[name]
	if !ok {
		return
	}
	delete(q.byName, name)
	rest := slices.DeleteFunc(q.of[r.by], func(o *request) bool { return o == r })
	if len(rest) == 0 {
		delete(q.of, r.by)
		return
	}
	q.of[r.by] = rest
}

// refuse notes why the controller has refused a request.
func (q *requests) refuse(name string, why protocol.Refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r, ok := q.byName[name]; ok {
		r.refused = &why
	}
}

// refusal returns why the controller has refused r, nil if it has not.
func (q *requests) refusal(r *request) *protocol.Refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.refused
}

// untried returns the requests that no ADD has wanted since before.
func (q *requests) untried(before func(tried protocol.Instant) bool) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []*request
	for _, r := range q.byName {
		if before(r.tried) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *request) int { return strings.Compare(a.name, b.name) })
	return all
}

// unservingLeases are the leases whose block is open and that do not serve: lost ones
// that attachments rest on, frozen ones, and those that have not been confirmed in a new term.
// What is free of them is no address that this node can give. The zero value is
// ready.
type unservingLeases struct {
	mu sync.Mutex
	of map[protocol.PoolName]map[netip.Prefix]bool // guarded by mu
}

// follow keeps the set with what a step in term has recorded of a lease.
func (d *unservingLeases) follow(term int64, res protocol.Result) {
	r := res.Next
	open := !res.Forget && slices.Contains([]protocol.Phase{protocol.Held, protocol.Lost, protocol.Frozen}, r.Phase)
	d.set(r, open && !r.Usable(term))
}

// set notes whether r is open and does not serve.
func (d *unservingLeases) set(r protocol.Right, unserving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !unserving {
		delete(d.of[r.Pool], r.Block)
		return
	}
	if d.of == nil {
		d.of = map[protocol.PoolName]map[netip.Prefix]bool{}
	}
	if d.of[r.Pool] == nil {
		d.of[r.Pool] = map[netip.Prefix]bool{}
	}
	d.of[r.Pool][r.Block] = true
}

// blocks returns the unserving blocks of a pool.
func (d *unservingLeases) blocks(pool protocol.PoolName) map[netip.Prefix]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.of[pool]) == 0 {
		return nil
	}
	all := make(map[netip.Prefix]bool, len(d.of[pool]))
	for b := range d.of[pool] {
		all[b] = true
	}
	return all
}

// counts returns the sums of a pool's blocks of one family that serve.
func (rs *rights) counts(tx *store.Tx, name protocol.PoolName, f allocator.Family) (allocator.Counts, error) {
	space := allocator.NewSpace(tx.Table(name), nil)
	c, err := space.Counts(f)
	unserving := rs.unserving.blocks(name)
	if err != nil || len(unserving) == 0 {
		return c, err
	}
	for b, err := range space.Blocks(f) {
		if err != nil {
			return c, err
		}
		if unserving[b.Prefix] {
			c.Blocks--
			c.Taken -= b.Taken
			c.Free -= b.Free
		}
	}
	return c, nil
}

// full says in words that an ADD would find no address left for this node in a source's
// pool; it returns "" if it would. An interface gets an address of each family, so that
// one without is enough. The error says why that could not be found out until ctx ended.
func (rs *rights) full(ctx context.Context, src poolspec.Source) (why string, err error) {
	name := protocol.PoolName(src.Pool)
	known, _, _ := rs.pools.get(name).now()
	if known == nil || known.Exhausted == "" { // its pressure may be Exhausted for who asks for a part of it
		return "", nil
	}
	families := src.FamiliesOf(known.shape)
	err = rs.st.ViewContext(ctx, func(tx *store.Tx) error {
		for _, f := range families {
			c, err := rs.counts(tx, name, f)
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

// idleTimes has since when nothing has rested on a right. The zero value is ready.
type idleTimes struct {
	mu sync.Mutex
	of map[string]protocol.Instant // guarded by mu; by name
}

// since returns since when nothing has rested on a right: from now on, if it was not idle before.
func (i *idleTimes) since(name string, now protocol.Instant) protocol.Instant {
	i.mu.Lock()
	defer i.mu.Unlock()
	if since, ok := i.of[name]; ok {
		return since
	}
	if i.of == nil {
		i.of = map[string]protocol.Instant{}
	}
	i.of[name] = now
	return now
}

// end notes that a right is not idle, or not there any more.
func (i *idleTimes) end(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.of, name)
}
