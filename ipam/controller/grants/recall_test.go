package grants

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// requestOf asks for one address of these ranges of a pool, as a sub-lease does.
func requestOf(t *testing.T, name string, pool protocol.PoolName, ranges ...string) Ask {
	t.Helper()
	a := Ask{To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: protocol.UID("s-" + name), Name: name}}
	for _, text := range ranges {
		var set netipx.IPSetBuilder
		r, err := netipx.ParseIPRange(text)
		if err != nil {
			t.Fatal(err)
		}
		set.AddRange(r)
		built, err := set.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		src := Source{Pool: pool, View: allocator.NewView(built), Families: []allocator.Family{allocator.FamilyOf(r.From())}}
		if r.From() == r.To() {
			src.Addr = r.From()
		}
		a.From = append(a.From, src)
	}
	return a
}

// cede has a node cede addresses of a block that it holds.
func (s *server) cede(pool PoolState, block string, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[protocol.LeaseName(protocol.PoolName(pool.Name), netip.MustParsePrefix(block))]
	for _, a := range addrs {
		l.Ceded = append(l.Ceded, netip.MustParseAddr(a))
	}
	l.Writes++
	l.Revision = s.next()
	s.put(l)
}

func (s *server) lease(pool PoolState, block string) protocol.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[protocol.LeaseName(protocol.PoolName(pool.Name), netip.MustParsePrefix(block))].Clone()
}

func (s *server) recalls(node protocol.NodeName) []protocol.Recall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.regs[node].Recalls
}

// TestOrderOfFinding takes addresses one after the other: of the cluster's block, of
// a block that nobody holds, a ceded one, one of a block that is ceded whole.
func TestOrderOfFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/28")
		pool.Bits4 = 30
		s.setPool(pool)
		time.Sleep(time.Second)
		newNode(s, "n1")
		s.hold(pool, netip.MustParsePrefix("10.0.0.0/30"), "n1")
		s.cede(pool, "10.0.0.0/30", "10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		s.hold(pool, netip.MustParsePrefix("10.0.0.4/30"), "n1")
		s.cede(pool, "10.0.0.4/30", "10.0.0.6")
		r.settle(requestOf(t, "first", "lan", "10.0.0.8-10.0.0.8"))

		blocks := []string{"10.0.0.8/30", "10.0.0.8/30", "10.0.0.8/30", "10.0.0.12/30", "10.0.0.12/30", "10.0.0.12/30", "10.0.0.4/30", "10.0.0.0/30", "10.0.0.0/30", "10.0.0.0/30"}
		for i, block := range blocks {
			got := r.settle(requestOf(t, fmt.Sprint(i), "lan", "10.0.0.1-10.0.0.14"))
			if len(got.Granted) != 1 || !netip.MustParsePrefix(block).Contains(got.Granted[0].Addr) {
				t.Fatalf("%d. address: %q, %+v; want one of %s", i+1, addrs(got), got.Problem, block)
			}
			if block == "10.0.0.4/30" && got.Granted[0].Addr != netip.MustParseAddr("10.0.0.6") {
				t.Errorf("granted %v, which is not ceded", got.Granted[0].Addr)
			}
		}
		r.Ask(requestOf(t, "last", "lan", "10.0.0.1-10.0.0.14"))
		time.Sleep(unaskedFor) // nobody cedes unasked here
		if got := r.settle(requestOf(t, "last", "lan", "10.0.0.1-10.0.0.14")); got.Problem.Reason != Exhausted {
			t.Errorf("beyond the last: %q, %v; want %v", addrs(got), got.Problem.Reason, Exhausted)
		}
		if l := s.lease(pool, "10.0.0.4/30"); l.Holder.Node != "n1" || len(l.Ceded) != 1 || l.Writes != 1 {
			t.Errorf("lease %+v; want it still the node's", l)
		}
		if l := s.lease(pool, "10.0.0.0/30"); !l.Holder.Cluster || l.Store != "" || l.Term != 0 || l.Writes != 2 || len(l.Ceded) != 0 {
			t.Errorf("lease %+v; want it the cluster's, one turn on", l)
		}
	})
}

