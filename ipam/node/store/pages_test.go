package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestWalkSeesWhatBboltSees compares the two readers of one format on files of
// random shape: keys and values of all sizes, deep trees, nested and inline
// buckets.
func TestWalkSeesWhatBboltSees(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "db")
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true, PageSize: 1024 << rng.IntN(4)})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			err := db.Update(func(tx *bolt.Tx) error { return scribble(rng, tx) })
			if err != nil {
				t.Fatal(err)
			}
		}
		want := map[pair]bool{}
		err = errors.Join(db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error { return list(want, name, b) })
		}), db.Close())
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := walk(t, b)
		if len(got) != len(want) {
			t.Errorf("seed %d: the walk finds %d pairs; bbolt finds %d", seed, len(got), len(want))
		}
		for _, p := range got {
			if !want[p] {
				t.Fatalf("seed %d: the walk finds %.60q, which bbolt does not", seed, p)
			}
		}
	}
}

func list(found map[pair]bool, name []byte, b *bolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return list(found, bytes.Join([][]byte{name, k}, []byte{0}), b.Bucket(k))
		}
		found[pair{string(name), string(k), string(v)}] = true
		return nil
	})
}

// scribble changes random pairs of random buckets.
func scribble(rng *rand.Rand, tx *bolt.Tx) error {
	word := func(n int) []byte {
		b := make([]byte, 1+rng.IntN(n))
		for i := range b {
			b[i] = byte('a' + rng.IntN(4))
		}
		return b
	}
	for range 1 + rng.IntN(400) {
		b, err := tx.CreateBucketIfNotExists([]byte{'A' + byte(rng.IntN(4))})
		if err == nil && rng.IntN(3) == 0 {
			b, err = b.CreateBucketIfNotExists([]byte{'A' + byte(rng.IntN(5))})
		}
		if err != nil {
			return err
		}
		if rng.IntN(3) == 0 {
			if k, v := b.Cursor().Seek(word(3)); v != nil {
				if err := b.Delete(k); err != nil {
					return err
				}
			}
			continue
		}
		size := 200
		if rng.IntN(30) == 0 {
			size = 20000
		}
		if err := b.Put(word(60), word(size)); err != nil {
			return err
		}
	}
	return nil
}

// FuzzScan reads files that are damaged in ways that no test thought of: it
// must not panic, run for ever, or find records that were not written.
func FuzzScan(f *testing.F) {
	b, _ := image(f, 12)
	b = b[:inUse(f, b)]
	whole, _ := walk(f, b)
	f.Add(uint32(0), []byte{1})
	f.Add(uint32(4096*3+8), []byte{1, 0, 2, 0})
	f.Add(uint32(4096*5), bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, at uint32, xor []byte) {
		bad := bytes.Clone(b)
		for i, x := range xor {
			bad[(int(at)+i)%len(bad)] ^= x
		}
		_, err := survey(pagesOf{bytes.NewReader(bad), int64(len(bad))})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerSchema) {
				t.Errorf("scan = %v; want ErrCorrupt", err)
			}
			return
		}
		got, _ := walk(t, bad)
		for i := range got {
			if got[i] != whole[i] {
				t.Errorf("the scan is content with %.80q; written was %.80q", got[i], whole[i])
			}
		}
	})
}
