package grants

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// registry is the claims of a chaos test: what their status shows, and who of two
// controllers was first to write it. It is the model that the leases are compared
// with.
type registry struct {
	mu     sync.Mutex
	claims map[protocol.UID]*record
}

type record struct {
	ask      Ask
	revision int
	status   []netip.Addr // written once
	used     bool         // a pod uses it
	gone     bool
}

// read returns a copy of a record, and its ask.
func (reg *registry) read(uid protocol.UID) (record, Ask) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	rec := *reg.claims[uid]
	return rec, rec.ask
}

// leader is one controller: a broker, and a loop that does with each claim what
// the claim reconciler does.
type leader struct {
	*Broker
	reg    *registry
	server *server
	kick   chan ClaimKey
}

// reconcile does what there is to be done about one claim name.
func (l *leader) reconcile(ctx context.Context, key ClaimKey) error {
	uid := protocol.UID("u-" + key.Name)
	rec, a := l.reg.read(uid)
	if rec.gone {
		l.Withdraw(uid)
		return l.free(ctx, uid, l.Held(uid))
	}
	if len(rec.status) == 0 {
		a.Stamp = protocol.Revision(fmt.Sprint(rec.revision))
		l.pause()
		answer := l.Ask(a)
		switch {
		case len(answer.Granted) > 0:
			if answer.Stamp != a.Stamp {
				var err error
				if answer, err = l.Verify(ctx, a); err != nil || len(answer.Granted) == 0 {
					return err
				}
			}
			l.pause()
			var status []netip.Addr
			for _, g := range answer.Granted {
				status = append(status, g.Addr)
			}
			if err := l.write(uid, rec.revision, status); err != nil {
				return err
			}
			l.Withdraw(uid)
			rec.status = status
		case answer.Problem.Reason == Exhausted && len(l.Held(uid)) > 0:
			return l.giveBack(ctx, uid, rec.revision)
		default:
			return nil
		}
	}
	var surplus, wanted []Held
	for _, h := range l.Held(uid) {
		switch named := slices.Contains(rec.status, h.Grant.Addr); {
		case !named:
			surplus = append(surplus, h)
		case h.Grant.Freeing: // giving it back came too late
			wanted = append(wanted, h)
		}
	}
	if len(wanted) > 0 {
		if err := l.Unmark(ctx, wanted); err != nil {
			return err
		}
	}
	return l.free(ctx, uid, surplus)
}

// write writes a claim's status by compare-and-swap. What it writes is a change.
func (l *leader) write(uid protocol.UID, revision int, status []netip.Addr) error {
	time.Sleep(l.server.some(20 * time.Millisecond))
	l.reg.mu.Lock()
	defer l.reg.mu.Unlock()
	rec := l.reg.claims[uid]
	if rec.gone || rec.revision != revision {
		return errors.New("conflict")
	}
	rec.revision++
	rec.status = status
	return nil
}

// giveBack frees part of what a claim wants, where the rest cannot be had: mark,
// change the status, clear.
func (l *leader) giveBack(ctx context.Context, uid protocol.UID, revision int) error {
	marked, err := l.Mark(ctx, l.Held(uid))
	if err != nil {
		return err
	}
	l.pause()
	if err := l.write(uid, revision, nil); err != nil {
		return err
	}
	l.pause()
	return l.Clear(ctx, marked)
}

// pause stops a controller between two steps, sometimes for long, until peace has
// come.
func (l *leader) pause() {
	l.server.mu.Lock()
	peace := l.server.trouble == 0
	l.server.mu.Unlock()
	if !peace && l.server.some(3) == 0 {
		time.Sleep(l.server.some(l.server.some(2*time.Minute) + 1))
	}
}

// free is the freeing of docs/contributing/protocol.md: mark, look for uses, clear.
func (l *leader) free(ctx context.Context, uid protocol.UID, held []Held) error {
	if len(held) == 0 {
		return nil
	}
	marked, err := l.Mark(ctx, held)
	if err != nil {
		return err
	}
	l.pause()
	if rec, _ := l.reg.read(uid); rec.used {
		return errors.New("in use")
	}
	l.pause()
	return l.Clear(ctx, marked)
}

