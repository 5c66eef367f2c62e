package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// newStore returns a new store that must still be sound when the test ends.
func newStore(t testing.TB, o Options) *Store {
	t.Helper()
	return reopen(t, filepath.Join(t.TempDir(), "node", "store.db"), o)
}

// reopen opens the store at path, which must be sound when the test ends.
func reopen(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Check(); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("store inconsistent after the test: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func update(t testing.TB, s *Store, fn func(*Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatalf("update: %v", err)
	}
}

func view(t testing.TB, s *Store, fn func(*Tx) error) {
	t.Helper()
	if err := s.View(fn); err != nil {
		t.Fatalf("view: %v", err)
	}
}

// claimed returns attachment n of a pod, with an address of a claim: it is
// sound without a pool's table or a right.
func claimed(n int) Attachment {
	a := sampleAttachment(n)
	a.Claim = &protocol.ClaimRef{Namespace: "default", Name: fmt.Sprint("claim-", n), UID: protocol.UID(fmt.Sprint("claim-uid-", n))}
	a.Addresses[0].Lease = ""
	return a
}

// contents is everything that a store says.
type contents struct {
	Attachments map[string]Attachment
	Rights      map[string]protocol.Right
	Identity    Identity
	Tables      map[protocol.PoolName]map[string]string
}

func read(t testing.TB, s *Store) contents {
	t.Helper()
	c, err := tryRead(s)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return c
}

func tryRead(s *Store) (contents, error) {
	c := contents{map[string]Attachment{}, map[string]protocol.Right{}, Identity{}, map[protocol.PoolName]map[string]string{}}
	err := s.View(func(tx *Tx) (err error) {
		for a, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			c.Attachments[a.Key.String()] = a
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			c.Rights[r.Name] = r
		}
		for _, pool := range tx.Pools() {
			c.Tables[pool] = map[string]string{}
			table := tx.Table(pool)
			for k, v := table.Seek(nil); k != nil; k, v = table.Seek(append(slices.Clone(k), 0)) {
				c.Tables[pool][string(k)] = string(v)
			}
		}
		c.Identity, err = tx.Identity()
		return err
	})
	return c, err
}

func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

func TestReopenKeepsEverything(t *testing.T) {
	s := newStore(t, Options{})
	a, b := claimed(1), claimed(2)
	b.Pod = protocol.PodRef{}
	right := protocol.Right{Kind: protocol.RightLease, Name: "p.0a000000.26", Phase: protocol.Held, Term: 7, LeaseRight: protocol.LeaseRight{Pool: "p", Block: netip.MustParsePrefix("10.0.0.0/26")}, NotedAt: time.Unix(5, 6).UTC()}
	id := Identity{Node: "n1", Machine: "m", Boot: "b", Term: 3, BeatSentWall: time.Unix(1, 2).UTC(), BeatSentBoot: time.Second, Fence: time.Minute}
	update(t, s, func(tx *Tx) error {
		return errors.Join(tx.PutAttachment(a), tx.PutAttachment(b), tx.PutRight(right), tx.PutIdentity(id), tx.PutPool("p", []byte("text")))
	})
	id.Store = s.ID()
	a.Generation, b.Generation = 1, 2
	want := contents{map[string]Attachment{a.Key.String(): a, b.Key.String(): b}, map[string]protocol.Right{right.Name: right}, id, nil}
	if d := diff(want, read(t, s)); d != "" {
		t.Errorf("before closing (-want +got):\n%s", d)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, s.Path(), Options{})
	if d := diff(want, read(t, again)); d != "" {
		t.Errorf("after opening again (-want +got):\n%s", d)
	}
	if again.ID() != s.ID() {
		t.Errorf("ID = %s; want %s", again.ID(), s.ID())
	}
	view(t, again, func(tx *Tx) error {
		if text, ok, err := tx.Pool("p"); string(text) != "text" || !ok || err != nil {
			t.Errorf("Pool = %q, %v, %v; want text", text, ok, err)
		}
		return nil
	})
	update(t, again, func(tx *Tx) error {
		if n := tx.Next(); n != 3 {
			t.Errorf("Next = %d; want 3", n)
		}
		return nil
	})
}

