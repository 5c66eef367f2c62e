package grants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// server is an API server in memory that keeps the promises which the protocol
// rests on, and no others: calls take time; some answers are lost, with the write
// made, not made, or made minutes later; watches lag; UID and revision of a
// write must match. It is meant for a synctest bubble.
type server struct {
	mu       sync.Mutex
	rng      *rand.Rand
	trouble  float64 // share of the calls whose answer is lost
	revision int
	leases   map[string]protocol.Lease
	pools    map[protocol.PoolName]protocol.Pool
	regs     map[protocol.NodeName]protocol.Registration
	nodes    []*node
	watchers []chan func(*Broker)
	refused  map[string]bool // names of leases that policy does not let anybody create
	check    func()          // runs after every write, with mu held
	read     func(string)    // runs before every read of a lease, by name, with mu held
	slow     time.Duration   // how long the answer to a read of a lease is under way
}

var (
	errLost    = errors.New("no answer")
	errRefused = errors.New("policy says no")
)

func newServer(rng *rand.Rand) *server {
	return &server{
		rng: rng, leases: map[string]protocol.Lease{}, pools: map[protocol.PoolName]protocol.Pool{},
		regs: map[protocol.NodeName]protocol.Registration{}, refused: map[string]bool{}, check: func() {}, read: func(string) {},
	}
}

// watch delivers every change to b, in order and late, until ctx ends.
func (s *server) watch(ctx context.Context, b *Broker) {
	ch := make(chan func(*Broker), 1<<16)
	s.mu.Lock()
	s.watchers = append(s.watchers, ch)
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-ch:
			s.mu.Lock()
			calm := s.trouble == 0
			s.mu.Unlock()
			lag := 50 * time.Millisecond
			if !calm && s.some(30) == 0 {
				lag = 3 * time.Second // this watch is behind
			}
			time.Sleep(s.some(lag))
			event(b)
		}
	}
}

func (s *server) announce(event func(*Broker)) {
	for _, w := range s.watchers {
		w <- event
	}
	s.check()
}

func (s *server) some(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(most)))
}

func (s *server) next() protocol.Revision {
	s.revision++
	return protocol.Revision(strconv.Itoa(s.revision))
}

// call makes a call take its time, and perhaps loses its answer.
func call[T any](s *server, apply func() (T, protocol.Outcome, error)) (T, protocol.Outcome, error) {
	time.Sleep(s.some(10 * time.Millisecond))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rng.Float64() >= s.trouble {
		return apply()
	}
	var zero T
	switch s.rng.IntN(3) {
	case 0: // the request is lost
	case 1: // the answer is lost
		_, _, _ = apply()
	default: // the request is late
		late := time.Duration(s.rng.Int64N(int64(3 * time.Minute)))
		time.AfterFunc(late, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			_, _, _ = apply()
		})
	}
	return zero, protocol.Unknown, errLost
}

func (s *server) CreateLease(_ context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	return call(s, func() (protocol.Lease, protocol.Outcome, error) {
		if s.refused[l.Name] {
			return protocol.Lease{}, protocol.Refused, errRefused
		}
		if _, ok := s.leases[l.Name]; ok {
			return protocol.Lease{}, protocol.Exists, fmt.Errorf("%s exists", l.Name)
		}
		rev := s.next()
		l.UID, l.Revision = protocol.UID("l"+rev), rev
		return s.put(l), protocol.Done, nil
	})
}

// put stores l and tells the watchers. s.mu must be held.
func (s *server) put(l protocol.Lease) protocol.Lease {
	l = l.Clone()
	s.leases[l.Name] = l
	s.announce(func(b *Broker) { b.Observe(l.Clone()) })
	return l.Clone()
}

func (s *server) ReadLease(_ context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	defer func() {
		s.mu.Lock()
		slow := s.slow
		s.mu.Unlock()
		time.Sleep(slow)
	}()
	return call(s, func() (protocol.Lease, protocol.Outcome, error) {
		s.read(name)
		l, ok := s.leases[name]
		if !ok {
			return protocol.Lease{}, protocol.NotFound, fmt.Errorf("%s is not there", name)
		}
		return l.Clone(), protocol.Done, nil
	})
}

func (s *server) UpdateLease(_ context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	next = next.Clone()
	return call(s, func() (protocol.Lease, protocol.Outcome, error) {
		l, ok := s.leases[old.Name]
		switch {
		case !ok:
			return protocol.Lease{}, protocol.NotFound, fmt.Errorf("%s is not there", old.Name)
		case l.UID != old.UID || l.Revision != old.Revision:
			return protocol.Lease{}, protocol.Conflict, fmt.Errorf("%s has changed", old.Name)
		}
		next.Meta = l.Meta
		next.Revision = s.next()
		return s.put(next), protocol.Done, nil
	})
}

