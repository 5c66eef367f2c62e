package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// place is where a test keeps a store, its witness, and who serves from it.
type place struct {
	dir, path, witness string
	conf               agent.Config
}

func newPlace(t *testing.T) place {
	dir := t.TempDir()
	conf := agent.DefaultConfig("a")
	conf.Machine, conf.Boot = "m", "b1"
	return place{dir: dir, path: filepath.Join(dir, "lib", "store.db"), witness: filepath.Join(dir, "agent.sock.witness"), conf: conf}
}

func (p place) open(t *testing.T) *store.Store {
	t.Helper()
	st, err := openStore(t.Context(), p.path, store.Options{Witness: store.WitnessFile(p.witness)}, p.conf, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// serve opens the store, has it serve as p.conf says, and closes it.
func (p place) serve(t *testing.T) protocol.StoreID {
	t.Helper()
	st := p.open(t)
	err := st.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutIdentity(store.Identity{Node: "a", Machine: p.conf.Machine, Boot: p.conf.Boot, Term: 1, BeatSentWall: time.Now()})
	})
	if err := errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	return st.ID()
}

func (p place) asides(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(p.path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if isAside(e.Name(), filepath.Base(p.path)) {
			names = append(names, e.Name())
		}
	}
	return names
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoreSetAside: a store that is not provably the latest never serves again.
func TestStoreSetAside(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *place)
		reason string // empty: the store goes on
	}{
		{name: "nothing has happened", change: func(*testing.T, *place) {}},
		{
			name: "put back to an earlier state", reason: asideOlder,
			change: func(t *testing.T, p *place) {
				copyFile(t, p.path, p.path+"~")
				p.serve(t)
				copyFile(t, p.path+"~", p.path)
			},
		},
		{
			name: "damaged", reason: asideDamaged,
			change: func(t *testing.T, p *place) {
				if err := os.WriteFile(p.path, []byte("not a store"), 0o600); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "the witness is missing in the same boot", reason: asideUnwitnessed,
			change: func(t *testing.T, p *place) {
				if err := os.Remove(p.witness); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "another boot, which has no witness",
			change: func(t *testing.T, p *place) {
				p.conf.Boot = "b2"
				if err := os.Remove(p.witness); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "a disk from another machine", reason: asideForeign,
			change: func(t *testing.T, p *place) {
				p.conf.Boot, p.conf.Machine = "b2", "n"
				if err := os.Remove(p.witness); err != nil {
					t.Fatal(err)
				}
			},
		},
		{name: "the machine is called otherwise, and the witness agrees", change: func(_ *testing.T, p *place) { p.conf.Machine = "n" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			was := p.serve(t)
			tt.change(t, &p)
			is := p.serve(t)
			asides := p.asides(t)
			if tt.reason == "" {
				if is != was || len(asides) > 0 {
					t.Errorf("store %s became %s, with %v set aside; want it to go on", was, is, asides)
				}
				return
			}
			if is == was || len(asides) != 1 || !strings.HasSuffix(asides[0], "-"+tt.reason) {
				t.Errorf("store %s became %s, with %v set aside; want one for being %s, and a new store", was, is, asides, tt.reason)
			}
			if again := p.serve(t); again != is {
				t.Errorf("the new store %s became %s", is, again)
			}
		})
	}
}

func TestSetAsideKeepsTheLatest(t *testing.T) {
	p := newPlace(t)
	now := time.Now()
	var want []string
	for i := range asideKept + 3 {
		p.serve(t)
		if err := os.WriteFile(store.RedoPath(p.path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		aside, err := setAside(p.path, asideDamaged, now.Add(time.Duration(i)*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if want = append(want, filepath.Base(aside)); len(want) > asideKept {
			want = want[1:]
		}
	}
	if got := p.asides(t); !slices.Equal(got, want) {
		t.Errorf("%v are kept; want %v", got, want)
	}
	logs, err := filepath.Glob(store.RedoPath(filepath.Join(p.dir, "lib", "store.db.*")))
	if err != nil || len(logs) != asideKept {
		t.Errorf("%v are kept of redo logs, %v; want those of the stores", logs, err)
	}
}

func TestStoreUnusable(t *testing.T) {
	p := newPlace(t)
	p.path = filepath.Join(p.dir, "file", "store.db")
	if err := os.WriteFile(filepath.Join(p.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openStore(t.Context(), p.path, store.Options{Witness: store.WitnessFile(p.witness)}, p.conf, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "make the store's directory") {
		t.Errorf("got %v; want an error about the directory", err)
	}
}