// TestCededOfAnotherTime: nothing is granted on a lease of an earlier pool, of a
// later version, or one that is being deleted.
func TestCededOfAnotherTime(t *testing.T) {
	for name, change := range map[string]func(*protocol.Lease){
		"another pool":    func(l *protocol.Lease) { l.PoolUID = "p-before" },
		"a later version": func(l *protocol.Lease) { l.Protocol++ },
		"being deleted":   func(l *protocol.Lease) { l.Deleting = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := calm()
				r := newRig(t, s)
				pool := lan(t, "lan", "10.0.0.1/32")
				s.setPool(pool)
				newNode(s, "n1")
				s.hold(pool, netip.MustParsePrefix("10.0.0.1/32"), "n1")
				s.mu.Lock()
				l := s.leases["lan.0a000001.32"]
				change(&l)
				s.leases[l.Name] = l
				s.mu.Unlock()
				s.cede(pool, "10.0.0.1/32", "10.0.0.1")
				if got := r.settle(requestOf(t, "a", "lan", "10.0.0.1-10.0.0.9")); len(got.Granted) > 0 || len(s.lease(pool, "10.0.0.1/32").Grants) > 0 {
					t.Errorf("granted %q", addrs(got))
				}
			})
		})
	}
}

// TestRecalls: up to eight holders at once, the most promising first, no more than
// needed, and who does not answer is passed over.
func TestRecalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/27")
		s.setPool(pool) // blocks of one address
		time.Sleep(time.Second)
		var nodes []*node
		for i := 1; i <= 30; i++ {
			n := newNode(s, protocol.NodeName(fmt.Sprint("n", i)))
			n.setUnanswering(i <= 10)
			addr := netip.MustParseAddr(fmt.Sprint("10.0.0.", i))
			s.hold(pool, netip.PrefixFrom(addr, 32), n.name)
			if i != 20 {
				n.use("ns/pod", addr.String())
			}
			nodes = append(nodes, n.start(t))
		}
		time.Sleep(time.Second)
		standing := func() (count int) {
			for _, n := range nodes {
				count += len(s.recalls(n.name))
			}
			return count
		}
		under := func() (count int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, h := range r.book.holders {
				count += len(h.under)
			}
			return count
		}
		if standing() > 0 {
			t.Error("recalls while nobody waits")
		}
		r.Ask(requestOf(t, "a", "lan", "10.0.0.1-10.0.0.30"))
		begun, most := time.Now(), 0
		for len(r.Ask(requestOf(t, "a", "lan", "10.0.0.1-10.0.0.30")).Granted) == 0 {
			if time.Since(begun) > 10*time.Second {
				t.Fatal("holders that do not answer block the one that would")
			}
			time.Sleep(10 * time.Millisecond)
			most = max(most, under())
		}
		if most != eachAsks {
			t.Errorf("%d recalls at once for one who waits; want %d", most, eachAsks)
		}
		if took := time.Since(begun); took > 2*answerTimeout+unaskedFor+time.Second {
			t.Errorf("granted after %v; want the silent ones passed over after %v", took, answerTimeout)
		}
		r.Withdraw("s-a")
		time.Sleep(answerTimeout + cleanupDelay + time.Second)
		if n := standing(); n > 0 {
			t.Errorf("%d recalls stand on registrations that are over; want none", n)
		}
		// All have been asked: it is exhausted, and people hear of it.
		r.Ask(requestOf(t, "b", "lan", "10.0.0.1-10.0.0.30"))
		time.Sleep(13 * time.Second)
		got := r.Ask(requestOf(t, "b", "lan", "10.0.0.1-10.0.0.30"))
		if got.Problem.Reason != Exhausted || !r.Starving("lan", nil) {
			t.Errorf("problem %v, starving %v; want %v", got.Problem, r.Starving("lan", nil), Exhausted)
		}
		// The next that becomes free, and is ceded under pressure, is had at once.
		nodes[4].drop(netip.MustParsePrefix("10.0.0.5/32"))
		s.cede(pool, "10.0.0.5/32", "10.0.0.5")
		time.Sleep(time.Second)
		if got = r.Ask(requestOf(t, "b", "lan", "10.0.0.1-10.0.0.30")); addrs(got) != "10.0.0.5/27" || r.Starving("lan", nil) {
			t.Errorf("granted %q, starving %v; want 10.0.0.5", addrs(got), r.Starving("lan", nil))
		}
	})
}

