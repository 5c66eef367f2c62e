package deadnodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// tries is how often one write is made again after a conflict in one go.
const tries = 5

// taking is one go at what a node's dead have left.
type taking struct {
	live  Live
	calls int
	node  protocol.NodeName
	dead  []protocol.Dead

	// What the pools that take no other word than the taint keep from those of
	// whom nobody has vouched that they are off: by name, and the UIDs that have
	// grants in them.
	confirmed map[protocol.PoolName]bool
	held      map[protocol.UID]bool

	leases, subs atomic.Int64 // taken, deleted
	waiting      int          // kept by such pools

	mu     sync.Mutex
	stores map[protocol.StoreID]bool // guarded by mu; of which something is left
}

// run takes the leases of the dead, and then their sub-leases. Whatever cannot be
// taken now stays for the next go.
func (t *taking) run(ctx context.Context) error {
	leases, err := t.live.LeasesOfNode(ctx, t.node)
	if err != nil {
		return err
	}
	subs, err := t.live.SubLeasesOfNode(ctx, t.node)
	if err != nil {
		return err
	}
	if len(t.dead) > 0 && len(leases)+len(subs) > 0 {
		if err := t.readPolicy(ctx); err != nil {
			return err
		}
	}
	if err := each(t.calls, leases, func(l protocol.Lease) error { return t.takeLease(ctx, l) }); err != nil {
		return err
	}
	return each(t.calls, subs, func(s protocol.SubLease) error { return t.deleteSubLease(ctx, s) })
}

// each calls do for every element, at most n at once, and returns an error of theirs.
// With n of one they run in order, and on the caller's goroutine.
func each[T any](n int, all []T, do func(T) error) error {
	if n == 1 {
		var errs []error
		for _, one := range all {
			errs = append(errs, do(one))
		}
		return errors.Join(errs...)
	}
	var g errgroup.Group
	g.SetLimit(n)
	for _, one := range all {
		g.Go(func() error { return do(one) })
	}
	return g.Wait()
}

// readPolicy reads live which pools keep what from the dead.
func (t *taking) readPolicy(ctx context.Context) error {
	t.confirmed, t.held = map[protocol.PoolName]bool{}, map[protocol.UID]bool{}
	vouched := true
	for _, d := range t.dead {
		vouched = vouched && d.Vouched
	}
	if vouched {
		return nil
	}
	pools, err := t.live.Pools(ctx)
	if err != nil {
		return err
	}
	for _, p := range pools {
		if !p.Confirmed {
			continue
		}
		name := protocol.PoolName(p.Name)
		t.confirmed[name] = true
		leases, err := t.live.LeasesOfPool(ctx, name)
		if err != nil {
			return err
		}
		for _, l := range leases {
			for _, g := range l.Grants {
				t.held[g.To.UID] = t.held[g.To.UID] || g.To.Kind != protocol.GranteePod
			}
		}
	}
	return nil
}

// takeLease takes l for the cluster if it is one of a dead store. Else it counts it as left.
func (t *taking) takeLease(ctx context.Context, l protocol.Lease) error {
	for range tries {
		next, ok := t.takenOver(l)
		if !ok {
			t.countWaiting(l.Holder.Node, l.Store, t.confirmed[l.Pool])
			return nil
		}
		_, out, err := t.live.UpdateLease(ctx, l, next)
		switch out {
		case protocol.Done:
			t.leases.Add(1)
			return nil
		case protocol.Refused:
			return fmt.Errorf("take lease %s: %w", l.Name, err)
		case protocol.Conflict, protocol.NotFound, protocol.Unknown, protocol.Exists:
		}
		// Its agent may have come back, or given it back; or the write had taken
		// effect. What it is now decides.
		seen, out, err := t.live.ReadLease(ctx, l.Name)
		switch out {
		case protocol.Done:
			l = seen
		case protocol.NotFound:
			return nil
		default:
			return fmt.Errorf("read lease %s: %w", l.Name, err)
		}
	}
	return fmt.Errorf("take lease %s: it changes too often", l.Name)
}

// takenOver returns l with the cluster as its holder. ok is false if l is of no dead store, or
// its pool keeps it.
func (t *taking) takenOver(l protocol.Lease) (protocol.Lease, bool) {
	for _, d := range t.dead {
		if next, ok := d.TakeLease(l, t.node, t.confirmed[l.Pool]); ok {
			return next, true
		}
	}
	return l, false
}

// deleteSubLease deletes s if it is one of a dead store. Else it counts it as left.
func (t *taking) deleteSubLease(ctx context.Context, s protocol.SubLease) error {
	for range tries {
		if !t.ends(s) {
			t.countWaiting(s.Node, s.Store, t.held[s.UID] || s.Use != nil && t.held[s.Use.Claim.UID])
			return nil
		}
		out, err := t.live.DeleteSubLease(ctx, s.Meta)
		switch out {
		case protocol.Done:
			t.subs.Add(1)
			return nil
		case protocol.NotFound:
			return nil
		case protocol.Refused:
			return fmt.Errorf("delete sub-lease %s: %w", s.Name, err)
		case protocol.Conflict, protocol.Unknown, protocol.Exists:
		}
		seen, out, err := t.live.ReadSubLease(ctx, s.Name)
		switch out {
		case protocol.Done:
			s = seen
		case protocol.NotFound:
			return nil
		default:
			return fmt.Errorf("read sub-lease %s: %w", s.Name, err)
		}
	}
	return fmt.Errorf("delete sub-lease %s: it changes too often", s.Name)
}

// ends reports whether s is of one of the dead.
func (t *taking) ends(s protocol.SubLease) bool {
	for _, d := range t.dead {
		if d.TakesSubLease(s, t.node, t.held) {
			return true
		}
	}
	return false
}

// countWaiting notes that something of a store is left, if it is this node's still. kept says
// that its pool keeps it until somebody vouches.
func (t *taking) countWaiting(node protocol.NodeName, store protocol.StoreID, kept bool) {
	if node != t.node {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stores[store] = true
	if kept {
		for _, d := range t.dead {
			if d.Store == store {
				t.waiting++
				return
			}
		}
	}
}
