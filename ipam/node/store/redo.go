package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A redo log lets a commit wait for one sync where bbolt alone takes two, pages
// before the meta page that names them. bbolt writes both and syncs neither, and
// what the commit changed is a record of the log, which is synced:
//
//	+-- head, a page ---------------------------------+- record -+- record -+----
//	| store ID, state and meta pages of one commit,   | state and changes of the
//	| the base, of which all that it needs is on disk | commits since, in order
//	+-------------------------------------------------+----------+----------+----
//
// A power cut leaves any mix of what was written to the store's file since the
// base. The base is whole: a read transaction of bbolt's is kept open at it, so no
// page of its tree is written again. Opening puts its meta pages back and makes the
// changes once more; the sum in each state tells that they came out the same.
//
// When the log is full, one commit syncs the file as bbolt does and becomes the next
// base. Closing leaves no base: then the file is all there is, and a program that
// knows nothing of the log may open it. Each record begins a page, so that no write
// touches what an earlier one has made durable.
const (
	redoSize    = 2 << 20 // of the log; it takes up its space from the start
	redoPage    = 4096
	redoMagic   = "tenure-redo 1\n\x00\x00"
	redoHead    = len(redoMagic) + nonceSize + storeIDSize + stateSize + 2*metaBytes
	nonceSize   = 8
	storeIDSize = 32
	metaBytes   = pageHeader + metaSize
	recordHead  = 4 + 4 + stateSize // length, checksum, state
)

// errTooLarge is why a store has no redo log whose file bbolt has to map anew: bbolt would
// wait for the reader of the base.
var errTooLarge = errors.New("its file has 64 MiB or more: only a smaller one can have a redo log")

// RedoPath is the path of the redo log of the store at path.
func RedoPath(path string) string { return path + ".redo" }

// A base is the commit that a redo log begins at.
type base struct {
	nonce [nonceSize]byte // random: records of another log that begins with the same commit are not this one's
	id    protocol.StoreID
	st    state
	metas [2][metaBytes]byte // as they are in the file, headers included
}

// append appends the head of a log that begins at b to buf, with its checksum.
func (b *base) append(buf []byte) []byte {
	start := len(buf)
	buf = append(buf, redoMagic...)
	buf = append(buf, b.nonce[:]...)
	buf = append(buf, b.id...)
	buf = b.st.append(buf)
	buf = append(append(buf, b.metas[0][:]...), b.metas[1][:]...)
	return binary.BigEndian.AppendUint32(buf, crc32.ChecksumIEEE(buf[start:]))
}

// parseBase returns the base that head names, and its checksum, with which those of the
// records begin. It is not ok where the log was closed, or never used.
func parseBase(head []byte) (b base, sum uint32, ok bool, err error) {
	head = head[:min(redoHead+4, len(head))]
	switch {
	case len(bytes.TrimLeft(head, "\x00")) == 0:
		return base{}, 0, false, nil
	case !bytes.HasPrefix(head, []byte(redoMagic)) && bytes.HasPrefix(head, []byte(redoMagic[:len("tenure-redo ")])):
		return base{}, 0, false, fmt.Errorf("the redo log is %.20q, which this program does not know: run the version that wrote it: %w", head, ErrNewerSchema)
	case len(head) < redoHead+4 || string(head[:len(redoMagic)]) != redoMagic:
		return base{}, 0, false, corrupt(errors.New("the head of the redo log"))
	}
	sum = binary.BigEndian.Uint32(head[redoHead:])
	if crc32.ChecksumIEEE(head[:redoHead]) != sum {
		return base{}, 0, false, corrupt(errors.New("the head of the redo log fails its checksum"))
	}
	rest := head[len(redoMagic):]
	rest = rest[copy(b.nonce[:], rest):]
	b.id, rest = protocol.StoreID(rest[:storeIDSize]), rest[storeIDSize:]
	st, err := parseState(rest[:stateSize])
	if err != nil {
		return base{}, 0, false, corrupt(err)
	}
	b.st, rest = st, rest[stateSize:]
	copy(b.metas[0][:], rest)
	copy(b.metas[1][:], rest[metaBytes:])
	return b, sum, true, nil
}