// TestNamedOfANode: the one address that is wanted is asked of its holder alone.
func TestNamedOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/28")
		pool.Bits4 = 30
		s.setPool(pool)
		time.Sleep(time.Second)
		has, mute, other := newNode(s, "has").start(t), newNode(s, "mute"), newNode(s, "other").start(t)
		for n, block := range map[*node]string{has: "10.0.0.0/30", mute: "10.0.0.4/30", other: "10.0.0.8/30"} {
			s.hold(pool, netip.MustParsePrefix(block), n.name)
		}
		has.use("ns/mary", "10.0.0.1")
		time.Sleep(time.Second)
		for _, tt := range []struct {
			addr   string
			reason Reason
			words  string
		}{
			{"10.0.0.1", Taken, "in use on node has"},
			{"10.0.0.2", NoProblem, ""},
			{"10.0.0.2", Taken, "belongs to sub-lease 10.0.0.2"},
			{"10.0.0.5", Silent, "node mute, which does not answer"},
		} {
			a := requestOf(t, tt.addr+tt.words, "lan", tt.addr+"-"+tt.addr)
			got := r.settle(a)
			if got.Problem.Reason != tt.reason || !strings.Contains(got.Problem.Message, tt.words) || (tt.reason == NoProblem) != (len(got.Granted) == 1) {
				t.Errorf("%s: granted %q, %v %q; want %v, %q", tt.addr, addrs(got), got.Problem.Reason, got.Problem.Message, tt.reason, tt.words)
			}
			if tt.reason != NoProblem && (got.Problem.Lease == "" || got.Problem.Addr.String() != tt.addr) {
				t.Errorf("%s: problem %+v; want it to say where", tt.addr, got.Problem)
			}
			if tt.reason == Taken {
				r.Withdraw(a.To.UID)
			}
		}
		if len(other.server.lease(pool, "10.0.0.8/30").Ceded) > 0 {
			t.Error("a node was asked that has nothing of what is wanted")
		}
		// Its holder frees it: a request that comes then has it.
		has.drop(netip.MustParsePrefix("10.0.0.0/30"))
		if got := r.settle(requestOf(t, "later", "lan", "10.0.0.1-10.0.0.1")); len(got.Granted) != 1 {
			t.Errorf("after the pod has gone: %+v; want 10.0.0.1", got.Problem)
		}
		// The silent one answers again, and who waits has what it wanted.
		mute.start(t)
		time.Sleep(backoff + time.Second)
		if got := r.Ask(requestOf(t, "10.0.0.5node mute, which does not answer", "lan", "10.0.0.5-10.0.0.5")); len(got.Granted) != 1 {
			t.Errorf("once the holder answers: %+v; want 10.0.0.5", got.Problem)
		}
	})
}

// TestSeveralNamedOfOneBlock: of addresses of one block that pods have, each is asked for once in a
// while, however many wait, as when the claims of a backup name them.
func TestSeveralNamedOfOneBlock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		asks  [][]string
		pools []string
	}{
		{"one", [][]string{{"10.0.0.1"}}, []string{"lan"}},
		{"two claims", [][]string{{"10.0.0.1"}, {"10.0.0.2"}}, []string{"lan"}},
		{"four claims", [][]string{{"10.0.0.1"}, {"10.0.0.2"}, {"10.0.0.3"}, {"10.0.0.4"}}, []string{"lan"}},
		{"one claim of two addresses", [][]string{{"10.0.0.1", "10.0.0.2"}}, []string{"lan", "lan"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := calm()
				r := newRig(t, s)
				pool := lan(t, "lan", "10.0.0.0/28")
				pool.Bits4 = 28
				s.setPool(pool)
				node := newNode(s, "n1").start(t)
				s.hold(pool, netip.MustParsePrefix("10.0.0.0/28"), "n1")
				node.use("ns/mary", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
				time.Sleep(time.Second)
				wanted := uint64(0)
				for i, exactly := range tt.asks {
					a := ask(fmt.Sprint(i), tt.pools...)
					for _, addr := range exactly {
						a.Exactly = append(a.Exactly, netip.MustParseAddr(addr))
						wanted++
					}
					if got := r.settle(a); got.Problem.Reason != Taken {
						t.Errorf("%v: granted %q, %v; want Taken", exactly, addrs(got), got.Problem)
					}
				}
				recalls := func() uint64 {
					r.mu.Lock()
					defer r.mu.Unlock()
					return r.book.recalls
				}
				before := recalls()
				time.Sleep(10 * backoff)
				if n := recalls() - before; n > 11*wanted {
					t.Errorf("%d recalls for %d addresses in %v; want one for each in %v", n, wanted, 10*backoff, backoff)
				}
			})
		})
	}
}

