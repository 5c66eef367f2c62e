package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// fillStore gives s attachments from first to beyond last, a pool's table with
// several levels, and rights.
func fillStore(t testing.TB, s *Store, first, last int) {
	t.Helper()
	shape, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *Tx) error {
		space := allocator.NewSpace(tx.Table("vlan-prod"), shape)
		for n := first; n < last; n++ {
			a := sampleAttachment(n + 1)
			block := netip.PrefixFrom(a.Addresses[0].Addr, 26).Masked()
			right := protocol.Right{Kind: protocol.RightLease, Name: protocol.LeaseName("vlan-prod", block), Phase: protocol.Held, LeaseRight: protocol.LeaseRight{Pool: "vlan-prod", Block: block}}
			a.Addresses[0].Lease = right.Name
			err := errors.Join(tx.PutRight(right), space.Open(block), space.Take(a.Addresses[0].Addr), tx.PutAttachment(a))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// image returns the bytes of a closed store's file, and what it says.
func image(t testing.TB, attachments int) ([]byte, contents) {
	t.Helper()
	s := newStore(t, Options{})
	for n := 0; n < attachments; n += 50 {
		fillStore(t, s, n, min(n+50, attachments))
	}
	update(t, s, func(tx *Tx) error { return tx.PutIdentity(Identity{Node: "n1", Boot: "b"}) })
	want := read(t, s)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return load(t, s.Path()), want
}

func load(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// inUse returns how many bytes of a file its pages take.
func inUse(t testing.TB, b []byte) int {
	t.Helper()
	m, err := readMeta(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return int(m.pages) * int(m.pageSize)
}

// judge opens a file of these bytes, which must give want or an error that says
// what to do, and never write to it.
func judge(t testing.TB, what string, path string, b []byte, want contents) (opened bool) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, Options{})
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), path) {
			t.Fatalf("%s: Open = %v; want ErrCorrupt or ErrNewerSchema, with the path", what, err)
		}
		if !bytes.Equal(load(t, path), b) {
			t.Fatalf("%s: Open failed and changed the file", what)
		}
		return false
	}
	defer s.Close()
	got, err := tryRead(s)
	if err != nil {
		t.Fatalf("%s: Open is content and reading is not: %v", what, err)
	}
	if d := diff(want, got); d != "" {
		t.Fatalf("%s: a wrong answer (-want +got):\n%s", what, d)
	}
	if err := s.Check(); err != nil {
		t.Fatalf("%s: Open is content and Check is not: %v", what, err)
	}
	return true
}

// pair is one record of a file.
type pair struct{ in, key, value string }

// walk returns the records of a file that is sound, and which bytes lie in pages
// that they are reached by.
func walk(t testing.TB, b []byte) (pairs []pair, reached func(at int) bool) {
	t.Helper()
	m, err := readMeta(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	w := walker{r: bytes.NewReader(b), meta: m, visit: func(in [][]byte, k, v []byte) error {
		pairs = append(pairs, pair{string(bytes.Join(in, []byte{0})), string(k), string(v)})
		return nil
	}}
	if err := w.walk(); err != nil {
		t.Fatal(err)
	}
	return pairs, func(at int) bool { p := at / int(m.pageSize); return w.seen[p/64]&(1<<(p%64)) != 0 }
}

// TestFlippedBytes flips a bit in every byte of every page that is in use.
// The scan must refuse the file, or find every record as it was.
func TestFlippedBytes(t *testing.T) {
	b, want := image(t, 16)
	pages := b[:inUse(t, b)]
	whole, reached := walk(t, pages)
	rng := rand.New(rand.NewPCG(1, 0))
	path := filepath.Join(t.TempDir(), "store.db")
	noticed, unnoticed := 0, 0
	for at := range pages {
		if !reached(at) {
			continue
		}
		bit := byte(1) << rng.IntN(8)
		pages[at] ^= bit
		_, err := survey(pagesOf{bytes.NewReader(pages), int64(len(pages))})
		switch {
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrNewerSchema):
			noticed++
		case err != nil:
			t.Fatalf("byte %d: scan = %v; want ErrCorrupt", at, err)
		default:
			unnoticed++
			if got, _ := walk(t, pages); !slices.Equal(got, whole) {
				t.Fatalf("byte %d: the scan is content with other records", at)
			}
		}
		if rng.IntN(200) == 0 {
			judge(t, fmt.Sprintf("byte %d", at), path, b, want)
		}
		pages[at] ^= bit
	}
	t.Logf("%d flips noticed, %d of no consequence", noticed, unnoticed)
	if noticed < len(pages)/4 {
		t.Errorf("%d flips of %d were noticed: the test does not hit what is in use", noticed, len(pages))
	}
}

