package assign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// model is what the store should hold, and too simple to be wrong.
type model struct {
	free map[netip.Addr]bool // every address that may be given; false: held
	held map[store.Key]modelled
}

type modelled struct {
	pod        protocol.UID
	netns      string
	generation uint64
	addrs      []netip.Addr
}

func newModel(s *allocator.Shape) *model {
	m := &model{free: map[netip.Addr]bool{}, held: map[store.Key]modelled{}}
	for _, r := range s.Ranges() {
		for a := r.Start; a.IsValid() && !r.End.Less(a); a = a.Next() {
			if s.Ordinary(a) {
				m.free[a] = true
			}
		}
	}
	return m
}

func (m *model) release(k store.Key) {
	for _, a := range m.held[k].addrs {
		m.free[a] = true
	}
	delete(m.held, k)
}

// predecessor is whose addresses an ADD of a inherits.
func (m *model) predecessor(a Demand) (k store.Key, ok bool) {
	var latest uint64
	for other, h := range m.held {
		same := a.Pod.UID != "" && h.pod == a.Pod.UID && other.IfName == a.Key.IfName && other.Network == a.Key.Network
		if same && other != a.Key && h.generation > latest && a.Gone(store.Attachment{Netns: h.netns}) {
			k, latest, ok = other, h.generation, true
		}
	}
	return k, ok
}

// hold says what Hold must do with a: the error's kind, "" for none, and which
// addresses it may answer, per slot.
func (m *model) hold(a Demand) (kind string, choices [][]netip.Addr) {
	if h, ok := m.held[a.Key]; ok {
		if h.pod == a.Pod.UID || h.pod == "" || a.Pod.UID == "" {
			for _, s := range a.Slots {
				if s.Exact.IsValid() && !slices.Contains(h.addrs, s.Exact) {
					return "conflict", nil
				}
			}
			for _, x := range h.addrs {
				choices = append(choices, []netip.Addr{x})
			}
			return "", choices
		}
		if !a.Gone(store.Attachment{Netns: h.netns}) {
			return "conflict", nil
		}
		m.release(a.Key)
	}
	var own []netip.Addr
	if old, ok := m.predecessor(a); ok {
		own = m.held[old].addrs
	}
	var sure []netip.Addr // addresses that earlier slots are known to get
	for _, s := range a.Slots {
		c, kind := m.choices(s, own, sure)
		if kind != "" {
			return kind, nil
		}
		if len(c) == 1 {
			sure = append(sure, c[0])
		}
		choices = append(choices, c)
	}
	return "", choices
}

func (m *model) choices(s Slot, own, sure []netip.Addr) (c []netip.Addr, kind string) {
	if s.Exact.IsValid() {
		switch free, known := m.free[s.Exact]; {
		case !known || slices.Contains(sure, s.Exact):
			return nil, "unassignable"
		case !free && !slices.Contains(own, s.Exact):
			return nil, "taken"
		}
		return []netip.Addr{s.Exact}, ""
	}
	for _, x := range own {
		if allocator.FamilyOf(x) == s.Family && !slices.Contains(sure, x) {
			return []netip.Addr{x}, ""
		}
	}
	for x, free := range m.free {
		if free && allocator.FamilyOf(x) == s.Family && !slices.Contains(sure, x) {
			c = append(c, x)
		}
	}
	if len(c) == 0 {
		return nil, "no room"
	}
	return c, ""
}

func kindOf(err error) string {
	switch {
	case err == nil:
		return ""
	case is[*NoRoomError](err):
		return "no room"
	case is[*TakenError](err):
		return "taken"
	case is[*UnassignableError](err):
		return "unassignable"
	case is[*ConflictError](err):
		return "conflict"
	default:
		return err.Error()
	}
}

