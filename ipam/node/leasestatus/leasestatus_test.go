package leasestatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const every = 30 * time.Second

// heard is what lease statuses say. out is what the next writes answer.
type heard struct {
	mu  sync.Mutex
	out protocol.Outcome
	all []string // guarded by mu; "lease used/free who answered"

	under func(lease string) // if it is set, what happens while a write of a round is under way
}

func (h *heard) PublishLease(_ context.Context, name string, uid protocol.UID, p protocol.Publication) (protocol.Outcome, error) {
	if h.under != nil && p.Answered == "" {
		h.under(name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.out != protocol.Done {
		return h.out, errors.New("refused")
	}
	h.all = append(h.all, strings.TrimSpace(fmt.Sprintf("%s %s %d/%d %v %s", name, uid, p.Used, p.Free, p.Allocations, p.Answered)))
	return protocol.Done, nil
}

// said returns what was said since it was asked last, sorted.
func (h *heard) said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all
	h.all = nil
	slices.Sort(all)
	return all
}

// world is a publisher on a store, and a clock.
type world struct {
	t       *testing.T
	st      *store.Store
	shape   *allocator.Shape
	p       *Publisher
	heard   *heard
	doubted []string
	now     time.Duration
	term    int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/20"}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, st: st, shape: shape, heard: &heard{out: protocol.Done}, term: 3}
	var mu sync.Mutex
	w.p = New(Config{
		Store: st, Leases: w.heard, Sched: sched.Goroutines(w), Every: every, Log: slog.New(slog.DiscardHandler),
		Term: func() int64 { return w.term },
		Doubt: func(lease string) {
			mu.Lock()
			defer mu.Unlock()
			w.doubted = append(w.doubted, lease)
		},
	})
	return w
}

func (w *world) update(fn func(tx *store.Tx) error) {
	w.t.Helper()
	if err := w.st.Update(w.t.Context(), fn); err != nil {
		w.t.Fatal(err)
	}
}

// hold has the node hold a lease of a block, and returns its name.
func (w *world) hold(block string) string {
	w.t.Helper()
	r := protocol.Right{
		Kind: protocol.RightLease, Phase: protocol.Held, LeaseRight: protocol.LeaseRight{Pool: "lan", Block: netip.MustParsePrefix(block)}, UID: protocol.UID("u" + block), Term: 3,
	}
	r.Name = protocol.LeaseName(r.Pool, r.Block)
	w.update(func(tx *store.Tx) error {
		return errors.Join(allocator.NewSpace(tx.Table("lan"), w.shape).Open(r.Block), tx.PutRight(r))
	})
	return r.Name
}

// give has a pod have an address of a lease.
func (w *world) give(lease, addr string, pod protocol.PodRef) {
	w.t.Helper()
	a := netip.MustParseAddr(addr)
	w.update(func(tx *store.Tx) error {
		return errors.Join(allocator.NewSpace(tx.Table("lan"), w.shape).Take(a), tx.PutAttachment(store.Attachment{
			Key: store.Key{Network: "lan", ContainerID: "c-" + addr, IfName: "net1"}, Pod: pod,
			Addresses: []store.Address{{Addr: a, Bits: 24, Pool: "lan", Lease: lease}},
		}))
	})
}

// Now implements [sched.Clock].
func (w *world) Now() protocol.Instant {
	return protocol.Instant{Boot: w.now, Wall: time.Unix(0, 0).Add(w.now)}
}

// After implements [sched.Clock].
func (*world) After(time.Duration) <-chan time.Time { return nil }

// round has the publisher tell of its leases, and wants to have heard that.
func (w *world) round(when string, want ...string) {
	w.t.Helper()
	w.p.Round(w.t.Context())
	if got := w.heard.said(); !slices.Equal(got, want) {
		w.t.Errorf("%s: said %q; want %q", when, got, want)
	}
}

// TestRound: a lease is told of when it is new and rests, and when what it has has
// changed, but not too often; one of an earlier term is not.
func TestRound(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("10.0.2.0/30")
	w.round("a new lease")
	w.round("that rests", lease+" u10.0.2.0/30 0/4 []")
	w.round("nothing new")
	w.give(lease, "10.0.2.2", protocol.PodRef{})
	w.give(lease, "10.0.2.1", protocol.PodRef{Namespace: "ns", Name: "p"})
	w.round("a moment later")
	w.now += every
	w.round("later", lease+" u10.0.2.0/30 2/2 [10.0.2.1 ns/p net1 10.0.2.2 c-10.0.2.2 net1]")
	w.now += every
	w.round("nothing new since")
	w.term = 4
	w.p.Round(t.Context())
	if got := w.heard.said(); len(got) > 0 {
		t.Errorf("in a new term: said %q; want nothing", got)
	}
	w.term = 3
	w.round("in its own term again")
	w.round("and at rest", lease+" u10.0.2.0/30 2/2 [10.0.2.1 ns/p net1 10.0.2.2 c-10.0.2.2 net1]")
}

// TestRoundWhileItFills: a new lease that is different in each round is told of when it
// rests, or as late as others.
func TestRoundWhileItFills(t *testing.T) {
	w := newWorld(t)
	first, second := w.hold("10.0.2.0/30"), w.hold("10.0.3.0/30")
	w.round("new")
	w.give(first, "10.0.2.1", protocol.PodRef{})
	w.give(second, "10.0.3.1", protocol.PodRef{})
	w.round("both are filled")
	w.give(second, "10.0.3.2", protocol.PodRef{})
	w.round("one is still filled", first+" u10.0.2.0/30 1/3 [10.0.2.1 c-10.0.2.1 net1]")
	w.now += every
	w.give(second, "10.0.3.3", protocol.PodRef{})
	w.round("and does not end", second+" u10.0.3.0/30 3/1 [10.0.3.1 c-10.0.3.1 net1 10.0.3.2 c-10.0.3.2 net1 10.0.3.3 c-10.0.3.3 net1]")
}

// TestRoundIsBounded: of many leases a few are told of at a time, those first that have
// waited longest.
func TestRoundIsBounded(t *testing.T) {
	w := newWorld(t)
	old := w.hold("10.0.1.0/30")
	w.round("at first")
	w.now += time.Second
	for i := range 2 * batch {
		w.hold(fmt.Sprintf("10.0.2.%d/30", 4*i))
	}
	w.heard.out = protocol.Unknown
	w.round("without an answer")
	w.heard.out = protocol.Done
	for round, want := range []int{batch, batch, 1, 0} {
		w.p.Round(t.Context())
		got := w.heard.said()
		if len(got) != want {
			t.Errorf("round %d: %d are told of; want %d", round, len(got), want)
		}
		if round == 0 && !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, old+" ") }) {
			t.Errorf("the first %d are %q; want the lease that has waited longest among them", batch, got)
		}
	}
}