// TestRuined makes larger damage: runs of zeros and noise, swapped and copied
// pages.
func TestRuined(t *testing.T) {
	b, want := image(t, 120)
	n := inUse(t, b)
	path := filepath.Join(t.TempDir(), "store.db")
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		bad := slices.Clone(b)
		from := rng.IntN(n)
		to := min(n, from+1+rng.IntN(8192))
		page := func() []byte { p := rng.IntN(n/4096) * 4096; return bad[p : p+4096] }
		switch rng.IntN(4) {
		case 0:
			clear(bad[from:to])
		case 1:
			for i := from; i < to; i++ {
				bad[i] = byte(rng.Uint32())
			}
		case 2:
			copy(page(), page())
		case 3:
			x, y := page(), page()
			z := slices.Clone(x)
			copy(x, y)
			copy(y, z)
		}
		judge(t, fmt.Sprintf("seed %d", seed), path, bad, want)
	}
}

func TestTruncated(t *testing.T) {
	b, want := image(t, 120)
	n := inUse(t, b)
	path := filepath.Join(t.TempDir(), "store.db")
	rng := rand.New(rand.NewPCG(2, 0))
	sizes := []int{0, 1, 16, 80, 4095, 4096, 4176, 8191, 8192, 16384, n - 1, n, n + 1, len(b)}
	for range 60 {
		sizes = append(sizes, rng.IntN(len(b)))
	}
	for _, size := range sizes {
		opened := judge(t, fmt.Sprintf("cut to %d of %d", size, n), path, b[:size], want)
		if opened != (size >= n) {
			t.Errorf("cut to %d bytes, of which %d are in use: opened = %v", size, n, opened)
		}
	}
}

// TestTornCommit takes the file before and after commits and writes to the
// former any part of what changed: what a crash of the machine can leave, and
// more. It must read as before, as after, or be refused.
func TestTornCommit(t *testing.T) {
	s := newStore(t, Options{})
	fillStore(t, s, 0, 100)
	path := filepath.Join(t.TempDir(), "torn.db")
	outcomes := map[string]int{}
	for round := range 12 {
		before, was := load(t, s.Path()), read(t, s)
		fillStore(t, s, 100+round*7, 107+round*7)
		after, is := load(t, s.Path()), read(t, s)
		var changed []int
		for p := 0; p < len(before); p += 4096 {
			if !bytes.Equal(before[p:p+4096], after[p:p+4096]) {
				changed = append(changed, p)
			}
		}
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, uint64(round)))
			torn := slices.Clone(before)
			withMeta, all := false, true
			for _, p := range changed {
				if rng.IntN(8) == 0 {
					all = false
					continue
				}
				withMeta = withMeta || p < 8192
				copy(torn[p:p+4096], after[p:p+4096])
			}
			want := was
			if withMeta {
				want = is
			}
			opened := judge(t, fmt.Sprintf("round %d seed %d", round, seed), path, torn, want)
			if !opened && (!withMeta || all) {
				t.Errorf("round %d seed %d: a file whose commit was cut short before its meta page is refused", round, seed)
			}
			outcomes[fmt.Sprintf("with meta %v, opened %v", withMeta, opened)]++
		}
	}
	t.Log(outcomes)
}

