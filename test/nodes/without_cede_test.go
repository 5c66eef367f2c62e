package nodes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// sendRecall puts a recall on a node's registration, as the controller does, and returns its
// ID.
func sendRecall(t *testing.T, node, lease string, ranges ...string) string {
	t.Helper()
	return sendRecallOf(t, time.Now(), node, lease, ranges...)
}

// sendRecallOf is sendRecall for a recall that was made earlier.
func sendRecallOf(t *testing.T, made time.Time, node, lease string, ranges ...string) string {
	t.Helper()
	id := protocol.RecallID(made, "test", uint64(time.Now().UnixNano()))
	fleet.Amend(t, api, node, func(reg *protocol.Registration) {
		reg.Recalls = append(reg.Recalls, protocol.Recall{ID: id, Lease: lease, Ranges: ranges})
		reg.Writes++
	})
	return id
}

// cedeByRecall recalls ranges of a lease, waits for the answer, and returns the lease
// as it is then.
func cedeByRecall(t *testing.T, node, lease string, ranges ...string) protocol.Lease {
	t.Helper()
	return answeredRecall(t, lease, sendRecall(t, node, lease, ranges...))
}

// answeredRecall waits until the recall of that ID is answered, and returns its lease as it is
// then.
func answeredRecall(t *testing.T, lease, id string) protocol.Lease {
	t.Helper()
	var l protocol.Lease
	eventually(t, 20*time.Second, func() error {
		var out protocol.Outcome
		var err error
		if l, out, err = api.ReadLease(t.Context(), lease); out != protocol.Done || l.Published.Answered != id {
			return fmt.Errorf("the lease is %v with answer %q, %w; want %q", out, l.Published.Answered, err, id)
		}
		return nil
	})
	return l
}

// ceded waits until the lease of a's block has ceded exactly want.
func ceded(t *testing.T, pool string, a netip.Addr, want func(netip.Addr) bool) protocol.Lease {
	t.Helper()
	var l protocol.Lease
	eventually(t, 20*time.Second, func() error {
		l = protocol.Lease{}
		for _, x := range leasesOf(t, pool) {
			if x.Block.Contains(a) {
				l = x
			}
		}
		for x := l.Block.Addr(); l.Block.Contains(x); x = x.Next() {
			if slices.Contains(l.Ceded, x) != want(x) {
				return fmt.Errorf("of %v %v is ceded; want that %v is %v", l.Block, l.Ceded, x, want(x))
			}
		}
		return nil
	})
	return l
}

// TestExhaustedPoolIsCeded: what is free goes to the cluster when the pool is
// exhausted, what comes free at once; what is in use never; a block that nothing rests
// on goes back, or whole if something of it is granted.
func TestExhaustedPoolIsCeded(t *testing.T) {
	const pool, node = "cedes", "cedes"
	openPool(t, pool, cidr("10.50.0.0/20")) // blocks of 16
	n := newFleet(t, shortWait).Start(node)
	var pods []fleet.Interface
	var used []netip.Addr
	for i := range 3 {
		pods = append(pods, asking(t, node, pool, fmt.Sprintf("cedes-%d", i)))
		used = append(used, mustAdd(t, n, pods[i])[0].Addr())
	}
	press(t, pool, v1alpha1.PressureExhausted, "")
	reserved := netip.MustParseAddr("10.50.0.0")
	ceded(t, pool, used[0], func(x netip.Addr) bool { return !slices.Contains(used, x) && x != reserved })

	began := time.Now()
	mustDel(t, n, pods[2])
	used = used[:2]
	l := ceded(t, pool, used[0], func(x netip.Addr) bool { return !slices.Contains(used, x) && x != reserved })
	t.Logf("a freed address took %v to be ceded", time.Since(began))

	// What was freed is the cluster's: the node's own next ADD asks for it like any.
	next := asking(t, node, pool, "cedes-next")
	n.Refused(t, next, "the controller has not answered")
	s := onlyRequest(t, node)
	free := l.Ceded[0]
	grant(t, pool, s, free.String())
	if got := mustAdd(t, n, next)[0].Addr(); got != free {
		t.Errorf("got %v; want %v, which was granted out of the node's own block", got, free)
	}
	// With a grant on it the block cannot go back: all of it is ceded.
	mustDel(t, n, pods[0])
	mustDel(t, n, pods[1])
	ceded(t, pool, free, func(netip.Addr) bool { return true })
	mustDel(t, n, next)
	eventually(t, 10*time.Second, noRequests(t, node))
	changeLease(t, pool, free, func(l *protocol.Lease) { l.Grants = nil })
	eventually(t, 20*time.Second, noLeases(t, pool))
}

