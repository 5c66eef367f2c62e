package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// model is what a store must say: a map for each thing.
type model struct {
	contents
	counter uint64
}

func newModel() model {
	return model{contents: contents{map[string]Attachment{}, map[string]protocol.Right{}, Identity{}, map[protocol.PoolName]map[string]string{}}}
}

func (m model) clone() model {
	c := m
	c.Attachments, c.Rights, c.Tables = maps.Clone(m.Attachments), maps.Clone(m.Rights), map[protocol.PoolName]map[string]string{}
	for pool, table := range m.Tables {
		c.Tables[pool] = maps.Clone(table)
	}
	return c
}

// step makes one random change of both.
func (m *model) step(rng *rand.Rand, tx *Tx) error {
	switch rng.IntN(9) {
	case 0, 1, 2:
		a := claimed(rng.IntN(60))
		a.Pod.UID = protocol.UID([]string{"", "pod-1", "pod-2"}[rng.IntN(3)])
		a.Use = []string{"", "u.0", "u.1"}[rng.IntN(3)]
		a.Netns = string(make([]byte, rng.IntN(3000)))
		m.counter++
		m.Attachments[a.Key.String()] = func() Attachment { a := a; a.Generation = m.counter; return a }()
		return tx.PutAttachment(a)
	case 3, 4:
		k := claimed(rng.IntN(60)).Key
		delete(m.Attachments, k.String())
		return tx.DeleteAttachment(k)
	case 5:
		r := protocol.Right{Kind: protocol.RightUse, Name: fmt.Sprint("u.", rng.IntN(4)), Phase: protocol.Held, Term: rng.Int64()}
		m.Rights[r.Name] = r
		return tx.PutRight(r)
	case 6:
		name := fmt.Sprint("u.", rng.IntN(4))
		delete(m.Rights, name)
		return tx.DeleteRight(name)
	case 7:
		m.Identity.Term = rng.Int64()
		return tx.PutIdentity(m.Identity)
	default:
		pool, key := protocol.PoolName(fmt.Sprint("pool-", rng.IntN(3))), []byte{byte(rng.IntN(40) + 1)}
		if rng.IntN(3) == 0 {
			delete(m.Tables[pool], string(key))
			return tx.Table(pool).Delete(key)
		}
		if m.Tables[pool] == nil {
			m.Tables[pool] = map[string]string{}
		}
		m.Tables[pool][string(key)] = fmt.Sprint(rng.Uint64())
		return tx.Table(pool).Put(key, []byte(m.Tables[pool][string(key)]))
	}
}

// compare checks a store against the model, and its indexes against its
// attachments.
func (m model) compare(t *testing.T, what string, s *Store) {
	t.Helper()
	want := m.contents
	want.Identity.Store = s.ID()
	if d := diff(want, read(t, s)); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
	view(t, s, func(tx *Tx) error {
		for _, uid := range []protocol.UID{"pod-1", "pod-2"} {
			m.compareIndex(t, what, tx.OfPod(uid, ""), func(a Attachment) bool { return a.Pod.UID == uid })
		}
		for _, use := range []string{"u.0", "u.1"} {
			m.compareIndex(t, what, tx.OfUse(use), func(a Attachment) bool { return a.Use == use })
		}
		return nil
	})
}

func (m model) compareIndex(t *testing.T, what string, got func(func(Attachment, error) bool), in func(Attachment) bool) {
	t.Helper()
	var keys, want []string
	for a, err := range got {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		keys = append(keys, a.Key.String())
	}
	for key, a := range m.Attachments {
		if in(a) {
			want = append(want, key)
		}
	}
	slices.Sort(keys)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Fatalf("%s: the index has %q; want %q", what, keys, want)
	}
}

// A ground is where the stores of a test are: on bbolt's file, or in memory.
type ground struct {
	open func(t *testing.T) *Store
	// killed has a store that is open be left by its process, and another opened on what is there.
	killed func(t *testing.T, s *Store) *Store
}

// onFile returns the ground of a store that is a file.
func onFile(t *testing.T) ground {
	dir, n := t.TempDir(), 0
	path := filepath.Join(dir, "store.db")
	open := func(t *testing.T) *Store {
		s, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return ground{open, func(t *testing.T, s *Store) *Store {
		n++
		path = filepath.Join(dir, fmt.Sprint("store-", n))
		if err := errors.Join(os.WriteFile(path, load(t, s.Path()), 0o600), s.Close()); err != nil {
			t.Fatal(err)
		}
		return open(t)
	}}
}

// inMemory returns the ground of a store on the disk of a simulation, whose power is cut when the
// process is killed.
func inMemory(*testing.T) ground {
	d := &disk.Memory{}
	open := func(t *testing.T) *Store { return openOn(t, d) }
	return ground{open, func(t *testing.T, _ *Store) *Store {
		d.PowerCut(false)
		return open(t)
	}}
}

func openOn(t *testing.T, d *disk.Memory) *Store {
	t.Helper()
	s, err := OpenOn(d, "memory", "s-1", Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAgainstModel makes the same random changes to a store and to maps, with
// calls that fail, closings and crashes in between.
func TestAgainstModel(t *testing.T) {
	for name, at := range map[string]func(*testing.T) ground{"file": onFile, "memory": inMemory} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				againstModel(t, seed, at(t))
			}
		})
	}
}