func (s *server) DeleteLease(_ context.Context, m protocol.Meta) (protocol.Outcome, error) {
	_, out, err := call(s, func() (struct{}, protocol.Outcome, error) {
		l, ok := s.leases[m.Name]
		switch {
		case !ok:
			return struct{}{}, protocol.NotFound, fmt.Errorf("%s is not there", m.Name)
		case l.UID != m.UID || l.Revision != m.Revision:
			return struct{}{}, protocol.Conflict, fmt.Errorf("%s has changed", m.Name)
		}
		s.drop(m.Name)
		return struct{}{}, protocol.Done, nil
	})
	return out, err
}

// drop deletes a lease and tells the watchers. s.mu must be held.
func (s *server) drop(name string) {
	uid := s.leases[name].UID
	delete(s.leases, name)
	s.next()
	s.announce(func(b *Broker) { b.Forget(name, uid) })
}

func (s *server) Leases(context.Context) ([]protocol.Lease, error) {
	all, _, err := call(s, func() ([]protocol.Lease, protocol.Outcome, error) {
		var out []protocol.Lease
		for _, name := range slices.Sorted(maps.Keys(s.leases)) {
			out = append(out, s.leases[name].Clone())
		}
		return out, protocol.Done, nil
	})
	return all, err
}

func (s *server) ReadPool(_ context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return call(s, func() (protocol.Pool, protocol.Outcome, error) {
		p, ok := s.pools[name]
		if !ok {
			return protocol.Pool{}, protocol.NotFound, fmt.Errorf("pool %s is not there", name)
		}
		return p, protocol.Done, nil
	})
}

func (s *server) ReadRegistration(_ context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error) {
	return call(s, func() (protocol.Registration, protocol.Outcome, error) {
		reg, ok := s.regs[node]
		if !ok {
			return protocol.Registration{}, protocol.NotFound, fmt.Errorf("no agent is registered for %s", node)
		}
		reg.Recalls = slices.Clone(reg.Recalls)
		return reg, protocol.Done, nil
	})
}

func (s *server) UpdateRegistration(_ context.Context, next protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	next.Recalls = slices.Clone(next.Recalls)
	return call(s, func() (protocol.Registration, protocol.Outcome, error) {
		if s.regs[next.Node].Revision != next.Revision {
			return protocol.Registration{}, protocol.Conflict, fmt.Errorf("the registration of %s has changed", next.Node)
		}
		next.Revision = s.next()
		s.regs[next.Node] = next
		return next, protocol.Done, nil
	})
}

// setPool changes a pool and tells the watchers.
func (s *server) setPool(st PoolState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Revision = s.next()
	s.pools[protocol.PoolName(st.Name)] = st.Pool
	s.announce(func(b *Broker) { b.SetPool(st) })
}

// hold has a node lease a block, unless it is leased.
func (s *server) hold(pool PoolState, block netip.Prefix, node protocol.NodeName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := protocol.LeaseName(protocol.PoolName(pool.Name), block)
	if _, ok := s.leases[name]; ok {
		return false
	}
	rev := s.next()
	s.put(protocol.Lease{
		Meta: protocol.Meta{Name: name, UID: protocol.UID("l" + rev), Revision: rev}, Protocol: protocol.Version,
		Pool: protocol.PoolName(pool.Name), PoolUID: pool.UID, Block: block,
		Holder: protocol.Holder{Node: node}, Store: storeOf(node), Term: 1,
	})
	return true
}

// publish writes a lease's status. It reports whether that worked.
func (s *server) publish(l protocol.Lease, answered string, allocations []string) bool {
	_, out, _ := call(s, func() (struct{}, protocol.Outcome, error) {
		now, ok := s.leases[l.Name]
		if !ok || now.UID != l.UID {
			return struct{}{}, protocol.NotFound, fmt.Errorf("%s is not there", l.Name)
		}
		now.Revision = s.next()
		now.Published = protocol.Publication{Used: len(allocations), Allocations: allocations, At: time.Now(), Answered: answered}
		s.put(now)
		return struct{}{}, protocol.Done, nil
	})
	return out == protocol.Done
}

// unhold has a node give a block back, unless something of it is granted.
func (s *server) unhold(pool PoolState, block netip.Prefix, node protocol.NodeName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := protocol.LeaseName(protocol.PoolName(pool.Name), block)
	if l, ok := s.leases[name]; ok && l.Holder.Node == node && len(l.Grants) == 0 {
		s.drop(name)
	}
}

// unseen changes a lease, or deletes it if change returns false, and no watch shows
// it.
func (s *server) unseen(name string, change func(*protocol.Lease) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[name].Clone()
	l.Revision = s.next()
	if !change(&l) {
		delete(s.leases, name)
		return
	}
	s.leases[name] = l
}

// count returns how many leases there are.
func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leases)
}