// pageSize returns the size of the pages of the store's file.
func (b *base) pageSize() int64 { return int64(native.Uint32(b.metas[0][pageHeader+8:])) }

// over returns r with the base's meta pages in place of those that it has.
func (b *base) over(r io.ReaderAt) io.ReaderAt { return patched{r, b} }

type patched struct {
	io.ReaderAt
	base *base
}

func (p patched) ReadAt(buf []byte, off int64) (int, error) {
	n, err := p.ReaderAt.ReadAt(buf, off)
	for i, m := range p.base.metas {
		at := int64(i) * p.base.pageSize()
		if at < off+int64(n) && off < at+metaBytes {
			copy(buf[max(at-off, 0):n], m[max(off-at, 0):])
		}
	}
	return n, err
}

// txid returns the number of the base's bbolt transaction.
func (b *base) txid() uint64 {
	var newest uint64
	for i, m := range b.metas {
		if m, err := parseMeta(m[:], uint64(i)); err == nil {
			newest = max(newest, m.txid)
		}
	}
	return newest
}

// restore writes the base's meta pages to the store's file.
func (b *base) restore(f *os.File) error {
	for i, m := range b.metas {
		if _, err := f.WriteAt(m[:], int64(i)*b.pageSize()); err != nil {
			return err
		}
	}
	return f.Sync()
}

// recordSum returns the checksum of a record, which is not in it, in a log whose head
// has the checksum sum: a record of another base's is none.
func recordSum(sum uint32, record []byte) uint32 {
	return crc32.Update(crc32.Update(sum, crc32.IEEETable, record[:4]), crc32.IEEETable, record[8:])
}

// pages returns n, rounded up to whole pages of the log.
func pages(n int) int { return (n + redoPage - 1) / redoPage * redoPage }

// A redo is the redo log of an open store. Nothing of it may be used by several
// goroutines at a time. A nil redo has no room for any commit.
type redo struct {
	f    *os.File
	kept *bolt.Tx // at the base
	sum  uint32   // of the head
	end  int64    // where the next record goes
	last uint64   // the number of the last commit, the base's at first
	buf  []byte   // a record, from an address that a page may begin at

	sync   func(*os.File) error // datasync; tests replace it
	failed bool                 // it may or may not have what was written last: nothing is added any more
}

