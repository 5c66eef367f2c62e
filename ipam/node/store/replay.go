package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Versions before this one kept a redo log beside the file: bbolt wrote its pages without a
// sync, and what each commit changed was a record of the log, which was synced. An agent
// that was killed leaves such a log. It is replayed at opening, once, and removed: no later
// version need know of it.
//
//	+-- head, a page ---------------------------------+- record -+- record -+----
//	| store ID, state and meta pages of one commit,   | state and changes of the
//	| the base, of which all that it needs is on disk | commits since, in order
//	+-------------------------------------------------+----------+----------+----
//
// A power cut left any mix of what was written to the file since the base. The base is whole
// in it, since no page of its tree was written again. So a copy of the file gets the base's
// meta pages, the changes are made once more, and the copy takes the file's place.
const (
	redoPage   = 4096 // each record begins one
	redoMagic  = "tenure-redo 1\n\x00\x00"
	redoBase   = len(redoMagic) + 8 + 32 // after a random number and the store's ID
	redoMetas  = redoBase + stateSize
	redoMeta   = pageHeader + metaSize
	redoHead   = redoMetas + 2*redoMeta // a checksum follows
	redoRecord = 4 + 4 + stateSize      // length, checksum, state; changes follow
)

// A redoLog is what a redo log says.
type redoLog struct {
	id      protocol.StoreID
	base    state
	metas   [2][]byte // the base's, with their headers
	commits []redoCommit
	newest  uint64 // the number of the last commit; higher than the last of commits where one is damaged
}

type redoCommit struct {
	st      state
	changes []byte
}

// RedoPath is where versions before this one kept the redo log of the store at path.
func RedoPath(path string) string { return path + ".redo" }

// replay removes the redo log of the store at path, which is open and locked as f. If the file
// lacks what the log has, a file that has it takes its place before.
func replay(path string, f *os.File, readOnly bool) (replaced bool, err error) {
	b, err := os.ReadFile(RedoPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("redo log: %w", err)
	}
	log, err := parseRedo(b)
	if err != nil {
		return false, corrupt(fmt.Errorf("redo log: %w", err))
	}
	found, torn := survey(&boltFile{f: f})
	switch {
	case torn != nil && !errors.Is(torn, ErrCorrupt):
		return false, torn
	case log.of(found, torn):
		if replaced = !log.in(found, torn); replaced && readOnly {
			return false, fmt.Errorf("the machine stopped before the file had all that its redo log %s has: open it once to be written, as the agent does: %w", RedoPath(path), ErrReadOnly)
		}
	}
	if readOnly {
		return false, nil
	}
	if replaced {
		err = log.replace(path, f)
	} else {
		err = f.Sync() // the process was killed: the kernel has what the disk may not
	}
	if err == nil {
		err = errors.Join(os.Remove(RedoPath(path)), syncDir(filepath.Dir(path)))
	}
	return replaced, err
}

// of reports whether the log may have commits of the store that was found.
func (l *redoLog) of(found findings, torn error) bool {
	return l.id != "" && (torn != nil || found.id == l.id)
}

// in reports whether the file has all that the log has.
func (l *redoLog) in(found findings, torn error) bool {
	return torn == nil && found.st.commit >= l.newest
}

// last returns the state after the last commit.
func (l *redoLog) last() state {
	if len(l.commits) == 0 {
		return l.base
	}
	return l.commits[len(l.commits)-1].st
}

// parseRedo returns what a redo log says: nothing, and of no store, where it was closed, or never
// used.
func parseRedo(b []byte) (*redoLog, error) {
	head := b[:min(redoHead, len(b))]
	switch {
	case len(bytes.TrimLeft(head, "\x00")) == 0:
		return &redoLog{}, nil
	case len(b) < redoHead+4 || string(head[:len(redoMagic)]) != redoMagic:
		return nil, errors.New("its head is not one")
	}
	sum := binary.BigEndian.Uint32(b[redoHead:])
	if crc32.ChecksumIEEE(head) != sum {
		return nil, errors.New("its head fails its checksum")
	}
	base, err := parseState(head[redoBase:redoMetas])
	if err != nil {
		return nil, err
	}
	l := &redoLog{id: protocol.StoreID(head[redoBase-32 : redoBase]), base: base, newest: base.commit}
	l.metas = [2][]byte{head[redoMetas : redoMetas+redoMeta], head[redoMetas+redoMeta:]}
	for at := redoPage; at < len(b); {
		c, size, ok := parseRedoCommit(b[at:], sum)
		if ok && c.st.commit == l.newest+1 && l.newest == l.last().commit {
			l.commits = append(l.commits, c)
		}
		if ok { // else what an earlier log has left, or a record that was never answered
			l.newest = max(l.newest, c.st.commit)
		}
		at += max(size, redoPage)
	}
	return l, nil
}

