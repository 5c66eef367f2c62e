package store

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// commit makes the batch durable.
func (s *Store) commit(calls []*call, bt *bolt.Tx, b *batch, number uint64) error {
	if s.redo != nil && s.redo.failed {
		b.st.commit++ // the log may have another one of that number
	}
	if err := b.commitState(); err != nil {
		return err
	}
	began := time.Now()
	s.committing.Store(&began)
	defer s.committing.Store(nil)
	s.point("before-commit")
	s.syncing <- struct{}{}
	defer func() { <-s.syncing }()
	switch {
	case !s.redo.takes(b.st, b.changes):
		return s.commitSynced(bt, b, number)
	case s.surelyFits(bt, b):
		return s.commitAhead(calls, bt, b, number)
	default:
		return s.commitLogged(bt, b, number)
	}
}

// commitSynced has bbolt sync the file. A redo log begins anew after that.
func (s *Store) commitSynced(bt *bolt.Tx, b *batch, number uint64) error {
	s.db.NoSync = false
	if err := bt.Commit(); err != nil {
		if refused, ok := errors.AsType[*fs.PathError](err); ok && refused.Op == "write" || errors.Is(err, bolterrors.ErrMaxSizeReached) {
			return err
		}
		return s.unsynced(err)
	}
	s.point("after-commit")
	if err := s.witness.write(s.id, b.st.commit); err != nil {
		return err
	}
	s.synced.Store(number)
	s.renew()
	s.point("before-answer")
	return nil
}

// unsynced notes that a sync of the file has failed. The kernel may take for written what
// it could not write, and say so once alone: where that is what the redo log has, only
// opening, which writes it again, can bring it to the disk.
func (s *Store) unsynced(err error) error {
	if s.redo.empty() {
		return err
	}
	// Not to be taken for a full disk, which leaves everything as it was.
	return s.breakDown(fmt.Errorf("the file cannot be synced, and the redo log has what it lacks: start the program again: %s", err.Error()))
}

// commitLogged has bbolt write the file, and syncs the redo log.
func (s *Store) commitLogged(bt *bolt.Tx, b *batch, number uint64) error {
	s.db.NoSync = true
	if err := bt.Commit(); err != nil {
		return err
	}
	if err := s.log(b); err != nil {
		return err
	}
	s.synced.Store(number)
	s.point("before-answer")
	return nil
}

// log syncs the redo log with a commit.
func (s *Store) log(b *batch) error {
	s.point("before-log")
	err := s.redo.write(b.st, b.changes)
	s.point("after-commit")
	if err == nil {
		err = s.witness.write(s.id, b.st.commit)
	}
	if err != nil {
		s.giveUp(err)
		s.synced.Store(0) // nothing is answered before another commit has settled whether it is there
	}
	return err
}

// surelyFits reports whether the end of the file has room for all pages that bbolt may
// write for a batch: for each change those of its leaf, split or merged with its
// neighbours, and of the branches above. A leaf of large records has two or three.
func (s *Store) surelyFits(bt *bolt.Tx, b *batch) bool {
	n := int64(64+8*b.noted)*int64(s.db.Info().PageSize) + int64(2*len(b.changes)+4*b.noted*b.largest)
	return s.size-bt.Size() >= n
}

// commitAhead syncs the redo log and answers the calls; then bbolt writes the file, which
// readers wait for.
func (s *Store) commitAhead(calls []*call, bt *bolt.Tx, b *batch, number uint64) error {
	if err := s.log(b); err != nil {
		s.abandon(bt)
		return err
	}
	s.behind.Lock()
	defer s.behind.Unlock()
	s.promised.Store(number)
	s.db.MaxSize = mapped - s.db.Info().PageSize // it may not fail for want of room any more
	s.point("before-answer")
	s.answer(calls, nil)
	runtime.Gosched() // they go on meanwhile
	s.db.NoSync = true
	if err := contained(bt.Commit); err != nil {
		s.abandon(bt)
		// Not to be taken for an error of calls to come, which a larger file would help.
		err = fmt.Errorf("bbolt does not take commit %d, which the redo log has: start the program again: %s", b.st.commit, err.Error())
		s.lost.Store(&lostCommit{s.breakDown(err)})
		return nil // they have been answered
	}
	s.synced.Store(number)
	s.point("behind")
	return nil
}

// lostCommit is why bbolt will not have what was answered before the store is opened again.
type lostCommit struct{ err error }

// contained returns the error of fn, and what it panics with as damage.
func contained(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asDamage(p)
		}
	}()
	return fn()
}

// settle has all of the file be on disk, and the redo log begin anew, which lets pages go.
func (s *Store) settle() error {
	if err := s.db.Sync(); err != nil {
		return s.unsynced(err)
	}
	s.renew()
	bt, err := s.db.Begin(true) // has bbolt count the pages that have become free
	if err != nil {
		return err
	}
	return bt.Rollback()
}

// renew has the redo log begin anew, all of the file being on disk. One that has failed is
// given up for good, and so is that of a file which bbolt has to map anew: bbolt would wait
// for its reader.
func (s *Store) renew() {
	if s.redo == nil {
		return
	}
	if !s.redo.failed {
		err := errTooLarge
		if s.size < mapped {
			err = s.redo.begin(s)
		}
		if err == nil {
			return
		}
		s.giveUp(err)
	}
	s.redo.remove()
	s.redo = nil
}

// abandon ends a transaction that failed. bbolt may have contradicted itself
// halfway: if it cannot even give up, it keeps its lock, and nothing that needs
// it may be tried any more.
func (s *Store) abandon(bt *bolt.Tx) {
	defer func() {
		if p := recover(); p != nil {
			s.stuck.Store(true)
			_ = s.breakDown(asDamage(p)) // for the next call
		}
	}()
	if err := bt.Rollback(); err != nil && !errors.Is(err, bolterrors.ErrTxClosed) {
		_ = s.breakDown(err) // for the next call
	}
}