// TestEarlier puts a store's records back to an earlier time, one at a time,
// with valid checksums: the sum of all must tell.
func TestEarlier(t *testing.T) {
	s := newStore(t, Options{})
	fillStore(t, s, 0, 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b := load(t, s.Path())
	key := sampleAttachment(3).Key.bytes()
	edits := map[string]func(*bolt.Tx) error{
		"a record lost": func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketAttachments)).Delete(key) },
		"an entry lost": func(tx *bolt.Tx) error {
			k, _ := tx.Bucket([]byte(bucketPods)).Cursor().First()
			return tx.Bucket([]byte(bucketPods)).Delete(k)
		},
		"a record added": func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(bucketRights)).Put([]byte("x"), seal(nil, seedOf(bucketRights), []byte("x"), []byte("{}")))
		},
		"a record of before": func(tx *bolt.Tx) error {
			a := sampleAttachment(3)
			return tx.Bucket([]byte(bucketAttachments)).Put(key, seal(nil, seedOf(bucketAttachments), key, a.encode()))
		},
		"a record of a later version": func(tx *bolt.Tx) error {
			r := seal(nil, seedNode, keyIdentity, []byte("{}"))
			r[0] = recordVersion + 1
			return tx.Bucket([]byte(bucketNode)).Put(keyIdentity, r)
		},
		"a table lost":  func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketPools)).DeleteBucket([]byte("vlan-prod")) },
		"a bucket lost": func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketRights)) },
		"a bucket unknown": func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte("x"))
			return errors.Join(err, b.Put(key, key))
		},
		"a table misplaced": func(tx *bolt.Tx) error {
			b, err := tx.Bucket([]byte(bucketRights)).CreateBucket([]byte("x"))
			return errors.Join(err, b.Put(key, key))
		},
		"no state":     func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Delete(keyState) },
		"no schema":    func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Delete(keySchema) },
		"schema zero":  func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put(keySchema, []byte("0")) },
		"schema words": func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put(keySchema, []byte("one")) },
		"unknown meta": func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put(key, seal(nil, seedMeta, key, nil)) },
		"no ID":        func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketNode)).Delete(keyID) },
		"state too old": func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(bucketMeta)).Put(keyState, seal(nil, seedMeta, keyState, state{}.append(nil)))
		},
		"short state": func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(bucketMeta)).Put(keyState, seal(nil, seedMeta, keyState, []byte("x")))
		},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			rewrite(t, path, b, edit)
			if s, err := Open(path, Options{}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Open = %v, %v; want ErrCorrupt", s, err)
			}
		})
	}
}

// rewrite writes b to path and edits it through bbolt.
func rewrite(t *testing.T, path string, b []byte, edit func(*bolt.Tx) error) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(edit), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNewerSchema opens what a later version wrote, which also writes records
// that this one does not know.
func TestNewerSchema(t *testing.T) {
	b, _ := image(t, 5)
	path := filepath.Join(t.TempDir(), "store.db")
	rewrite(t, path, b, func(tx *bolt.Tx) error {
		return errors.Join(
			tx.Bucket([]byte(bucketMeta)).Put(keySchema, []byte("2")),
			tx.Bucket([]byte(bucketRights)).Put([]byte("x"), []byte{9, 9, 9, 9, 9, 9}),
		)
	})
	newer := load(t, path)
	_, err := Open(path, Options{})
	if !errors.Is(err, ErrNewerSchema) || errors.Is(err, ErrCorrupt) {
		t.Fatalf("Open = %v; want ErrNewerSchema alone", err)
	}
	for _, want := range []string{path, "schema 2", "up to 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not say %q", err, want)
		}
	}
	if !bytes.Equal(load(t, path), newer) {
		t.Error("the file was changed")
	}
}

func TestNoStore(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(dir, "foreign")
	rewrite(t, foreign, nil, func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("x")); return err })
	tests := []struct {
		name, path string
		want       error
	}{
		{"empty", write("empty", nil), ErrCorrupt},
		{"text", write("text", bytes.Repeat([]byte("no store\n"), 10000)), ErrCorrupt},
		{"zeros", write("zeros", make([]byte, 1<<20)), ErrCorrupt},
		{"another program's", foreign, ErrCorrupt},
		{"directory", dir, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(tt.path, Options{})
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("Open = %v; want %v with the path", err, tt.want)
			}
		})
	}
	if _, err := Open(filepath.Join(dir, "none"), Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of no file for reading = %v; want that it does not exist", err)
	}
}