// parseRedoCommit returns the record at the start of b, and how much of the log it takes. In its
// checksum that of the head comes first: a record of an earlier base is none.
func parseRedoCommit(b []byte, sum uint32) (c redoCommit, size int, ok bool) {
	if len(b) < redoRecord {
		return c, 0, false
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n < int64(redoRecord) || n > int64(len(b)) {
		return c, 0, false
	}
	sum = crc32.Update(crc32.Update(sum, crc32.IEEETable, b[:4]), crc32.IEEETable, b[8:n])
	if binary.BigEndian.Uint32(b[4:]) != sum {
		return c, 0, false
	}
	st, err := parseState(b[8:redoRecord])
	size = (int(n) + redoPage - 1) / redoPage * redoPage
	return redoCommit{st: st, changes: b[redoRecord:n:n]}, size, err == nil
}

// replace has the base, with the commits of the log, take the place of the file at path, which is
// open as f.
func (l *redoLog) replace(path string, f *os.File) error {
	if l.newest != l.last().commit {
		return corrupt(fmt.Errorf("its redo log has commit %d and then commit %d: what is between them is damaged", l.last().commit, l.newest))
	}
	draft := path + ".replayed"
	err := l.redo(draft, f)
	if err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		_ = os.Remove(draft) // the error that is returned says more
		return err
	}
	return syncDir(filepath.Dir(path))
}

// redo makes a copy of f that has what the log has.
func (l *redoLog) redo(draft string, f *os.File) error {
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	pageSize := int(native.Uint32(l.metas[0][pageHeader+8:]))
	for i, m := range l.metas {
		if i*pageSize+len(m) <= len(b) {
			copy(b[i*pageSize:], m)
		}
	}
	found, err := survey(pagesOf{bytes.NewReader(b), int64(len(b))})
	switch {
	case err != nil:
		return err
	case found.id != l.id || found.st != l.base:
		return fmt.Errorf("%w: its redo log has commits %d to %d, and the file is of another time", ErrOlder, l.base.commit, l.last().commit)
	}
	if err := os.WriteFile(draft, b, 0o600); err != nil {
		return err
	}
	copied, err := os.OpenFile(draft, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	d := &boltFile{f: copied}
	if err := d.open(draft, boltOptions(copied, false)); err != nil {
		_ = copied.Close() // bbolt may have closed it already
		return err
	}
	if err := d.db.Update(l.apply); err != nil { // syncs all of the file
		return errors.Join(err, d.Close())
	}
	if found, err = survey(d); err == nil && found.st != l.last() {
		err = corrupt(fmt.Errorf("its redo log ends at %+v, and made the file %+v", l.last(), found.st))
	}
	return errors.Join(err, d.Close())
}

// apply makes the changes of all commits in bt.
func (l *redoLog) apply(bt *bolt.Tx) error {
	for _, c := range l.commits {
		for rest := c.changes; len(rest) > 0; {
			var err error
			if rest, err = redoChange(bt, rest); err != nil {
				return corrupt(fmt.Errorf("redo log: commit %d: %w", c.st.commit, err))
			}
		}
	}
	record := seal(nil, seedMeta, keyState, l.last().append(nil))
	return bt.Bucket([]byte(bucketMeta)).Put(keyState, record)
}

// redoChange makes the first of changes, and returns those after it. A change is
//
//	kind 1 byte, bucket 1 byte, then pool, key and value, each with its length before it
//
// where the bucket is its place in topBuckets, the pool that of a table, and a length four bytes.
func redoChange(bt *bolt.Tx, changes []byte) (rest []byte, err error) {
	if len(changes) < 2 || int(changes[1]) >= len(topBuckets) {
		return nil, errors.New("a change is cut off, or of a bucket that there is not")
	}
	kind, in, rest := changes[0], bt.Bucket([]byte(topBuckets[changes[1]])), changes[2:]
	var parts [3][]byte
	for i := range parts {
		if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, errors.New("a change is cut off")
		}
		n := 4 + int(binary.BigEndian.Uint32(rest))
		parts[i], rest = rest[4:n:n], rest[n:]
	}
	pool, key, value := parts[0], parts[1], parts[2]
	if len(pool) > 0 && kind <= 2 {
		if in = in.Bucket(pool); in == nil {
			return nil, fmt.Errorf("pool %q has no table", pool)
		}
	}
	switch kind {
	case 1:
		return rest, in.Put(key, value)
	case 2:
		return rest, in.Delete(key)
	case 3:
		_, err = in.CreateBucketIfNotExists(pool)
		return rest, err
	case 4:
		return rest, in.DeleteBucket(pool)
	default:
		return nil, fmt.Errorf("a change of kind %d is unknown", kind)
	}
}
