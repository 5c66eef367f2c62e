package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// fullLeases has a lease of another's for every block, and none of this node's. It
// counts reads.
type fullLeases struct {
	Leases
	out   protocol.Outcome // of creates
	reads int
}

func (f *fullLeases) CreateLease(context.Context, protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	return protocol.Lease{}, f.out, errNothing
}

func (f *fullLeases) ReadLease(_ context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	f.reads++
	pool, block, err := protocol.ParseLeaseName(name)
	return protocol.Lease{Meta: protocol.Meta{Name: name, UID: "u", Revision: "1"}, Pool: pool, Block: block, Holder: protocol.Holder{Node: "n2"}}, protocol.Done, err
}

func (f *fullLeases) NodeLeases(context.Context, protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	return nil, "1", nil
}

// noSubLeases is an API server without sub-leases.
type noSubLeases struct{ SubLeases }

func (noSubLeases) NodeSubLeases(context.Context, protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error) {
	return nil, "1", nil
}

// TestMetLeaseIsNotRead: a lease that a first create has met is another's, and is not read.
// After a create without an answer it may be this node's own.
func TestMetLeaseIsNotRead(t *testing.T) {
	leases := &fullLeases{}
	a, p := newRegisteredAgent(t, leases, shutPools{})
	r := leaseRight(p.known.Pool, p.known.shape.Block(p.known.shape.Spread(allocator.IPv4, 0), 30))
	want := func(when string, out protocol.Outcome, verdict protocol.Verdict, reads int) {
		t.Helper()
		leases.out, leases.reads = out, 0
		_, res, err := a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventWant}))
		if res.Verdict != verdict || leases.reads != reads {
			t.Errorf("%s: %v, %v after %d reads; want %v after %d", when, res.Verdict, err, leases.reads, verdict, reads)
		}
	}
	want("at first", protocol.Exists, protocol.VerdictTaken, 0)
	want("without an answer", protocol.Unknown, protocol.VerdictLater, 0)
	want("after that", protocol.Exists, protocol.VerdictTaken, 1)
}

// countedLists is an API server on which this node has no lease. It notes when it is asked.
type countedLists struct {
	Leases
	began time.Time
	mu    sync.Mutex
	lists []time.Duration // guarded by mu
}

func (c *countedLists) NodeLeases(context.Context, protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists = append(c.lists, time.Since(c.began))
	return nil, "1", nil
}

// at returns when it was asked so far.
func (c *countedLists) at() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lists)
}

// TestListsSoonAfterLoss: a create that a lost store had under way, whose name no list but
// one of all finds, is looked for as any create in doubt is, and not after an hour alone.
func TestListsSoonAfterLoss(t *testing.T) {
	hours := func(n int) []time.Duration {
		last := time.Duration(n) * ownEvery
		return []time.Duration{last * 3 / 4, last}
	}
	within := func(d time.Duration) []time.Duration { return []time.Duration{d, d * 5 / 4} }
	start := []time.Duration{0, 0}
	for _, tt := range []struct {
		name   string
		former protocol.Former
		want   [][]time.Duration // from when to when the first lists are made
	}{
		{"nothing was lost", protocol.Former{}, [][]time.Duration{start, hours(1), hours(2)}},
		{"another machine's", protocol.Former{Store: "old", Machine: "m2"}, [][]time.Duration{start, hours(1), hours(2)}},
		{"this machine's", protocol.Former{Store: "old", Machine: "m1"}, [][]time.Duration{start, within(time.Minute), within(5 * time.Minute), within(30 * time.Minute), {75 * time.Minute, 98 * time.Minute}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases := &countedLists{began: time.Now()}
				a, _ := newRegisteredAgent(t, leases, shutPools{})
				a.cl.SubLeases, a.cfg.Machine = noSubLeases{}, "m1"
				a.reg.registrar.Seen.Former = []protocol.Former{tt.former}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); a.losses.keepListing(ctx) }()
				for i, want := range tt.want {
					time.Sleep(want[1] + time.Second - time.Since(leases.began))
					synctest.Wait()
					if at := leases.at(); len(at) != i+1 || at[i] < want[0] {
						t.Errorf("lists after %v; want the last one, the %dth, after %v to %v", at, i+1, want[0], want[1])
					}
				}
				cancel()
				<-done
			})
		})
	}
}

// TestListsAfterRestore: when the API server was seen to go back, what it has in the node's
// name is listed as soon as the agent is registered again: the restored data may have leases of it
// that its store does not know, which stand in others' way, and an agent that has not
// listed is not ready before a minute is over.
func TestListsAfterRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &countedLists{began: time.Now()}
		a, _ := newRegisteredAgent(t, leases, shutPools{})
		a.cl.SubLeases, a.reg.listNow = noSubLeases{}, make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.losses.keepListing(ctx) }()
		time.Sleep(time.Minute)
		if err := a.reg.read(t.Context(), a.reg.era(), true); !errors.Is(err, errRewound) {
			t.Fatalf("an answer of an earlier state: %v; want %v", err, errRewound)
		}
		time.Sleep(time.Minute)
		if at := leases.at(); len(at) != 1 {
			t.Errorf("lists after %v; want none before the agent is registered again", at)
		}
		a.reg.mu.Lock()
		a.reg.registrar.Term = 4
		a.reg.mu.Unlock()
		time.Sleep(dueEvery)
		synctest.Wait()
		if at := leases.at(); len(at) != 2 {
			t.Errorf("lists after %v; want a second one as soon as the agent is registered again", at)
		}
		cancel()
		<-done
	})
}
