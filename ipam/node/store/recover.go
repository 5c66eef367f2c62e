package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"
)

// A history is what a redo log says.
type history struct {
	base
	commits []commit // those after the base, in order
	beyond  uint64   // the number of a commit that stands behind damage; 0 is none
}

// commit is one record of a redo log.
type commit struct {
	st      state
	changes []byte
}

// last returns the state after the last commit.
func (h *history) last() state {
	if len(h.commits) == 0 {
		return h.st
	}
	return h.commits[len(h.commits)-1].st
}

// readHistory returns what the redo log of the store at path says. It is not ok where there
// is none, or it was closed.
func readHistory(path string) (h history, ok bool, err error) {
	f, err := os.Open(RedoPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("redo log: %w", err)
	}
	defer f.Close() // only read
	b := make([]byte, redoSize)
	n, err := f.ReadAt(b[:redoPage], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, false, corrupt(fmt.Errorf("redo log: %w", err))
	}
	from, sum, ok, err := parseBase(b[:n])
	if !ok {
		return h, false, err // what an earlier one has left need not be read
	}
	if n, err = f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return h, false, corrupt(fmt.Errorf("redo log: %w", err))
	}
	b = b[:n]
	h.base = from
	at := redoPage
	for at < len(b) {
		c, size, ok := parseCommit(b[at:], sum)
		if !ok || c.st.commit != h.last().commit+1 {
			break
		}
		h.commits = append(h.commits, c)
		at += size
	}
	// A crash leaves the last record unfinished at most: what stands behind another was answered.
	for ; at < len(b); at += redoPage {
		if c, _, ok := parseCommit(b[at:], sum); ok {
			h.beyond = max(h.beyond, c.st.commit)
		}
	}
	return h, true, nil
}