func TestFailedUpdateLeavesNothing(t *testing.T) {
	s := newStore(t, Options{})
	keep := claimed(1)
	update(t, s, func(tx *Tx) error {
		return errors.Join(tx.PutAttachment(keep), tx.Table("p").Put([]byte("k"), []byte("v")), tx.Table("p").Delete([]byte("k")))
	})
	want := read(t, s)
	change := func(tx *Tx) {
		_ = tx.PutAttachment(claimed(2))
		_ = tx.DeleteAttachment(keep.Key)
		_ = tx.PutRight(protocol.Right{Kind: protocol.RightUse, Name: "x.0", Phase: protocol.Noted})
		_ = tx.PutIdentity(Identity{Node: "other"})
		_ = tx.Table("p").Put([]byte("k"), []byte("w"))
		_ = tx.Table("p").Put([]byte("k"), []byte("x"))
		_ = tx.Table("new").Put([]byte("k"), []byte("w"))
		tx.Next()
	}
	boom := errors.New("boom")
	ends := map[string]struct {
		fn   func(*Tx) error
		want error
	}{
		"error":           {func(tx *Tx) error { change(tx); return boom }, boom},
		"invalid write":   {func(tx *Tx) error { change(tx); _ = tx.PutAttachment(Attachment{}); return nil }, nil},
		"bbolt's refusal": {func(tx *Tx) error { change(tx); _ = tx.Table("p").Put(nil, nil); return nil }, nil},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			err := s.Update(t.Context(), end.fn)
			if err == nil || end.want != nil && !errors.Is(err, end.want) {
				t.Errorf("Update = %v; want an error, %v", err, end.want)
			}
			if end.want == boom && err != boom {
				t.Errorf("Update wraps the function's own error: %v", err)
			}
			if d := diff(want, read(t, s)); d != "" {
				t.Errorf("it left something (-want +got):\n%s", d)
			}
		})
	}
	t.Run("goexit", func(t *testing.T) {
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Update(t.Context(), func(tx *Tx) error { change(tx); runtime.Goexit(); return nil }) })
		wg.Wait()
		if d := diff(want, read(t, s)); d != "" {
			t.Errorf("it left something (-want +got):\n%s", d)
		}
	})
	t.Run("panic", func(t *testing.T) {
		defer func() {
			p, ok := recover().(*Panic)
			if !ok || p.Value != "boom" || !strings.Contains(p.Error(), "TestFailedUpdateLeavesNothing") {
				t.Errorf("Update panics with %v; want boom and the stack of the function", p)
			}
			if d := diff(want, read(t, s)); d != "" {
				t.Errorf("it left something (-want +got):\n%s", d)
			}
		}()
		_ = s.Update(t.Context(), func(tx *Tx) error { change(tx); panic("boom") })
	})
	update(t, s, func(tx *Tx) error {
		if n := tx.Next(); n != 2 {
			t.Errorf("Next after failures = %d; want 2", n)
		}
		return nil
	})
}

// TestNeighboursOfFailures runs calls that fail in every way beside others that
// must not notice.
func TestNeighboursOfFailures(t *testing.T) {
	s := newStore(t, Options{})
	boom := errors.New("boom")
	const callers, each = 16, 40
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				n := c*each + i
				err := func() (err error) {
					defer func() {
						if p := recover(); p != nil {
							err = boom
						}
					}()
					return s.Update(t.Context(), func(tx *Tx) error {
						if err := tx.PutAttachment(claimed(n)); err != nil {
							return err
						}
						switch n % 5 {
						case 1:
							return boom
						case 2:
							panic(boom)
						}
						return nil
					})
				}()
				if wantErr := n%5 == 1 || n%5 == 2; (err != nil) != wantErr {
					t.Errorf("call %d: %v; want an error: %v", n, err, wantErr)
				}
			}
		})
	}
	wg.Wait()
	got := read(t, s)
	for n := range callers * each {
		_, ok := got.Attachments[claimed(n).Key.String()]
		if want := n%5 != 1 && n%5 != 2; ok != want {
			t.Errorf("attachment %d: recorded = %v; want %v", n, ok, want)
		}
	}
}