// TestManyToBeKept: however many addresses of a lease are said to be another IPAM's, its holder is
// asked for them together, and rarely.
func TestManyToBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/24")
		pool.Bits4 = 28
		s.setPool(pool)
		time.Sleep(time.Second)
		leases := uint64(0)
		node := newNode(s, "n1")
		var all []netip.Addr
		for a := netip.MustParseAddr("10.0.0.0"); a != netip.MustParseAddr("10.0.1.0"); a = a.Next() {
			if block := netip.PrefixFrom(a, 28); block == block.Masked() {
				node.lease(pool, block)
				leases++
			}
			node.use("ns/mary", a.String())
			all = append(all, a)
		}
		node.start(t)
		time.Sleep(time.Second)
		var last Ask
		for i, a := range all {
			last = Ask{
				To:   protocol.Grantee{Kind: protocol.GranteePod, UID: protocol.UID(fmt.Sprint("box-", i/64)), Name: "x", Node: "n2"},
				From: []Source{{Pool: "lan", Addr: a, Families: []allocator.Family{allocator.IPv4}}},
			}
			r.Ask(last)
		}
		if got := r.settle(last); got.Problem.Reason != Taken {
			t.Errorf("what a pod of Tenure's has: %+v; want Taken", got)
		}
		time.Sleep(backoffMax + backoff)
		r.mu.Lock()
		if n := r.book.recalls; n > 4*leases {
			t.Errorf("%d recalls of %d leases for %d addresses; want two a lease, twice", n, leases, len(all))
		}
		r.mu.Unlock()
		// Once its pod is gone, what is to be kept is.
		node.mu.Lock()
		delete(node.used, last.From[0].Addr)
		node.mu.Unlock()
		time.Sleep(backoffMax + backoff)
		if got := r.Ask(last); len(got.Granted) != 1 {
			t.Errorf("what a pod of Tenure's had: %+v; want it kept", got)
		}
	})
}

// TestStoreThatWasLost: a lease of another store than the one on the registration is nobody's
// to cede, and its node's other leases are asked all the same.
func TestStoreThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/30")
		s.setPool(pool)
		time.Sleep(time.Second)
		newNode(s, "n1").start(t)
		s.hold(pool, netip.MustParsePrefix("10.0.0.1/32"), "n1")
		s.mu.Lock()
		l := s.leases["lan.0a000001.32"]
		l.Store, l.Revision = "lost", s.next()
		s.put(l)
		s.mu.Unlock()
		s.hold(pool, netip.MustParsePrefix("10.0.0.2/32"), "n1")
		time.Sleep(time.Second)
		begun := time.Now()
		r.Ask(requestOf(t, "a", "lan", "10.0.0.1-10.0.0.2"))
		time.Sleep(unaskedFor + time.Second) // nobody cedes unasked here
		if got := r.Ask(requestOf(t, "a", "lan", "10.0.0.1-10.0.0.2")); addrs(got) != "10.0.0.2/30" {
			t.Errorf("granted %q, %+v after %v; want 10.0.0.2", addrs(got), got.Problem, time.Since(begun))
		}
		if got := r.settle(requestOf(t, "b", "lan", "10.0.0.1-10.0.0.1")); got.Problem.Reason != Silent {
			t.Errorf("problem %+v; want %v", got.Problem, Silent)
		}
	})
}

// TestSearchesOfOneRound: wants of one request that other addresses would do for are
// matched so that as many as possible are met.
func TestSearchesOfOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/29")
		pool.Bits4 = 29
		s.setPool(pool)
		a := requestOf(t, "a", "lan", "10.0.0.1-10.0.0.2", "10.0.0.1-10.0.0.1")
		got := r.settle(a)
		time.Sleep(10 * time.Second)
		if again := r.Ask(a); len(r.Held("s-a")) > 2 || len(got.Granted) != len(again.Granted) {
			t.Errorf("granted %q, then %q; holds %v", addrs(got), addrs(again), r.Held("s-a"))
		}
	})
}

// TestAmend: a registration keeps the recalls that are under way, and another controller's
// while they are young.
func TestAmend(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	b := newBook(func() time.Time { return now })
	b.id = "me"
	b.holders["n1"] = &holder{under: []*recall{{Recall: protocol.Recall{ID: "1.me.2"}}, {Recall: protocol.Recall{ID: "1.me.3"}}}}
	id := func(at time.Time, of string) protocol.Recall {
		return protocol.Recall{ID: fmt.Sprintf("%x.%s.1", at.UnixMilli(), of)}
	}
	young, old := id(now.Add(-time.Second), "other"), id(now.Add(-backoff), "other")
	var got []string
	for _, rec := range b.amend("n1", []protocol.Recall{{ID: "1.me.1"}, {ID: "1.me.2"}, young, old, {ID: "by hand"}}, now) {
		got = append(got, rec.ID)
	}
	if want := []string{"1.me.2", young.ID, "1.me.3"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("recalls %v; want %v", got, want)
	}
}

