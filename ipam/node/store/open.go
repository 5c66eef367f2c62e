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

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// open opens the store at path with its lock taken by lock.
func open(path string, o Options, lock func(*os.File, bool) error) (*Store, error) {
	if o.grow == nil {
		o.grow = growFile
	}
	f, err := openFile(path, o, lock)
	if err != nil {
		return nil, explain(path, err)
	}
	d := &boltFile{f: f, grow: o.grow}
	s, err := use(d, path, o, func() error { return d.open(path, boltOptions(f, o.ReadOnly)) })
	if err != nil {
		_ = f.Close() // nothing was written; bbolt may have closed it already
		return nil, explain(path, err)
	}
	return s, nil
}

// OpenOn opens the store that d has, and makes one with an ID if d is empty: for simulations. The
// name is what errors call it.
func OpenOn(d disk.Disk, name string, id protocol.StoreID, o Options) (*Store, error) {
	number, err := d.Scan(func(string, []byte, []byte) error { return nil })
	if err == nil && number == 0 {
		err = makeOn(d, id, o)
	}
	if err != nil {
		return nil, explain(name, err)
	}
	s, err := use(d, name, o, func() error { return nil })
	return s, explain(name, err)
}

func makeOn(d disk.Disk, id protocol.StoreID, o Options) error {
	tx, err := d.Begin(true)
	if err != nil {
		return err
	}
	return errors.Join(fill(tx, id), o.tellWitness(id, 0), tx.Commit())
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

// use checks what d has, and begins to use it by begin. If it fails, d is not closed.
func use(d disk.Disk, path string, o Options, begin func() error) (s *Store, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asDamage(p)
		}
	}()
	found, err := survey(d)
	if err != nil {
		return nil, err
	}
	s = &Store{path: path, o: o, id: found.id, disk: d, turn: make(chan struct{}, 1), decoded: map[string]decoded{}, dead: make(chan struct{})}
	s.synced.Store(found.number)
	if err := begin(); err != nil {
		return nil, err
	}
	if s.witnessed, err = o.agrees(s.id, found.st.commit); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	s.pass()
	return s, nil
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
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	found, err := survey(&boltFile{f: f})
	if err != nil {
		return err
	}
	return errors.Join(o.tellWitness(found.id, found.st.commit), o.closeWitness())
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
	id, err := newID()
	if err != nil {
		return err
	}
	d := &boltFile{f: f}
	if err := d.open(path, bo); err != nil {
		return err
	}
	err = d.db.Update(func(bt *bolt.Tx) error { return fill(boltTx{bt: bt, d: d}, id) })
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	// bbolt leaves pages out that it has not used yet: they have to take up space, too.
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	return errors.Join(o.grow(f, reserve+step), f.Close())
}

// fill writes what an empty store has.
func fill(tx disk.Tx, id protocol.StoreID) error {
	for _, name := range topBuckets {
		if _, err := tx.Create(name); err != nil {
			return err
		}
	}
	record := seal(nil, seedNode, keyID, []byte(id))
	var st state
	st.add(record)
	return errors.Join(
		tx.Bucket(bucketNode).Put(keyID, record),
		tx.Bucket(bucketMeta).Put(keySchema, strconv.AppendInt(nil, schema, 10)),
		tx.Bucket(bucketMeta).Put(keyState, seal(nil, seedMeta, keyState, st.append(nil))),
	)
}

// newID returns a store ID that no other store has. It asks the kernel itself:
// crypto/rand would bring packages that take the CNI plugin longer to start than
// the few stores that it makes are worth.
func newID() (protocol.StoreID, error) {
	var random [16]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil { // so few bytes come at once
		return "", os.NewSyscallError("getrandom", err)
	}
	return protocol.StoreID(hex.EncodeToString(random[:])), nil
}

// syncDir has the names in a directory be on disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