func TestUpdateWithdrawn(t *testing.T) {
	s := newStore(t, Options{})
	cause := errors.New("the client is gone")
	running, release := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	ctx1, cancel1 := context.WithCancelCause(t.Context())
	go func() {
		first <- s.Update(ctx1, func(tx *Tx) error {
			close(running)
			<-release
			return tx.PutAttachment(claimed(1))
		})
	}()
	<-running
	cancel1(cause) // too late: the function runs

	ctx2, cancel2 := context.WithCancelCause(t.Context())
	second := make(chan error)
	go func() {
		second <- s.Update(ctx2, func(*Tx) error { t.Error("the function ran after its caller had gone"); return nil })
	}()
	cancel2(cause)
	if err := <-second; err != cause {
		t.Errorf("Update = %v; want %v", err, cause)
	}
	close(release)
	if err := <-first; err != nil {
		t.Errorf("Update = %v; want nil: its function had started", err)
	}
	if err := s.Update(ctx2, func(*Tx) error { t.Error("ran"); return nil }); err != cause {
		t.Errorf("Update = %v; want %v", err, cause)
	}
}

func TestUpdateWithoutChangeWritesNothing(t *testing.T) {
	s := newStore(t, Options{})
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	commits := func() (n uint64) {
		view(t, s, func(tx *Tx) error { n = tx.st.commit; return nil })
		return n
	}
	before := commits()
	same := claimed(1)
	same.Generation = 1
	update(t, s, func(tx *Tx) error {
		_, _, err := tx.Attachment(claimed(1).Key)
		return errors.Join(err, tx.PutAttachment(same), tx.DeleteRight("none"), tx.Table("none").Delete([]byte("k")))
	})
	if n := commits(); n != before {
		t.Errorf("%d commits for a call that changed nothing", n-before)
	}
}

func TestViewWritesNothing(t *testing.T) {
	s := newStore(t, Options{})
	writes := map[string]func(*Tx) error{
		"attachment": func(tx *Tx) error { return tx.PutAttachment(claimed(1)) },
		"right": func(tx *Tx) error {
			return tx.PutRight(protocol.Right{Kind: protocol.RightUse, Name: "x", Phase: protocol.Held})
		},
		"table":    func(tx *Tx) error { return tx.Table("p").Put([]byte("k"), nil) },
		"identity": func(tx *Tx) error { return tx.PutIdentity(Identity{}) },
		"next":     func(tx *Tx) error { tx.Next(); return nil },
	}
	for name, fn := range writes {
		if err := s.View(fn); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s in a View: %v; want ErrReadOnly", name, err)
		}
	}
}

func TestClosed(t *testing.T) {
	s := newStore(t, Options{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	calls := map[string]error{
		"Update": s.Update(t.Context(), func(*Tx) error { return nil }),
		"View":   s.View(func(*Tx) error { return nil }),
		"Check":  s.Check(),
	}
	for name, err := range calls {
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), s.Path()) {
			t.Errorf("%s after Close = %v; want ErrClosed with the path", name, err)
		}
	}
}