// drying is a pool of blocks of one address, of which nodes hold the first, and a book
// that looks after it, with a clock.
type drying struct {
	t        *testing.T
	b        *book
	now      time.Time
	pool     PoolState
	revision int
}

// newDrying returns the pool of that range, with asks for the first thirty addresses.
func newDrying(t *testing.T, cidr string) *drying {
	t.Helper()
	d := &drying{t: t, now: time.UnixMilli(1_000_000), pool: lan(t, "lan", cidr)}
	d.b = newBook(func() time.Time { return d.now })
	d.b.id = "me"
	d.b.setPool(d.pool)
	for i := 1; i <= 30; i++ {
		d.holds(i, "", false)
	}
	for i := range 20 {
		d.b.ask(requestOf(t, fmt.Sprint(i), "lan", "10.0.0.1-10.0.0.30"), never)
	}
	return d
}

// holds has the i-th address's node hold it, and cede it or not.
func (d *drying) holds(i int, answered string, cedes bool) {
	d.revision++
	l := protocol.Lease{
		Meta:     protocol.Meta{Name: d.name(i), UID: protocol.UID(fmt.Sprint("l", i)), Revision: protocol.Revision(fmt.Sprint(1000 + d.revision))},
		Protocol: protocol.Version, Pool: "lan", PoolUID: d.pool.UID, Block: oneAddress(i), Holder: protocol.Holder{Node: protocol.NodeName(fmt.Sprint("n", i))},
		Published: protocol.Publication{Used: 1, Answered: answered},
	}
	if cedes {
		l.Ceded = []netip.Addr{l.Block.Addr()}
	}
	d.b.Observe(l, 0)
}

func (d *drying) name(i int) string { return protocol.LeaseName("lan", oneAddress(i)) }

func oneAddress(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)
}

// round plays a round, after which there must have been so many recalls.
func (d *drying) round(when string, recalls int) {
	d.t.Helper()
	d.b.expire(d.now)
	r := d.b.plan(d.b.take(100, d.now), nil, d.now)
	d.b.finish(r, d.now)
	if int(d.b.recalls) != recalls {
		d.t.Errorf("%s: %d recalls so far; want %d", when, d.b.recalls, recalls)
	}
}

// TestSpentPool: where no block is left every holder hears that the pool is exhausted, and cedes
// unasked. So nobody is recalled for who has come within a second. Where blocks are left, and only
// the part of the pool that is wanted has none, nobody else would cede.
func TestSpentPool(t *testing.T) {
	d := newDrying(t, "10.0.0.0/27")
	d.round("at first", 0)
	if due, ok := d.b.due(); !ok || !due.Equal(d.now.Add(unaskedFor)) {
		t.Errorf("looked at again at %v, %t; want in %v", due, ok, unaskedFor)
	}
	d.now = d.now.Add(unaskedFor / 2)
	d.holds(1, "", true)
	d.round("when one has ceded", 0)
	d.now = d.now.Add(unaskedFor / 2)
	d.round("after a second", 29)

	d = newDrying(t, "10.0.0.0/26")
	d.round("where blocks are left", 30)
}

// What is known of recalls of a part alone is forgotten with time: the parts are for nodes to say.
func TestForgetsPartsThatWereRecalled(t *testing.T) {
	now := time.Now()
	b := newBook(func() time.Time { return now })
	l := &lease{Lease: protocol.Lease{Block: netip.MustParsePrefix("10.0.0.0/24"), Holder: protocol.Holder{Node: "n1"}}}
	for i := range 100 {
		var part netipx.IPSetBuilder
		part.AddRange(netipx.IPRangeFrom(netip.MustParseAddr("10.0.0.0"), netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})))
		set, err := part.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		b.endAnswered(b.recall(&round{now: now}, b.pool("lan"), l, allocator.NewView(set)))
		now = now.Add(backoffMax)
	}
	if n := len(l.asked.within); n > 3 {
		t.Errorf("what is known of parts: %d", n)
	}
}