// TestTakeBack: when the pool is not exhausted any more, a node that needs addresses
// takes back what it had ceded and nobody was granted, and not more.
func TestTakeBack(t *testing.T) {
	const pool, node = "takes-back", "takes-back"
	openBlocks(t, pool, 16, v1alpha1.Range{CIDR: "10.51.0.0/20", End: "10.51.0.15"}) // one block
	n := newFleet(t).Start(node)
	first := mustAdd(t, n, asking(t, node, pool, "takes-back-0"))[0].Addr()
	press(t, pool, v1alpha1.PressureExhausted, "")
	l := ceded(t, pool, first, func(x netip.Addr) bool { return x != first && x != netip.MustParseAddr("10.51.0.0") })

	other := asking(t, node, pool, "takes-back-other")
	got := begin(n, other)
	s := onlyRequest(t, node)
	granted := l.Ceded[0]
	grant(t, pool, s, granted.String())
	finish(t, n, other, got)

	press(t, pool, v1alpha1.PressureHigh, "")
	i := asking(t, node, pool, "takes-back-1")
	addr := retried(t, 40*time.Second, n, i)[0].Addr() // not at once: a pool at the edge would go back and forth
	if addr == granted || addr == first {
		t.Errorf("got %v, which is another's", addr)
	}
	l = leaseOf(t, pool, first)
	if slices.Contains(l.Ceded, addr) || !slices.Contains(l.Ceded, granted) || len(l.Ceded) != 13 {
		t.Errorf("%v is ceded; want all that was but %v", l.Ceded, addr)
	}
	eventually(t, 10*time.Second, func() error {
		if all := requestsOf(t, node); len(all) != 1 {
			return fmt.Errorf("%d requests; want the one that was granted", len(all))
		}
		return nil
	})
}

// TestRecall: a holder cedes what is free in the ranges, never an address in use, and
// says who has the rest.
func TestRecall(t *testing.T) {
	const pool, node = "recalled", "recalled"
	openPool(t, pool, cidr("10.52.0.0/20"))
	f := newFleet(t)
	f.Change = func(c *daemon.Config) { c.Agent.PublishEvery = time.Hour } // what is read was written for the recall
	n := f.Start(node)
	used := mustAdd(t, n, asking(t, node, pool, "recalled-1"))[0].Addr()
	lease := leaseOf(t, pool, used)
	from, to := used.Prev(), used.Next().Next()
	began := time.Now()
	l := cedeByRecall(t, node, lease.Name, fmt.Sprintf("%v-%v", from, to), "10.99.0.0-10.99.0.255")
	t.Logf("the recall took %v to be answered", time.Since(began))
	var want []netip.Addr
	for x := from; x.Compare(to) <= 0; x = x.Next() {
		if x != used && x != lease.Block.Addr() && lease.Block.Contains(x) {
			want = append(want, x)
		}
	}
	if lease.Block.Addr() != netip.MustParseAddr("10.52.0.0") && !slices.Contains(want, lease.Block.Addr()) && from == lease.Block.Addr() {
		want = slices.Insert(want, 0, from)
	}
	if !slices.Equal(l.Ceded, want) {
		t.Errorf("%v is ceded; want %v", l.Ceded, want)
	}
	if who := strings.Join(l.Published.Allocations, "\n"); !strings.Contains(who, used.String()+" default/recalled-1 net1") {
		t.Errorf("the answer says %q; want who has %v", who, used)
	}
	// What nothing is free of is answered all the same.
	cedeByRecall(t, node, lease.Name, fmt.Sprintf("%v-%v", used, used))
	// What this node does not hold is answered by nothing, and does no harm.
	sendRecall(t, node, protocol.LeaseName(pool, netip.MustParsePrefix("10.52.15.240/28")), "10.52.15.240-10.52.15.255")
	sendRecall(t, node, lease.Name, "nonsense")
	mustAdd(t, n, asking(t, node, pool, "recalled-2"))
}