// TestFailedWrite: what was not written is written in the next round; a lease that is
// gone, or another's, is rechecked.
func TestFailedWrite(t *testing.T) {
	for out, doubted := range map[protocol.Outcome]bool{protocol.NotFound: true, protocol.Conflict: true, protocol.Unknown: false, protocol.Refused: false} {
		t.Run(out.String(), func(t *testing.T) {
			w := newWorld(t)
			lease := w.hold("10.0.2.0/30")
			w.heard.out = out
			w.round("that is new")
			w.round("that fails")
			if got := slices.Equal(w.doubted, []string{lease}); got != doubted {
				t.Errorf("doubted %q; want it %v", w.doubted, doubted)
			}
			w.heard.out = protocol.Done
			w.round("again", lease+" u10.0.2.0/30 0/4 []")
		})
	}
}

// TestAnswer: a recall is answered at once, whatever was told when; of a lease that the
// node does not hold it is not.
func TestAnswer(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("10.0.2.0/30")
	w.round("a new lease")
	w.round("that rests", lease+" u10.0.2.0/30 0/4 []")
	if !w.p.Answer(t.Context(), lease, "r1") {
		t.Error("a recall of a lease of the node's is not answered")
	}
	if got := w.heard.said(); !slices.Equal(got, []string{lease + " u10.0.2.0/30 0/4 [] r1"}) {
		t.Errorf("said %q; want the answer", got)
	}
	if w.p.Answer(t.Context(), "lan.0a000210.30", "r2") {
		t.Error("a recall of another's lease is answered")
	}
	w.heard.out = protocol.Unknown
	if w.p.Answer(t.Context(), lease, "r3") {
		t.Error("a recall is taken for answered, whose answer was not written")
	}
}

// TestNewestIsWrittenLast: while a round writes, a lease gets an address and a recall of it is
// answered. Whatever the status says last has that address: neither the write of the round that
// was under way then comes after the answer, nor does the round write later what it had read
// before.
func TestNewestIsWrittenLast(t *testing.T) {
	for _, tt := range []struct{ name, blocks, during string }{
		{"the write of this lease is under way", "10.0.2.0/30", "10.0.2.0/30"},
		{"this lease is to be written after the others", "10.0.1.0/30 10.0.1.4/30 10.0.2.0/30", "10.0.1.0/30"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for block := range strings.FieldsSeq(tt.blocks) {
				w.hold(block)
			}
			lease := protocol.LeaseName("lan", netip.MustParsePrefix("10.0.2.0/30"))
			w.round("new leases")
			answered := make(chan bool, 1)
			var once sync.Once
			w.heard.under = func(other string) {
				if other == lease && tt.during != "10.0.2.0/30" {
					return
				}
				once.Do(func() {
					w.give(lease, "10.0.2.2", protocol.PodRef{Namespace: "ns", Name: "p"})
					go func() { answered <- w.p.Answer(t.Context(), lease, "r1") }()
					select { // the answer may have to wait for this write
					case ok := <-answered:
						answered <- ok
					case <-time.After(200 * time.Millisecond):
					}
				})
			}
			w.p.Round(t.Context())
			if !<-answered {
				t.Error("the recall is not answered")
			}
			all := slices.DeleteFunc(w.heard.all, func(s string) bool { return !strings.HasPrefix(s, lease+" ") })
			if last := all[len(all)-1]; !strings.Contains(last, " 1/3 [10.0.2.2 ns/p net1]") {
				t.Errorf("said %q; want the address of ns/p in the last of them", all)
			}
		})
	}
}
