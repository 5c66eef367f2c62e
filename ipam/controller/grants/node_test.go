package grants

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// node is an agent in memory, as far as the broker meets it: it holds blocks, uses
// addresses of them, cedes what it is asked for, and takes back what it needs. What
// it may use stands in its own record: that says less than the lease before a
// write that gives away, and more only after an answer.
type node struct {
	name   protocol.NodeName
	server *server

	mu          sync.Mutex
	used        map[netip.Addr]string // guarded by mu; by whom
	barred      map[netip.Addr]bool   // guarded by mu; ceded, or about to be
	unanswering bool                  // guarded by mu: it answers no recall
}

// newNode returns a node with a registration.
func newNode(s *server, name protocol.NodeName) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regs[name] = protocol.Registration{Meta: protocol.Meta{Name: string(name), UID: protocol.UID("s-" + name), Revision: s.next()}, Node: name, Store: storeOf(name), Term: 1}
	n := &node{name: name, server: s, used: map[netip.Addr]string{}, barred: map[netip.Addr]bool{}}
	s.nodes = append(s.nodes, n)
	return n
}

func storeOf(name protocol.NodeName) protocol.StoreID { return "store-" + protocol.StoreID(name) }

// use has a pod use addresses.
func (n *node) use(pod string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		n.used[netip.MustParseAddr(a)] = pod
	}
}

func (n *node) setUnanswering(unanswering bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unanswering = unanswering
}

// start has n answer recalls until the test ends.
func (n *node) start(t *testing.T) *node {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return n
}

// run answers recalls until ctx ends.
func (n *node) run(ctx context.Context) {
	answered := map[string]bool{}
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		n.server.mu.Lock()
		recalls := slices.Clone(n.server.regs[n.name].Recalls)
		n.server.mu.Unlock()
		n.mu.Lock()
		unanswering := n.unanswering
		n.mu.Unlock()
		for _, rec := range recalls {
			if !unanswering && !answered[rec.ID] {
				answered[rec.ID] = n.answer(ctx, rec)
			}
		}
	}
}

// answer cedes what is free of a recalled lease: first its own record, then the
// lease, then the status that says so.
func (n *node) answer(ctx context.Context, rec protocol.Recall) bool {
	l, out, _ := n.server.ReadLease(ctx, rec.Lease)
	if out != protocol.Done || l.Holder.Node != n.name {
		return out == protocol.NotFound || out == protocol.Done
	}
	n.mu.Lock()
	next := l.Clone()
	for a := range each256(l.Block) {
		if n.used[a] == "" && inRanges(rec.Ranges, a) {
			n.barred[a] = true
			if !slices.Contains(next.Ceded, a) {
				next.Ceded = append(next.Ceded, a)
			}
		}
	}
	n.mu.Unlock()
	if len(next.Ceded) > len(l.Ceded) {
		next.Writes++
		if l, out, _ = n.server.UpdateLease(ctx, l, next); out != protocol.Done {
			return false
		}
	}
	return n.server.publish(l, rec.ID, n.allocations(l.Block))
}

// takeBack takes back what is ceded of a lease and not granted. It may be used once
// an answer says so.
func (n *node) takeBack(ctx context.Context, name string) {
	l, out, _ := n.server.ReadLease(ctx, name)
	if out != protocol.Done || l.Holder.Node != n.name {
		return
	}
	next := l.Clone()
	next.Ceded = slices.DeleteFunc(next.Ceded, func(a netip.Addr) bool {
		_, granted := l.GrantOf(a)
		return !granted
	})
	next.Writes++
	if l, out, _ = n.server.UpdateLease(ctx, l, next); out != protocol.Done {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for a := range each256(l.Block) {
		if !slices.Contains(l.Ceded, a) {
			delete(n.barred, a)
		}
	}
}

// act does something with a block of a pool.
func (n *node) act(ctx context.Context, rng *rand.Rand, p PoolState, block netip.Prefix) {
	name := protocol.LeaseName(protocol.PoolName(p.Name), block)
	switch op := rng.IntN(6); {
	case n.lease(p, block):
	case op < 2:
		n.take(p, block)
	case op == 2:
		n.drop(block)
	case op == 3:
		go n.takeBack(ctx, name)
	case op == 4:
		n.release(p, block)
	default:
		n.mu.Lock()
		n.unanswering = !n.unanswering
		n.mu.Unlock()
	}
}

// lease has n hold a block that nobody holds. Its addresses are n's from then on.
func (n *node) lease(p PoolState, block netip.Prefix) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.server.hold(p, block, n.name) {
		return false
	}
	for a := range each256(block) {
		delete(n.barred, a)
	}
	return true
}

// release gives a block back of which n uses nothing, unless something is granted.
func (n *node) release(p PoolState, block netip.Prefix) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a := range each256(block) {
		if n.used[a] != "" {
			return
		}
	}
	n.server.unhold(p, block, n.name)
	for a := range each256(block) { // gone or not, it serves nothing any more
		n.barred[a] = true
	}
}

// take uses the first free address of a block that n holds, as far as n knows.
func (n *node) take(p PoolState, block netip.Prefix) {
	n.server.mu.Lock()
	l, ok := n.server.leases[protocol.LeaseName(protocol.PoolName(p.Name), block)]
	n.server.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !ok || l.Holder.Node != n.name {
		return
	}
	for a := range each256(block) {
		if n.used[a] == "" && !n.barred[a] && p.Shape.Assignable(a) == nil {
			n.used[a] = "ns/pod"
			return
		}
	}
}

// drop ends the use of a block's addresses.
func (n *node) drop(block netip.Prefix) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a := range each256(block) {
		delete(n.used, a)
	}
}

// held returns the addresses that n uses.
func (n *node) held() map[netip.Addr]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.used)
}

// verify returns an error if n uses an address that is granted, or of a block that
// it does not hold. n.server.mu must be held.
func (n *node) verify() error {
	mine := map[netip.Addr]bool{}
	for _, l := range n.server.leases {
		if l.Holder.Node != n.name {
			continue
		}
		for a := range each256(l.Block) {
			_, granted := l.GrantOf(a)
			mine[a] = !granted && !slices.Contains(l.Ceded, a)
		}
	}
	for a, pod := range n.usedNow() {
		if !mine[a] {
			return fmt.Errorf("I1: pod %s of %s uses %v, which is not the node's to give", pod, n.name, a)
		}
	}
	return nil
}

// usedNow is held for who may run while n holds its lock: the model's checks see a
// write that n itself has made.
func (n *node) usedNow() map[netip.Addr]string {
	if n.mu.TryLock() {
		defer n.mu.Unlock()
		return maps.Clone(n.used)
	}
	return nil
}

func (n *node) allocations(block netip.Prefix) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for a := range each256(block) {
		if pod := n.used[a]; pod != "" {
			out = append(out, fmt.Sprintf("%v %s net1", a, pod))
		}
	}
	return out
}

// each256 returns the addresses of a block.
func each256(block netip.Prefix) func(func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		for a, last := block.Addr(), netipx.PrefixLastIP(block); yield(a) && a != last; a = a.Next() {
		}
	}
}

func inRanges(ranges []string, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		from, to, _ := strings.Cut(text, "-")
		return netipx.IPRangeFrom(netip.MustParseAddr(from), netip.MustParseAddr(to)).Contains(a)
	})
}