// TestStaleRecall: an agent that starts finds what a leader has left on its registration that is
// long gone. It cedes nothing for that, as it may find no API server to take it back from; and says
// so, since who counts what is out of reach waits for an answer.
func TestStaleRecall(t *testing.T) {
	const pool, node = "stale", "stale"
	openPool(t, pool, cidr("10.55.0.0/20"))
	f := newFleet(t)
	n := f.Start(node)
	used := mustAdd(t, n, asking(t, node, pool, "stale-1"))[0].Addr()
	lease := leaseOf(t, pool, used)
	n.Stop()
	id := sendRecallOf(t, time.Now().Add(-time.Hour), node, lease.Name, "10.55.0.0-10.55.15.255")
	f.Start(node)
	if l := answeredRecall(t, lease.Name, id); len(l.Ceded) > 0 {
		t.Errorf("%v is ceded to nobody; want nothing", l.Ceded)
	}
	// One that comes later is obeyed, whatever its maker's clock says.
	id = sendRecallOf(t, time.Now().Add(-time.Hour), node, lease.Name, "10.55.0.0-10.55.15.255")
	if l := answeredRecall(t, lease.Name, id); len(l.Ceded) == 0 {
		t.Error("nothing is ceded; want what is free of the block")
	}
}

// TestCrashBeforeTheLeaseSaysWhatIsCeded: what an agent had noted as ceded when it
// ended, and had not written into the lease, its successor writes: until then nobody
// could give it (I5).
func TestCrashBeforeTheLeaseSaysWhatIsCeded(t *testing.T) {
	const pool, node = "untold", "untold"
	openBlocks(t, pool, 16, v1alpha1.Range{CIDR: "10.54.0.0/20", End: "10.54.0.15"}) // one block
	f := newFleet(t)
	n := f.Start(node)
	used := mustAdd(t, n, asking(t, node, pool, "untold-1"))[0].Addr()
	lease := leaseOf(t, pool, used)
	told := cedeByRecall(t, node, lease.Name, "10.54.0.0-10.54.0.15")
	if len(told.Ceded) == 0 {
		t.Fatalf("nothing of %v is ceded", lease.Block)
	}
	n.Stop()
	changeLease(t, pool, used, func(l *protocol.Lease) { l.Ceded = nil }) // as if the agent had ended before that write
	f.Start(node)
	ceded(t, pool, used, func(x netip.Addr) bool { return slices.Contains(told.Ceded, x) })
}

// TestRecallsUnderLoad: recalls are answered within two seconds while ADDs and DELs
// come as fast as they can.
func TestRecallsUnderLoad(t *testing.T) {
	const pool, node, recalls = "loaded", "loaded", 10
	openPool(t, pool, cidr("10.53.0.0/16")) // blocks of 64
	n := newFleet(t).Start(node)
	first := mustAdd(t, n, onPool(pool, "loaded-0", "net1"))[0].Addr()
	lease := leaseOf(t, pool, first)
	stop, done := make(chan struct{}), make(chan struct{})
	for w := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				i := onPool(pool, fmt.Sprintf("loaded-%d-%d", w, k), "net1")
				if _, err := n.Insist(i); err != nil {
					t.Errorf("ADD: %v", err)
				}
				if err := n.Del(i); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		}()
	}
	var worst time.Duration
	for range recalls {
		began := time.Now()
		cedeByRecall(t, node, lease.Name, fmt.Sprintf("%v-%v", lease.Block.Addr(), first.Next()))
		worst = max(worst, time.Since(began))
	}
	close(stop)
	for range 4 {
		<-done
	}
	t.Logf("%d recalls, the slowest was answered after %v", recalls, worst)
}