func againstModel(t *testing.T, seed uint64, at ground) {
	boom := errors.New("boom")
	rng := rand.New(rand.NewPCG(seed, 0))
	s, m := at.open(t), newModel()
	for call := range 60 {
		what := fmt.Sprintf("seed %d call %d", seed, call)
		next, fails := m.clone(), rng.IntN(4) == 0
		err := s.Update(t.Context(), func(tx *Tx) error {
			for range rng.IntN(12) {
				if err := next.step(rng, tx); err != nil {
					return err
				}
			}
			if fails {
				return boom
			}
			return nil
		})
		if fails != (err != nil) || err != nil && err != boom {
			t.Fatalf("%s: Update = %v", what, err)
		}
		if !fails {
			m = next
		}
		switch rng.IntN(8) {
		case 0: // closed and opened
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = at.open(t)
		case 1:
			s = at.killed(t, s)
		}
		m.compare(t, what, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPowerCut has the power fail while a commit syncs: what was answered before is there, and
// the commit is wholly there or not at all. Until then nothing is answered from it.
func TestPowerCut(t *testing.T) {
	cut := errors.New("the power fails")
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		d := &disk.Memory{}
		s, m := openOn(t, d), newModel()
		for call := range 40 {
			what := fmt.Sprintf("seed %d call %d", seed, call)
			next, fails, kept := m.clone(), rng.IntN(4) == 0, rng.IntN(2) == 0
			d.Sync = func() error {
				if fails {
					return cut
				}
				return nil
			}
			err := s.Update(t.Context(), func(tx *Tx) error {
				tx.Next() // so that there is a commit
				next.counter++
				for range rng.IntN(12) {
					if err := next.step(rng, tx); err != nil {
						return err
					}
				}
				return nil
			})
			if fails != errors.Is(err, cut) {
				t.Fatalf("%s: Update = %v", what, err)
			}
			if fails {
				if err := s.View(func(*Tx) error { return nil }); err == nil {
					t.Fatalf("%s: a View answers what is not on the disk", what)
				}
				d.PowerCut(kept)
				s = openOn(t, d)
			}
			if !fails || kept {
				m = next
			}
			m.compare(t, what, s)
		}
	}
}

// TestConcurrentModel makes changes from many goroutines, each of attachments of
// its own network, with readers beside them.
func TestConcurrentModel(t *testing.T) {
	s := newStore(t, Options{})
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.View(func(tx *Tx) error {
					sum := 0
					for a, err := range tx.Attachments() {
						if err != nil {
							return err
						}
						sum += a.Addresses[0].Bits
					}
					if sum != 0 { // every call adds as much as it takes away
						return fmt.Errorf("a View sees half a change: %d", sum)
					}
					return nil
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	want := make([]map[int]int, 12)
	for c := range want {
		want[c] = map[int]int{}
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 9))
			put := func(tx *Tx, n, bits int) error {
				a := claimed(c*1000 + n)
				a.Network, a.Addresses[0].Bits = fmt.Sprint("net-", c), bits
				return tx.PutAttachment(a)
			}
			for range 60 {
				n, bits := rng.IntN(20)*2, rng.IntN(100)
				fails := rng.IntN(5) == 0
				err := s.Update(t.Context(), func(tx *Tx) error {
					if err := errors.Join(put(tx, n, bits), put(tx, n+1, -bits)); err != nil || !fails {
						return err
					}
					return errors.New("boom")
				})
				if (err != nil) != fails {
					t.Error(err)
				}
				if !fails {
					want[c][n], want[c][n+1] = bits, -bits
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	for c := range want {
		got := map[int]int{}
		view(t, s, func(tx *Tx) error {
			for a, err := range tx.OfNetwork(fmt.Sprint("net-", c)) {
				if err != nil {
					return err
				}
				var n int
				if _, err := fmt.Sscanf(a.ContainerID, "%x", &n); err != nil {
					return err
				}
				got[n-c*1000] = a.Addresses[0].Bits
			}
			return nil
		})
		if !maps.Equal(got, want[c]) {
			t.Errorf("network %d: %v; want %v", c, got, want[c])
		}
	}
}
