package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// mapped is how much of the file bbolt maps from the start. A map that is too
// small is made anew, for which bbolt waits until no reader is left. A map costs
// addresses, not memory; this one holds about 100,000 attachments.
const mapped = 64 << 20

// boltOptions are bbolt's for a file that is open already, as f.
//
// The free list is kept in memory alone (NoFreelistSync): a commit writes one
// page less, and a list on disk that a flipped bit makes wrong hands out pages
// that are in use. It is found again by walking the tree, which opening does
// anyway. FreelistMapType takes a free page in constant time. bbolt syncs with
// fdatasync, pages before the meta page that names them; NoSync and NoGrowSync stay
// off. Timeout is as good as none: the lock is held already.
func boltOptions(f *os.File, readOnly bool) *bolt.Options {
	return &bolt.Options{
		Timeout:         1,
		NoFreelistSync:  true,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mapped,
		ReadOnly:        readOnly,
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	}
}

// open opens the store at path with its lock taken by lock.
func open(path string, o Options, lock func(*os.File, bool) error) (*Store, error) {
	if o.grow == nil {
		o.grow = growFile
	}
	f, err := openFile(path, o, lock)
	if err != nil {
		return nil, explain(path, err)
	}
	s := &Store{path: path, o: o, f: f, turn: make(chan struct{}, 1), decoded: map[string]decoded{}, dead: make(chan struct{})}
	if err := s.load(); err != nil {
		_ = f.Close() // nothing was written; bbolt may have closed it already
		return nil, explain(path, err)
	}
	s.pass()
	return s, nil
}

// openFile returns the locked file at path, which it makes if there is none.
func openFile(path string, o Options, lock func(*os.File, bool) error) (*os.File, error) {
	flag := os.O_RDWR
	if o.ReadOnly {
		flag = os.O_RDONLY
	}
	for {
		f, err := os.OpenFile(path, flag, 0)
		if errors.Is(err, fs.ErrNotExist) && !o.ReadOnly {
			if err := create(path, o); err != nil {
				return nil, fmt.Errorf("create: %w", err)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		same := false
		if err = lock(f, o.ReadOnly); err == nil {
			same, err = isAt(f, path)
		}
		replaced := false
		if err == nil && same {
			replaced, err = replay(path, f, o.ReadOnly)
		}
		if err == nil && same && !replaced {
			return f, nil
		}
		_ = f.Close() // nothing was written to it
		if err != nil {
			return nil, err
		}
		// Another file is at path now: while we waited for the lock this one was moved away,
		// or an earlier version's redo log has become part of a new one.
	}
}

// isAt reports whether f is the file at path.
func isAt(f *os.File, path string) (bool, error) {
	ours, err := f.Stat()
	if err != nil {
		return false, err
	}
	theirs, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(ours, theirs), err
}

// load checks the file and hands it to bbolt.
func (s *Store) load() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asDamage(p)
		}
	}()
	found, err := scan(s.f)
	if err != nil {
		return err
	}
	s.id, s.size = found.id, found.size
	s.db, err = bolt.Open(s.path, 0, boltOptions(s.f, s.o.ReadOnly))
	if err != nil {
		return err
	}
	s.db.AllocSize = 1 // bbolt needs no more than it asks for: space.go sees to the rest
	if s.o.Witness != "" {
		s.witness = &witness{path: s.o.Witness}
		if s.witnessed, err = s.witness.agrees(s.id, found.st.commit); err != nil {
			return errors.Join(err, s.db.Close())
		}
	}
	s.synced.Store(found.txid)
	return nil
}

// create makes an empty store at path. It appears under its name whole or not
// at all, and only once.
func create(path string, o Options) error {
	dir, err := lockDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // it is only a lock
	if _, err := os.Stat(path); err == nil {
		return nil // another process was faster
	}
	draft := path + ".new"
	if err := errors.Join(write(draft, o), o.witnessNew(draft)); err != nil {
		_ = os.Remove(draft) // the error that is returned says more
		return err
	}
	if err := os.Rename(draft, path); err != nil {
		return err
	}
	return dir.Sync()
}

// witnessNew has the witness see the new store at path, in place of an earlier one:
// were it only removed, the earlier one could come back and pass for one of another
// boot.
func (o Options) witnessNew(path string) error {
	if o.Witness == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	found, err := scan(f)
	if err != nil {
		return err
	}
	w := &witness{path: o.Witness}
	return errors.Join(w.write(found.id, found.st.commit), w.close())
}

// lockDir makes the directory if there is none, and takes a lock on it: two
// processes that make a store in it do so one after the other.
func lockDir(path string) (*os.File, error) {
	if err := makeDir(path); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(dir, syscall.LOCK_EX); err != nil {
		_ = dir.Close() // nothing was done with it
		return nil, err
	}
	return dir, nil
}

// makeDir makes the directory, with those above it, unless it is there. What it
// makes is on disk: a store in a directory that a crash takes is lost.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// write makes the file of an empty store, on disk, with its space taken.
func write(path string, o Options) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	bo := boltOptions(f, false)
	bo.NoSync = true // the whole file is synced below
	db, err := bolt.Open(path, 0, bo)
	if err != nil {
		return err
	}
	db.AllocSize = 1 // as in load
	if err := errors.Join(db.Update(fill), db.Close()); err != nil {
		return err
	}
	if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	return errors.Join(o.grow(f, 0, reserve+step), f.Sync(), f.Close())
}

// fill writes what an empty store has.
func fill(tx *bolt.Tx) error {
	for _, name := range topBuckets {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	name, err := newID()
	if err != nil {
		return err
	}
	id := seal(nil, seedNode, keyID, []byte(name))
	var st state
	st.add(id)
	return errors.Join(
		tx.Bucket(bucketNode).Put(keyID, id),
		tx.Bucket(bucketMeta).Put(keySchema, strconv.AppendInt(nil, Schema, 10)),
		tx.Bucket(bucketMeta).Put(keyState, seal(nil, seedMeta, keyState, st.append(nil))),
	)
}

// newID returns a store ID that no other store has. It asks the kernel itself:
// crypto/rand would bring packages that take the CNI plugin longer to start than
// the few stores that it makes are worth.
func newID() (string, error) {
	var random [16]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil { // so few bytes come at once
		return "", os.NewSyscallError("getrandom", err)
	}
	return hex.EncodeToString(random[:]), nil
}

// syncDir has the names in a directory be on disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