// openRedo opens the log of the store at path, which it makes if there is none.
func openRedo(path string) (*redo, error) {
	f, err := os.OpenFile(RedoPath(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(prepare(f), syncDir(filepath.Dir(path))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	_ = setDirect(f, true) // else it is written like any file
	return &redo{f: f, sync: datasync}, nil
}

// prepare has f take up the space of a log, so that no later sync has to write where
// the file lies.
func prepare(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= redoSize {
		return nil
	}
	return fillZero(f, redoSize)
}

// syncDir has the names in a directory be on disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// takes reports whether the commit with these changes, after which the state is st, can
// be the next one. It cannot where the one before is not here.
func (r *redo) takes(st state, changes []byte) bool {
	return r != nil && !r.failed && st.commit == r.last+1 && r.end+int64(pages(recordHead+len(changes))) <= redoSize
}

// empty reports whether no commit stands in the log, so that it keeps no pages but those
// in use.
func (r *redo) empty() bool { return r == nil || r.end == redoPage && !r.failed }

// gone reports whether somebody has removed the log, or cut it off: what it says is not
// found after a crash.
func (r *redo) gone() bool {
	info, err := r.f.Stat()
	if err != nil {
		return true
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return info.Size() < redoSize || ok && sys.Nlink == 0
}

// write appends a commit, and returns when it is on disk.
func (r *redo) write(st state, changes []byte) error {
	n := recordHead + len(changes)
	record := binary.BigEndian.AppendUint32(r.room(n)[:0], uint32(n))
	record = append(record, 0, 0, 0, 0)
	record = append(st.append(record), changes...)
	binary.BigEndian.PutUint32(record[4:], recordSum(r.sum, record))
	if err := r.put(n, r.end); err != nil {
		return err
	}
	r.end += int64(pages(n))
	r.last = st.commit
	return nil
}

// room returns the memory for the next n bytes to be put.
func (r *redo) room(n int) []byte {
	if len(r.buf) < pages(n) {
		room := make([]byte, pages(n)+redoPage)
		past := uintptr(unsafe.Pointer(unsafe.SliceData(room))) % redoPage
		r.buf = room[(redoPage-past)%redoPage:]
	}
	return r.buf[:n:n]
}

// put makes the n bytes that are in [redo.room], with zeros up to a whole page, durable.
func (r *redo) put(n int, at int64) error {
	whole := r.buf[:pages(n)]
	clear(whole[n:])
	_, err := r.f.WriteAt(whole, at)
	if errors.Is(err, syscall.EINVAL) && setDirect(r.f, false) == nil { // larger blocks, say
		_, err = r.f.WriteAt(whole, at)
	}
	if err == nil {
		err = r.sync(r.f)
	}
	if err != nil {
		return fmt.Errorf("redo log: %w", err)
	}
	return nil
}

// setDirect has writes to f go to the device and not to the kernel's pages of it, or not
// any more. Then a sync finds nothing to write: on ext4 the two take a fifth less.
func setDirect(f *os.File, direct bool) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	flags &^= unix.O_DIRECT
	if direct {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	return os.NewSyscallError("fcntl", err)
}

// begin makes the base what the store's file, all of which is on disk, says now. Until
// it returns nil, the base before still is one, and its pages are kept.
func (r *redo) begin(s *Store) error {
	kept, err := s.db.Begin(false)
	if err != nil {
		return err
	}
	head, st, err := s.base(kept)
	if err == nil {
		err = r.setHead(head)
	}
	if err != nil {
		return errors.Join(err, kept.Rollback())
	}
	r.drop()
	r.kept, r.sum, r.end, r.last = kept, binary.BigEndian.Uint32(head[redoHead:]), redoPage, st.commit
	return nil
}

// base returns the head of a log that begins with what bt reads, the last commit.
func (s *Store) base(bt *bolt.Tx) ([]byte, state, error) {
	now, err := newBatch(bt, s.id)
	if err != nil {
		return nil, state{}, err
	}
	b := base{id: s.id, st: now.st}
	if _, err := unix.Getrandom(b.nonce[:], 0); err != nil { // so few bytes come at once
		return nil, state{}, os.NewSyscallError("getrandom", err)
	}
	for i := range b.metas {
		if _, err := s.f.ReadAt(b.metas[i][:], int64(i*s.db.Info().PageSize)); err != nil {
			return nil, state{}, err
		}
	}
	return b.append(nil), now.st, nil
}

// close closes the log. If all of the store's file is on disk, the log names no base any
// more.
func (r *redo) close(synced bool) error {
	if r == nil {
		return nil
	}
	var err error
	if synced {
		err = r.setHead(make([]byte, redoHead+4))
	}
	r.drop()
	return errors.Join(err, r.f.Close())
}

// leave closes the log where bbolt cannot be asked for anything.
func (r *redo) leave() error {
	if r == nil {
		return nil
	}
	return r.f.Close()
}

// remove closes the log and removes it. All of the store's file is on disk. Where a log
// cannot be removed it is of an earlier time, which opening sees.
func (r *redo) remove() {
	_ = r.close(true)
	_ = removeRedo(strings.TrimSuffix(r.f.Name(), RedoPath("")))
}

// removeRedo removes the log of the store at path, if there is one: its file goes on
// without.
func removeRedo(path string) error {
	err := os.Remove(RedoPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(filepath.Dir(path)))
}

// setHead replaces the head. It lies in one sector, so a crash leaves one or the other.
func (r *redo) setHead(head []byte) error {
	return r.put(copy(r.room(len(head)), head), 0)
}

// datasync syncs what f says, and its size.
func datasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// drop lets the base's pages go.
func (r *redo) drop() {
	if r.kept != nil {
		_ = r.kept.Rollback() // of a transaction that only read
		r.kept = nil
	}
}