// parseCommit returns the record at the start of b, and how much of the log it takes.
func parseCommit(b []byte, sum uint32) (c commit, size int, ok bool) {
	if len(b) < recordHead {
		return commit{}, 0, false
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n < recordHead || n > int64(len(b)) || binary.BigEndian.Uint32(b[4:]) != recordSum(sum, b[:n]) {
		return commit{}, 0, false
	}
	st, err := parseState(b[8:recordHead])
	return commit{st: st, changes: b[recordHead:n:n]}, pages(int(n)), err == nil
}

// survey reads the whole store and returns what it is at, and what its redo log says, if
// there is one of it. With again, the log's changes have to be made on what is found: then
// the base has been put back.
func (s *Store) survey() (found findings, h *history, again bool, err error) {
	size, err := sizeOf(s.f)
	if err != nil {
		return found, nil, false, err
	}
	found, torn := scanAt(s.f, size)
	if torn != nil && !errors.Is(torn, ErrCorrupt) {
		return found, nil, false, torn
	}
	read, logged, err := readHistory(s.path)
	switch {
	case err != nil:
		return found, nil, false, err
	case !logged, torn == nil && found.id != read.id:
		return found, nil, false, torn // the log of another store says nothing of this one
	}
	h = &read
	whole := torn == nil && h.without(found.st)
	switch {
	case whole && (s.o.ReadOnly || found.st != h.last() || len(h.commits) == 0):
		return found, h, false, nil
	case h.beyond != 0:
		return found, h, false, errors.Join(torn, corrupt(fmt.Errorf("its redo log has commit %d and then commit %d: what is between them is damaged", h.last().commit, h.beyond)))
	case s.o.ReadOnly:
		return found, h, false, fmt.Errorf("the machine stopped before the file had all that its redo log %s has: open it once to be written, as the agent does: %w", RedoPath(s.path), ErrReadOnly)
	}
	// What else the file says does not matter: of its pages some may be from long ago, and
	// with a root among them even make up a whole tree. Also where it is whole: the disk may
	// have failed to take some, which the kernel says once, and then has in memory alone.
	first, err := scanAt(h.over(s.f), size)
	switch {
	case err == nil && first.id == h.id && first.st == h.st && !h.outlived(s.f):
		return first, h, true, h.restore(s.f)
	case whole:
		return found, h, false, nil
	case torn == nil:
		return found, h, false, fmt.Errorf("%w: its redo log has commits %d to %d, and the file is at commit %d without them", ErrOlder, h.st.commit, h.last().commit, found.st.commit)
	default:
		return found, h, false, torn
	}
}

// writeAgain writes all of a file as it is, so that a sync has it all on disk: a disk that
// failed to take a page is asked for it once more, which the kernel does not do by itself.
func writeAgain(f *os.File, size int64) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// outlived reports whether the file has seen more commits than the log: it went on without
// a log that could not be removed.
func (h *history) outlived(f io.ReaderAt) bool {
	for i := range uint64(2) {
		var page [metaBytes]byte
		if _, err := f.ReadAt(page[:], int64(i)*h.pageSize()); err != nil {
			continue
		}
		// One commit more may have been under way.
		if m, err := parseMeta(page[:], i); err == nil && m.txid > h.txid()+uint64(len(h.commits))+1 {
			return true
		}
	}
	return false
}

// without reports whether a file that is whole, and says st, lacks nothing that the log has:
// there was no power cut, or what was under way then was never answered.
func (h *history) without(st state) bool {
	if newest := max(h.last().commit, h.beyond); st.commit != newest || h.beyond != 0 {
		return st.commit >= newest
	}
	return st == h.last()
}

// redoes makes the changes of h, and leaves them on disk.
func (s *Store) redoes(h *history) (findings, error) {
	if err := s.db.Update(h.apply); err != nil {
		return findings{}, err
	}
	found, err := scan(s.f)
	if err == nil && found.st != h.last() {
		err = corrupt(fmt.Errorf("its redo log ends at %+v, and made the file %+v", h.last(), found.st))
	}
	return found, err
}

// apply makes the changes of all commits in bt.
func (h *history) apply(bt *bolt.Tx) error {
	for _, c := range h.commits {
		for rest := c.changes; len(rest) > 0; {
			var err error
			if rest, err = redoChange(bt, rest); err != nil {
				return corrupt(fmt.Errorf("redo log: commit %d: %w", c.st.commit, err))
			}
		}
	}
	record := seal(nil, seedMeta, keyState, h.last().append(nil))
	return bt.Bucket(bucketMeta).Put(keyState, record)
}

// The changes of a commit are one after the other
//
//	kind 1 byte, bucket 1 byte, then pool, key and value, each with its length before it
//
// where the bucket is its place in topBuckets, the pool that of a table, and a length
// four bytes.
const (
	changePut byte = iota + 1
	changeDelete
	changeCreate // of a table
	changeDrop   // of a table
)

// appendChange appends a change of in to buf.
func appendChange(buf []byte, kind byte, in *bucket, key, value []byte) []byte {
	buf = append(buf, kind, byte(in.top))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(in.pool)))
	buf = append(buf, in.pool...)
	for _, part := range [][]byte{key, value} {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(part)))
		buf = append(buf, part...)
	}
	return buf
}

// redoChange makes the first of changes, and returns those after it.
func redoChange(bt *bolt.Tx, changes []byte) (rest []byte, err error) {
	if len(changes) < 2 || int(changes[1]) >= len(topBuckets) {
		return nil, errors.New("a change is cut off, or of a bucket that there is not")
	}
	kind, in, rest := changes[0], bt.Bucket(topBuckets[changes[1]]), changes[2:]
	var parts [3][]byte
	for i := range parts {
		if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, errors.New("a change is cut off")
		}
		n := 4 + int(binary.BigEndian.Uint32(rest))
		parts[i], rest = rest[4:n:n], rest[n:]
	}
	pool, key, value := parts[0], parts[1], parts[2]
	switch kind {
	case changeCreate:
		_, err = in.CreateBucketIfNotExists(pool)
		return rest, err
	case changeDrop:
		return rest, in.DeleteBucket(pool)
	}
	if len(pool) > 0 {
		if in = in.Bucket(pool); in == nil {
			return nil, fmt.Errorf("pool %q has no table", pool)
		}
	}
	switch kind {
	case changePut:
		return rest, in.Put(key, value)
	case changeDelete:
		return rest, in.Delete(key)
	default:
		return nil, fmt.Errorf("a change of kind %d, which this program does not know: run the version that wrote it: %w", kind, ErrNewerSchema)
	}
}