// TestDamagedWhileOpen flips bytes of records under an open store.
func TestDamagedWhileOpen(t *testing.T) {
	for n := range 60 {
		s := newStore(t, Options{})
		fillStore(t, s, 0, 60)
		a := sampleAttachment(n + 1)
		b := load(t, s.Path())
		f, err := os.OpenFile(s.Path(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		// Every copy: earlier ones lie in free pages.
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], a.encode()[:40])
			if i < 0 {
				break
			}
			at += i
			if _, err := f.WriteAt([]byte{b[at+n%40] ^ 4}, int64(at+n%40)); err != nil {
				t.Fatal(err)
			}
		}
		calls := map[string]error{
			"View":                      s.View(func(tx *Tx) error { _, _, err := tx.Attachment(a.Key); return err }),
			"View that keeps the error": s.View(func(tx *Tx) error { _, _, _ = tx.Attachment(a.Key); return nil }),
			"Update":                    s.Update(t.Context(), func(tx *Tx) error { return tx.DeleteAttachment(a.Key) }),
			"Check":                     s.Check(),
		}
		for name, err := range calls {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), s.Path()) {
				t.Errorf("%s of a damaged record = %v; want ErrCorrupt with the path", name, err)
			}
		}
		other := sampleAttachment((n+30)%60 + 1)
		view(t, s, func(tx *Tx) error {
			if _, ok, err := tx.Attachment(other.Key); !ok || err != nil {
				t.Errorf("an undamaged record = %v, %v", ok, err)
			}
			return nil
		})
		update(t, s, func(tx *Tx) error { return tx.PutIdentity(Identity{Node: "n"}) })
		if err := errors.Join(f.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTableDamagedWhileOpen does the same to the allocator's table, whose
// methods have no errors.
func TestTableDamagedWhileOpen(t *testing.T) {
	s := newStore(t, Options{})
	value := []byte("a value of the allocator's that is found in the file")
	update(t, s, func(tx *Tx) error { return tx.Table("p").Put([]byte("key"), value) })
	b := load(t, s.Path())
	f, err := os.OpenFile(s.Path(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("A"), int64(bytes.Index(b, value))); err != nil {
		t.Fatal(err)
	}
	reads := map[string]func(*Tx){
		"Get":  func(tx *Tx) { tx.Table("p").Get([]byte("key")) },
		"Seek": func(tx *Tx) { tx.Table("p").Seek(nil) },
	}
	for name, read := range reads {
		fn := func(tx *Tx) error { read(tx); t.Error("the function goes on"); return nil }
		if err := s.View(fn); !errors.Is(err, ErrCorrupt) {
			t.Errorf("View with %s = %v; want ErrCorrupt", name, err)
		}
		if err := s.Update(t.Context(), fn); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Update with %s = %v; want ErrCorrupt", name, err)
		}
	}
	if err := errors.Join(f.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCutWhileOpen cuts the file off under an open store: what is mapped
// beyond its end faults.
func TestCutWhileOpen(t *testing.T) {
	s := newStore(t, Options{})
	fillStore(t, s, 0, 200)
	if err := os.Truncate(s.Path(), 4*4096); err != nil {
		t.Fatal(err)
	}
	read := func(tx *Tx) error {
		for _, err := range tx.Attachments() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	put := func(tx *Tx) error { return tx.PutAttachment(claimed(900)) }
	calls := []struct {
		name string
		err  error
	}{{"View", s.View(read)}, {"Update", s.Update(t.Context(), put)}, {"Check", s.Check()}, {"Update", s.Update(t.Context(), put)}}
	for _, c := range calls {
		if !errors.Is(c.err, ErrCorrupt) {
			t.Errorf("%s of a file cut off = %v; want ErrCorrupt", c.name, c.err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestStuck has bbolt fail so badly that it keeps its lock: nothing may wait for
// it, and the next process can have the file.
func TestStuck(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "store.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := s.disk.(*boltFile)
	if _, err := d.db.Begin(true); err != nil {
		t.Fatal(err)
	}
	s.abandon(boltTx{d: d, writable: true}) // which panics, as one does that finds its own memory wrong
	calls := map[string]error{
		"Update": s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(1)) }),
		"Check":  s.Check(),
	}
	for name, err := range calls {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s = %v; want ErrCorrupt", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reopen(t, s.Path(), Options{})
}

// TestRemovedWhileOpen removes the file under an open store: what is written
// then would be gone with the process.
func TestRemovedWhileOpen(t *testing.T) {
	s := newStore(t, Options{})
	if err := os.Remove(s.Path()); err != nil {
		t.Fatal(err)
	}
	err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "removed") {
		t.Errorf("Update of a removed file = %v; want ErrCorrupt that says so", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