// TestIteration deletes and adds while it iterates.
func TestIteration(t *testing.T) {
	s := newStore(t, Options{})
	update(t, s, func(tx *Tx) error {
		for n := range 500 {
			a := claimed(n)
			a.Network = fmt.Sprint("net", n%3)
			a.Pod.UID = protocol.UID(fmt.Sprint("pod", n%5))
			a.IfName = fmt.Sprint("net", n%2)
			a.Use = fmt.Sprint("use", n%7)
			if err := tx.PutAttachment(a); err != nil {
				return err
			}
		}
		return nil
	})
	count := func(seq func(func(Attachment, error) bool)) (n int) {
		for a, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			_ = a
			n++
		}
		return n
	}
	noUses := func(tx *Tx) error { // the uses have no rights, which Check would tell
		for a, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			a.Use = ""
			if err := tx.PutAttachment(a); err != nil {
				return err
			}
		}
		return nil
	}
	view(t, s, func(tx *Tx) error {
		got := map[string]int{
			"all": count(tx.Attachments()), "net1": count(tx.OfNetwork("net1")), "net": count(tx.OfNetwork("net")),
			"pod3": count(tx.OfPod("pod3", "")), "pod3 net1": count(tx.OfPod("pod3", "net1")), "pod": count(tx.OfPod("pod", "")),
			"use6": count(tx.OfUse("use6")),
		}
		want := map[string]int{"all": 500, "net1": 167, "net": 0, "pod3": 100, "pod3 net1": 50, "pod": 0, "use6": 71}
		if !maps.Equal(got, want) {
			t.Errorf("counts = %v; want %v", got, want)
		}
		return nil
	})
	update(t, s, func(tx *Tx) error {
		seen := 0
		for a, err := range tx.OfNetwork("net1") {
			if err != nil {
				return err
			}
			if seen++; seen%2 == 0 {
				if err := tx.DeleteAttachment(a.Key); err != nil {
					return err
				}
			}
			later := claimed(1000 + seen)
			later.Network = "net2"
			if err := tx.PutAttachment(later); err != nil {
				return err
			}
		}
		if seen != 167 {
			t.Errorf("the loop saw %d attachments; want 167", seen)
		}
		return noUses(tx)
	})
	view(t, s, func(tx *Tx) error {
		if got := count(tx.OfNetwork("net1")); got != 84 {
			t.Errorf("%d attachments are left; want 84", got)
		}
		if got := count(tx.OfUse("use6")); got != 0 {
			t.Errorf("%d attachments are left under the use; want 0", got)
		}
		return nil
	})
}

func TestKeptPools(t *testing.T) {
	s := newStore(t, Options{})
	want := map[protocol.PoolName]string{"a": "one", "b": "", "node": "three"}
	update(t, s, func(tx *Tx) error {
		for name, text := range want {
			if err := tx.PutPool(name, []byte(text)); err != nil {
				return err
			}
		}
		return tx.PutIdentity(Identity{Node: "n"})
	})
	got := map[protocol.PoolName]string{}
	view(t, s, func(tx *Tx) error {
		for name, text := range tx.KeptPools() {
			got[name] = string(text)
		}
		if _, ok, err := tx.Pool("c"); ok || err != nil {
			t.Errorf("Pool of no record = %v, %v", ok, err)
		}
		return nil
	})
	if !maps.Equal(got, want) {
		t.Errorf("KeptPools = %v; want %v", got, want)
	}
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutPool("a/b", nil) }); err == nil {
		t.Error("a pool of that name is recorded")
	}
}

// TestTable compares a table with a sorted map.
func TestTable(t *testing.T) {
	s := newStore(t, Options{})
	key := func(i int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(i)) }
	update(t, s, func(tx *Tx) error {
		table := tx.Table("p")
		if k, v := table.Seek(nil); k != nil || v != nil || table.Get(key(1)) != nil {
			t.Errorf("an empty table has %x", k)
		}
		for i := range 300 {
			if err := table.Put(key(i*2), fmt.Appendf(nil, "value %d", i*2)); err != nil {
				return err
			}
		}
		return table.Delete(key(10))
	})
	view(t, s, func(tx *Tx) error {
		table := tx.Table("p")
		if got := table.Get(key(12)); string(got) != "value 12" {
			t.Errorf("Get = %q; want value 12", got)
		}
		if got := table.Get(key(10)); got != nil {
			t.Errorf("Get of a deleted key = %q; want nil", got)
		}
		if k, v := table.Seek(key(9)); !slices.Equal(k, key(12)) || string(v) != "value 12" {
			t.Errorf("Seek = %x, %q; want the entry after the deleted one", k, v)
		}
		if k, _ := table.Seek(key(599)); k != nil {
			t.Errorf("Seek past the end = %x; want nil", k)
		}
		if got := tx.Pools(); !slices.Equal(got, []protocol.PoolName{"p"}) {
			t.Errorf("Pools = %v; want [p]", got)
		}
		return nil
	})
	// The bytes are no allocator's, which Check would tell.
	update(t, s, func(tx *Tx) error {
		for i := range 300 {
			if err := tx.Table("p").Delete(key(i * 2)); err != nil {
				return err
			}
		}
		return nil
	})
}
