package store

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// commit makes the batch durable.
func (s *Store) commit(calls []*call, bt *bolt.Tx, b *batch, number uint64) error {
	if s.redo.spoilt() {
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
	if s.roomy && len(b.changes) <= maxAhead && s.redo.takes(b.st, b.changes) {
		return s.commitLogged(calls, bt, b, number)
	}
	return s.commitSynced(bt, b, number)
}

// commitSynced has bbolt sync the file. A redo log begins anew after that.
func (s *Store) commitSynced(bt *bolt.Tx, b *batch, number uint64) error {
	s.db.NoSync = false
	if err := bt.Commit(); err != nil {
		return err
	}
	s.point("after-commit")
	if err := s.witness.write(s.id, b.st.commit); err != nil {
		return err
	}
	s.synced.Store(number)
	if s.redo != nil {
		_ = s.redo.begin(s) // else the next commit is synced by bbolt too, and tries again
	}
	s.point("before-answer")
	return nil
}

// maxAhead is up to how many bytes of changes calls are answered before bbolt has them.
// It has room for them, also if each of a hundred attachments lies on pages of its own.
const maxAhead = 64 << 10

// commitLogged syncs the redo log and answers the calls; then bbolt takes the changes,
// which readers wait for, and syncs nothing.
func (s *Store) commitLogged(calls []*call, bt *bolt.Tx, b *batch, number uint64) error {
	s.point("before-log")
	err := s.redo.write(b.st, b.changes)
	s.point("after-commit")
	if err == nil {
		err = s.witness.write(s.id, b.st.commit)
	}
	if err != nil {
		s.redo.spoil()
		s.synced.Store(0) // nothing is answered before another commit has settled whether it is there
		s.abandon(bt)
		return err
	}
	s.behind.Lock()
	defer s.behind.Unlock()
	s.promised.Store(number)
	s.point("before-answer")
	s.answer(calls, nil)
	runtime.Gosched() // they go on meanwhile
	s.db.NoSync = true
	if err := contained(bt.Commit); err != nil {
		s.abandon(bt)
		s.broken = fmt.Errorf("bbolt does not take commit %d, which the redo log has: start the program again: %w", b.st.commit, err)
		s.lost.Store(&lostCommit{s.broken})
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

// settle has all of the file be on disk, and the redo log begin anew, which lets pages
// go. A file that bbolt has to map anew cannot have one: bbolt would wait for its reader.
func (s *Store) settle() error {
	err := s.db.Sync()
	switch {
	case err != nil:
		return err
	case s.size < mapped:
		return s.redo.begin(s)
	default:
		err = s.redo.close(true)
		s.redo = nil
		return err
	}
}

// abandon ends a transaction that failed. bbolt may have contradicted itself
// halfway: if it cannot even give up, it keeps its lock, and nothing that needs
// it may be tried any more.
func (s *Store) abandon(bt *bolt.Tx) {
	defer func() {
		if p := recover(); p != nil {
			s.broken = asDamage(p)
			s.stuck.Store(true)
		}
	}()
	if err := bt.Rollback(); err != nil && !errors.Is(err, bolterrors.ErrTxClosed) {
		s.broken = err
	}
}
