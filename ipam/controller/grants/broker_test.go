package grants

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// lan returns an open pool of these ranges.
func lan(t *testing.T, name string, cidrs ...string) PoolState {
	t.Helper()
	var text poolspec.PoolText
	for _, c := range cidrs {
		text.Ranges = append(text.Ranges, poolspec.RangeText{CIDR: c})
	}
	shape, err := poolspec.ParsePool(text)
	if err != nil {
		t.Fatal(err)
	}
	var ranges []netipx.IPRange
	for _, r := range shape.Ranges() {
		ranges = append(ranges, netipx.IPRangeFrom(r.Start, r.End))
	}
	return PoolState{
		Pool: protocol.Pool{
			Meta: protocol.Meta{Name: name, UID: protocol.UID("p-" + name)}, Open: true, Ranges: ranges,
			Bits4: allocator.BlockBits(shape, allocator.IPv4, 0), Bits6: allocator.BlockBits(shape, allocator.IPv6, 0),
		},
		Generation: 1, Shape: shape,
	}
}

func ask(name string, pools ...string) Ask {
	a := Ask{To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: protocol.UID("u-" + name), Namespace: "ns", Name: name}}
	for _, p := range pools {
		a.From = append(a.From, Source{Pool: protocol.PoolName(p)})
	}
	return a
}

// rig is a broker that runs over a server.
type rig struct {
	*Broker
	server *server
}

func newRig(t *testing.T, s *server, change ...func(*Config)) rig {
	t.Helper()
	cfg := DefaultConfig()
	for _, c := range change {
		c(&cfg)
	}
	b, err := New(cfg, s, Notify{}, NewMetrics(), slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	wg.Go(func() { s.watch(ctx, b) })
	t.Cleanup(func() {
		stop()
		wg.Wait() // a goroutine that sleeps outlives no bubble
	})
	synctest.Wait()
	return rig{b, s}
}

// settle asks, gives the broker time, and asks again.
func (r rig) settle(a Ask) Answer {
	r.Ask(a)
	time.Sleep(3 * time.Second)
	return r.Ask(a)
}

// free marks grants, and removes them.
func (r rig) free(t *testing.T, held []Held) {
	t.Helper()
	marked, err := r.Mark(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Clear(t.Context(), marked); err != nil {
		t.Fatal(err)
	}
}

func addrs(a Answer) string {
	var out []string
	for _, g := range a.Granted {
		out = append(out, netip.PrefixFrom(g.Addr, g.Range.Prefix.Bits()).String())
	}
	return strings.Join(out, " ")
}

func calm() *server { return newServer(rand.New(rand.NewPCG(1, 1))) }

func TestAsk(t *testing.T) {
	tests := []struct {
		name  string
		pools []string // name=cidr,cidr
		ask   Ask
		want  string
		why   Reason
	}{
		{name: "one family", pools: []string{"lan=10.0.0.0/30"}, ask: ask("a", "lan"), want: "10.0.0.1/30"},
		{name: "dual stack in the order IPv4, IPv6", pools: []string{"lan=fd00::/127,10.0.0.0/31"}, ask: ask("a", "lan"), want: "10.0.0.0/31 fd00::/127"},
		{name: "two pools, IPv4 first", pools: []string{"six=fd00::/127", "four=10.0.0.0/31"}, ask: ask("a", "six", "four"), want: "10.0.0.0/31 fd00::/127"},
		{name: "two sources of one family", pools: []string{"lan=10.0.0.0/31"}, ask: ask("a", "lan", "lan"), want: "10.0.0.0/31 10.0.0.1/31"},
		{name: "no pool", ask: ask("a", "lan"), why: PoolMissing},
		{name: "all or none", pools: []string{"lan=10.0.0.0/32"}, ask: ask("a", "lan", "lan"), why: Exhausted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := calm()
				r := newRig(t, s)
				for _, p := range tt.pools {
					name, cidrs, _ := strings.Cut(p, "=")
					st := lan(t, name, strings.Split(cidrs, ",")...)
					// The search starts at a hashed block: let there be only one.
					st.Bits4, st.Bits6 = 30, 126
					s.setPool(st)
				}
				got := r.settle(tt.ask)
				if addrs(got) != tt.want || got.Problem.Reason != tt.why {
					t.Errorf("got %q, problem %v (%s); want %q, problem %v", addrs(got), got.Problem.Reason, got.Problem.Message, tt.want, tt.why)
				}
			})
		})
	}
}

func TestAskOfAClosedPoolWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/30")
		pool.Open = false
		s.setPool(pool)
		if got := r.settle(ask("a", "lan")); got.Problem.Reason != PoolNotReady {
			t.Errorf("closed: problem %v; want %v", got.Problem.Reason, PoolNotReady)
		}
		// The watch shows it open, the live read does not: nothing is granted.
		pool.Open = true
		s.setPool(pool)
		s.mu.Lock()
		closed := s.pools["lan"]
		closed.Open, closed.Revision = false, s.next()
		s.pools["lan"] = closed
		s.mu.Unlock()
		if got := r.settle(ask("a", "lan")); got.Problem.Reason != PoolNotReady || s.count() > 0 {
			t.Errorf("closed by the live read: problem %v, %d leases; want %v, 0", got.Problem.Reason, s.count(), PoolNotReady)
		}
		s.setPool(pool)
		if got := r.settle(ask("a", "lan")); len(got.Granted) != 1 {
			t.Errorf("open: granted %q, problem %+v; want one address", addrs(got), got.Problem)
		}
	})
}

// TestArrivalOrder fills a pool and frees one address: the longest waiter has it.
func TestArrivalOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/30")) // two addresses
		time.Sleep(time.Second)
		for i := range 5 {
			r.Ask(ask(fmt.Sprint(i), "lan"))
		}
		time.Sleep(3 * time.Second)
		for i := range 5 {
			got := r.Ask(ask(fmt.Sprint(i), "lan"))
			if served := len(got.Granted) == 1; served != (i < 2) {
				t.Fatalf("ask %d: granted %q, problem %v; want the first two served", i, addrs(got), got.Problem.Reason)
			}
		}
		held := r.Held("u-0")
		if err := r.Clear(t.Context(), held); err == nil {
			t.Error("Clear of a grant that is not marked succeeds; want an error")
		}
		r.free(t, held)
		time.Sleep(3 * time.Second)
		for i := 2; i < 5; i++ {
			got := r.Ask(ask(fmt.Sprint(i), "lan"))
			if served := len(got.Granted) == 1; served != (i == 2) {
				t.Errorf("ask %d: granted %q; want only ask 2 served", i, addrs(got))
			}
		}
		r.Withdraw("u-3")
		if got := r.Held("u-3"); len(got) > 0 {
			t.Errorf("a withdrawn ask holds %v", got)
		}
	})
}

// TestExactly restores what a claim's status shows.
func TestExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/24")
		s.setPool(pool)
		time.Sleep(time.Second)
		s.hold(pool, netip.MustParsePrefix("10.0.0.9/32"), "n1")
		s.hold(pool, netip.MustParsePrefix("10.0.0.11/32"), "gone")
		s.hold(pool, netip.MustParsePrefix("10.0.0.12/32"), "n1")
		newNode(s, "n1").start(t).use("ns/pod", "10.0.0.9")
		exactly := func(name string, a ...string) Ask {
			want := ask(name, "lan")
			for _, a := range a {
				want.Exactly = append(want.Exactly, netip.MustParseAddr(a))
			}
			return want
		}
		for _, tt := range []struct {
			ask  Ask
			want string
			why  Reason
		}{
			{exactly("a", "10.0.0.7"), "10.0.0.7/24", NoProblem},
			{exactly("b", "10.0.0.7"), "", Taken},
			{exactly("c", "10.0.0.9"), "", Taken},
			{exactly("g", "10.0.0.11"), "", Silent},
			{exactly("h", "10.0.0.12"), "10.0.0.12/24", NoProblem},
			{exactly("d", "10.0.1.7"), "", Unassignable},
			{exactly("e", "10.0.0.255"), "", Unassignable},
			{exactly("f", "10.0.0.8", "10.0.0.10"), "", Unassignable},
			{exactly("a", "10.0.0.7"), "10.0.0.7/24", NoProblem},
		} {
			got := r.settle(tt.ask)
			if addrs(got) != tt.want || got.Problem.Reason != tt.why {
				t.Errorf("%v: got %q, problem %v (%s); want %q, problem %v", tt.ask.Exactly, addrs(got), got.Problem.Reason, got.Problem.Message, tt.want, tt.why)
			}
		}
	})
}

func TestIdleLeasesGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/24")
		s.setPool(pool)
		r.settle(ask("a", "lan"))
		held := r.Held("u-a")
		r.free(t, held)
		time.Sleep(55 * time.Second)
		if s.count() != 1 {
			t.Errorf("%d leases after 55 s without a grant; want 1", s.count())
		}
		time.Sleep(10 * time.Second)
		if s.count() != 0 {
			t.Errorf("%d leases after 65 s without a grant; want 0", s.count())
		}

		r.settle(ask("b", "lan"))
		pool.Deleting = true
		s.setPool(pool)
		time.Sleep(3 * time.Second)
		if s.count() != 1 {
			t.Fatalf("%d leases of a pool being deleted; want the one with a grant", s.count())
		}
		held = r.Held("u-b")
		r.free(t, held)
		time.Sleep(3 * time.Second)
		if s.count() != 0 {
			t.Errorf("%d leases of a pool being deleted after its last grant; want 0", s.count())
		}
	})
}

// TestRefusedCreate shows the reason and is tried again.
func TestRefusedCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/32"))
		name := protocol.LeaseName("lan", netip.MustParsePrefix("10.0.0.0/32"))
		s.refused[name] = true
		if got := r.settle(ask("a", "lan")); got.Problem.Reason != Failed || !strings.Contains(got.Problem.Message, "policy says no") {
			t.Errorf("problem %v %q; want %v with the reason", got.Problem.Reason, got.Problem.Message, Failed)
		}
		s.mu.Lock()
		s.refused[name] = false
		s.mu.Unlock()
		time.Sleep(6 * time.Second)
		if got := r.Ask(ask("a", "lan")); len(got.Granted) != 1 {
			t.Errorf("granted %q once policy allows it; want one address", addrs(got))
		}
	})
}

// rival is a server where another controller grants on every lease as soon as it is
// created, of which the broker hears before the create is answered.
type rival struct {
	*server
	b *Broker
}

func (r *rival) CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	got, out, err := r.server.CreateLease(ctx, l)
	if out == protocol.Done {
		next := got.Clone()
		next.Grants = []protocol.Grant{grant(l.Block.Addr().String(), bert)}
		next, out, err = r.UpdateLease(ctx, got, next)
		r.b.Observe(next)
	}
	return got, out, err
}

// TestRefusedLeaseOfTwo: what this controller has leased, and does not bear its grant,
// goes back only as it was created: not with what another one has granted on it.
func TestRefusedLeaseOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rival{server: calm()}
		var err error
		if s.b, err = New(DefaultConfig(), s, Notify{}, NewMetrics(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		s.b.Start(t.Context())
		pool := lan(t, "lan", "10.0.0.0/24")
		s.b.SetPool(pool)
		pool.Open = false // since the watch has shown it
		s.setPool(pool)
		s.b.Ask(ask("a", "lan"))
		s.b.RunOnce(t.Context(), false)
		leases, err := s.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(leases) != 1 || len(leases[0].Grants) != 1 {
			t.Errorf("leases %v; want the one with the grant of the other controller", leases)
		}
	})
}

// TestOneUpdateForMany counts the writes of a hundred asks at once.
func TestOneUpdateForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/16"))
		time.Sleep(time.Second)
		s.mu.Lock()
		before := s.revision
		s.mu.Unlock()
		for i := range 128 {
			r.Ask(ask(fmt.Sprint(i), "lan"))
		}
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		writes := s.revision - before
		s.mu.Unlock()
		// Blocks of 64: two or three creates, and an update for each, twice where
		// the first asks made a round of their own.
		if writes > 8 {
			t.Errorf("128 asks cost %d writes; want at most 8", writes)
		}
		for i := range 128 {
			if got := r.Ask(ask(fmt.Sprint(i), "lan")); len(got.Granted) != 1 {
				t.Fatalf("ask %d: %+v; want it granted", i, got)
			}
		}
	})
}