func (l *leader) run(ctx context.Context) {
	var looks sync.WaitGroup
	defer looks.Wait() // a goroutine that sleeps outlives no bubble
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-l.kick:
			looks.Go(func() {
				if err := l.reconcile(ctx, key); err != nil && ctx.Err() == nil {
					time.Sleep(time.Second)
					l.kick <- key
				}
			})
		}
	}
}

func newLeader(ctx context.Context, t *testing.T, s *server, reg *registry, wg *sync.WaitGroup) *leader {
	l := &leader{reg: reg, server: s, kick: make(chan ClaimKey, 1<<16)}
	b, err := New(DefaultConfig(), s, Notify{Claim: func(key ClaimKey) { l.kick <- key }}, NewMetrics(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Broker = b
	for _, run := range []func(){
		func() { _ = b.Run(ctx) }, func() { s.watch(ctx, b) }, func() { l.run(ctx) },
	} {
		wg.Go(run)
	}
	return l
}

// verify returns what is wrong with the leases at this moment: an address with
// two owners, an address of a claim's status that is not granted to it, a grant of
// what a node has not ceded, a node's use of what is not its to use. s.mu must be
// held.
func (reg *registry) verify(s *server) error {
	owner := map[string]protocol.UID{}
	for _, l := range s.leases {
		for _, g := range l.Grants {
			at := string(l.Pool) + "/" + g.Addr.String()
			if other, ok := owner[at]; ok {
				return fmt.Errorf("I1: %s granted to %s and %s", at, other, g.To.UID)
			}
			owner[at] = g.To.UID
			if !l.Holder.Cluster && !slices.Contains(l.Ceded, g.Addr) {
				return fmt.Errorf("I1: %s granted out of a block of %v, which has not ceded it", at, l.Holder)
			}
		}
	}
	for _, n := range s.nodes {
		if err := n.verify(); err != nil {
			return err
		}
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for uid, rec := range reg.claims {
		if rec.gone && !rec.used {
			continue
		}
		for i, a := range rec.status {
			at := string(rec.ask.From[i].Pool) + "/" + a.String()
			if owner[at] != uid {
				return fmt.Errorf("I3: the status of %s shows %s, which is granted to %q", uid, at, owner[at])
			}
		}
	}
	return nil
}

var (
	firstSeed = flag.Uint64("first-seed", 0, "first seed of TestChaos")
	seeds     = flag.Uint64("seeds", 40, "number of seeds of TestChaos")
)

// TestChaos has two controllers, which both believe that they lead, serve claims
// that come and go, on an API server that loses answers, in pools that nodes use
// too. It proves I1 and I3 after every write, and I4 and I5 when peace has come.
func TestChaos(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 5)
	}
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	s := newServer(rand.New(rand.NewPCG(seed, 8)))
	s.trouble = 0.1
	reg := &registry{claims: map[protocol.UID]*record{}}
	var faults []error
	s.check = func() {
		if err := reg.verify(s); err != nil && len(faults) < 3 {
			faults = append(faults, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	leaders := []*leader{newLeader(ctx, t, s, reg, &wg), newLeader(ctx, t, s, reg, &wg)}
	tell := func(name string) {
		for _, l := range leaders {
			l.kick <- ClaimKey{"ns", name}
		}
	}

	pools := []PoolState{lan(t, "big", "10.0.0.0/20"), lan(t, "small", "10.1.0.0/28"), lan(t, "v6", "fd00::/64")}
	for _, p := range pools {
		s.setPool(p)
	}
	sets := [][]string{{"big"}, {"small"}, {"small", "v6"}, {"v6"}, {"small", "v6"}}
	nodes := []*node{newNode(s, "n1"), newNode(s, "n2"), newNode(s, "n3")}
	for _, n := range nodes {
		wg.Go(func() { n.run(ctx) })
	}
	for i := range 400 {
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
		switch op := rng.IntN(10); {
		case op < 4:
			name := fmt.Sprint("c", i)
			reg.mu.Lock()
			a := ask(name, sets[rng.IntN(len(sets))]...)
			reg.claims[a.To.UID] = &record{ask: a}
			reg.mu.Unlock()
			tell(name)
		case op < 8:
			// Claims that are deleted at random, some while a pod uses them.
			if name, ok := reg.end(rng); ok {
				tell(name)
			}
		case op == 8:
			p := pools[rng.IntN(2)]
			a := p.Shape.Ranges()[0].Prefix.Addr()
			for range rng.IntN(6 << (32 - p.Bits4)) {
				a = a.Next()
			}
			nodes[rng.IntN(len(nodes))].act(ctx, rng, p, p.Shape.Block(a, p.Bits4))
		default:
			p := &pools[rng.IntN(len(pools))]
			p.Open = !p.Open
			s.setPool(*p)
		}
	}
	settle(t, s, reg, pools, tell)
	stop()
	wg.Wait()
	for _, err := range faults {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// end deletes a claim, or ends its use.
func (reg *registry) end(rng *rand.Rand) (string, bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	var open []protocol.UID
	for _, uid := range slices.Sorted(maps.Keys(reg.claims)) {
		if rec := reg.claims[uid]; !rec.gone || rec.used {
			open = append(open, uid)
		}
	}
	if len(open) == 0 {
		return "", false
	}
	rec := reg.claims[open[rng.IntN(len(open))]]
	switch {
	case rec.used:
		rec.used = false
	case len(rec.status) > 0 && rng.IntN(2) == 0:
		rec.used = true // and its status shows the pod
		rec.revision++
		return "", false
	default:
		rec.gone = true
	}
	rec.revision++
	return rec.ask.To.Name, true
}

// settle lets peace come, and compares the leases with the claims: whoever can
// have its addresses has them, and nobody else has any.
func settle(t *testing.T, s *server, reg *registry, pools []PoolState, tell func(string)) {
	s.mu.Lock()
	s.trouble = 0
	s.mu.Unlock()
	for _, n := range s.nodes {
		n.setUnanswering(false)
	}
	for _, p := range pools {
		p.Open = true
		s.setPool(p)
	}
	reg.mu.Lock()
	for _, rec := range reg.claims {
		rec.used = false
		tell(rec.ask.To.Name)
	}
	reg.mu.Unlock()
	time.Sleep(10 * time.Minute)

	s.mu.Lock()
	defer s.mu.Unlock()
	granted := map[protocol.UID]int{}
	free := map[protocol.PoolName]int64{}
	for _, p := range pools {
		for _, f := range p.Shape.Families() {
			free[protocol.PoolName(p.Name)] += p.Shape.Capacity(f)
		}
	}
	for _, l := range s.leases {
		if l.Holder.Cluster && len(l.Grants) == 0 {
			t.Errorf("I4: idle lease %s is not given back", l.Name)
		}
		for _, g := range l.Grants {
			granted[g.To.UID]++
			free[l.Pool]--
			if g.Freeing {
				t.Errorf("I4: %v of %s is still being freed", g.Addr, g.To)
			}
		}
	}
	for _, n := range s.nodes {
		for at := range n.held() {
			for _, p := range pools {
				if p.Shape.Assignable(at) == nil {
					free[protocol.PoolName(p.Name)]--
				}
			}
		}
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for uid, rec := range reg.claims {
		want := len(rec.ask.From)
		if rec.gone {
			want = 0
		}
		if got := granted[uid]; got != want && (got != 0 || free["small"] > 0 && !rec.gone || rec.ask.From[0].Pool != "small") {
			t.Errorf("I4, I5: %s has %d addresses; want %d (free: %v)", uid, got, want, free)
		}
		if len(rec.status) != want && !rec.gone && free["small"] > 0 {
			t.Errorf("I5: the status of %s shows %v; want %d addresses (free: %v)", uid, rec.status, want, free)
		}
	}
}