// randomDemand makes an ADD in a small world, so that everything collides.
func randomDemand(rng *rand.Rand, p pool, gone map[string]bool) Demand {
	container := fmt.Sprintf("c%d", rng.IntN(8))
	a := demand(container)
	a.Key.IfName = fmt.Sprintf("net%d", 1+rng.IntN(2))
	a.Pod.UID = protocol.UID([]string{"", "u1", "u2", "u3"}[rng.IntN(4)])
	a.Netns = fmt.Sprintf("/run/netns/%s-%d", container, rng.IntN(2))
	a.NetnsID = "4:" + a.Netns
	delete(gone, a.Netns) // a runtime makes the namespace before the ADD
	a.Gone = func(x store.Attachment) bool { return gone[x.Netns] }
	exact := func() Slot {
		return p.exact([]string{"10.0.0.3", "10.0.0.6", "10.0.0.1", "fd00::5"}[rng.IntN(4)])
	}
	switch rng.IntN(6) {
	case 0:
		a.Slots = []Slot{p.any(allocator.IPv6)}
	case 1:
		a.Slots = []Slot{exact()}
	case 2:
		a.Slots = []Slot{exact(), p.any(allocator.IPv6)}
	case 3:
		a.Slots = []Slot{p.any(allocator.IPv4)}
	default:
		a.Slots = []Slot{p.any(allocator.IPv4), p.any(allocator.IPv6)}
	}
	return a
}

// TestAgainstModel drives the store and a map with the same random calls. The
// store's own consistency is checked as it goes.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 1))
		st := openStore(t)
		p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
		m := newModel(p.shape)
		gone := map[string]bool{}
		for op := range 200 {
			where := fmt.Sprintf("seed %d op %d", seed, op)
			switch rng.IntN(6) {
			case 0:
				modelRelease(t, st, m, rng, where)
			case 1:
				for _, h := range m.held {
					gone[h.netns] = rng.IntN(2) == 0
				}
			default:
				modelHold(t, st, m, randomDemand(rng, p, gone), where)
			}
			if op%20 == 0 {
				if err := st.Check(); err != nil {
					t.Fatalf("%s: %v", where, err)
				}
			}
		}
	}
}

func modelRelease(t *testing.T, st *store.Store, m *model, rng *rand.Rand, where string) {
	t.Helper()
	k := key(fmt.Sprintf("c%d", rng.IntN(8)), fmt.Sprintf("net%d", 1+rng.IntN(2)))
	h, known := m.held[k]
	generation := uint64(0)
	if rng.IntN(2) == 0 {
		generation = h.generation - uint64(rng.IntN(2)) // right, or late
	}
	want := known && (generation == 0 || generation == h.generation)
	var ok bool
	update(t, st, func(tx *store.Tx) (err error) {
		_, ok, err = ReleaseIf(tx, k, generation)
		return err
	})
	if ok != want {
		t.Fatalf("%s: release %s, generation %d: %v; want %v", where, k, generation, ok, want)
	}
	if ok {
		m.release(k)
	}
}

func modelHold(t *testing.T, st *store.Store, m *model, a Demand, where string) {
	t.Helper()
	// A failed Hold leaves a store that is as it was, whether or not its
	// transaction is rolled back; releasing what is gone for good is no part
	// of that, so the model may have released it.
	before := m.clone()
	kind, choices := m.hold(a)
	var got store.Attachment
	var holdErr error
	err := st.Update(context.Background(), func(tx *store.Tx) error {
		got, holdErr = Hold(tx, a)
		return holdErr
	})
	if !errors.Is(err, holdErr) || kindOf(holdErr) != kind {
		t.Fatalf("%s: hold %s: %v (commit: %v); want %q", where, a.Key, holdErr, err, kind)
	}
	if kind != "" {
		*m = *before
		return
	}
	old, takesOver := store.Key{}, false
	if _, again := m.held[a.Key]; !again {
		old, takesOver = m.predecessor(a)
	}
	if takesOver {
		m.release(old)
	}
	h := modelled{pod: got.Pod.UID, netns: a.Netns, generation: got.Generation}
	if len(got.Addresses) != len(choices) {
		t.Fatalf("%s: hold %s: %s; want %d addresses", where, a.Key, addrs(got), len(choices))
	}
	for i, x := range got.Addresses {
		if !slices.Contains(choices[i], x.Addr) || slices.Contains(h.addrs, x.Addr) {
			t.Fatalf("%s: hold %s: %s; want one of %v in place %d", where, a.Key, addrs(got), choices[i], i)
		}
		h.addrs = append(h.addrs, x.Addr)
		m.free[x.Addr] = false
	}
	m.held[a.Key] = h
}

func (m *model) clone() *model {
	return &model{free: maps.Clone(m.free), held: maps.Clone(m.held)}
}
