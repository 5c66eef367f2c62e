package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// The file is made larger here alone, ahead of need, and its new part takes up
// space at once, so that a full disk is met here, before anything is written, and
// not in the middle of a commit. bbolt is told to stay within it (MaxSize).
//
//	+------ in use ------+- free pages -+------ reserve ------+---- step ----+
//	                                    ^ full: a change that adds is refused
//
// The last part, the reserve, is for changes that delete: bbolt writes every
// page that a change touches anew before it can reuse the old one. A commit
// that frees a few hundred attachments at a time touches less than half of it.
const (
	reserve = 1 << 20
	step    = 1 << 20
)

// makeRoom sees to it that the file has room for a batch. full is why it has
// not, and what adds must be refused; err is damage that shows from outside.
func (d *boltFile) makeRoom(bt *bolt.Tx) (full, err error) {
	size, err := d.fileSize()
	if err != nil {
		return nil, err
	}
	defer func() { d.db.MaxSize = int(d.size) }()
	free := int64(d.db.Stats().FreePageN) * int64(d.db.Info().PageSize)
	room := size - bt.Size() + free
	if room >= reserve+step/2 {
		return nil, nil
	}
	err = d.growTo(bt.Size() + reserve + step)
	if err == nil || room >= reserve {
		return nil, nil
	}
	return err, nil
}

// growTo makes the file size bytes large.
func (d *boltFile) growTo(size int64) error {
	if err := d.grow(d.f, size); err != nil {
		return err
	}
	d.size = size
	return nil
}

// fileSize returns how large the file is. One that was cut off or removed while
// it is open would take what is written to it, and not keep it.
func (d *boltFile) fileSize() (int64, error) {
	info, err := d.f.Stat()
	if err != nil {
		return 0, err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && sys.Nlink == 0 {
		return 0, corrupt(errors.New("the file was removed while it was open"))
	}
	if info.Size() < d.size {
		return 0, corrupt(fmt.Errorf("the file was cut off from %d bytes to %d while it was open", d.size, info.Size()))
	}
	d.size = info.Size()
	return d.size, nil
}

// growFile fills f with zeros up to a size, and syncs it. Space that was only set aside
// (fallocate) has each page's first write noted in the file system's journal, and the sync of a
// commit waits for that: on ext4 it then takes up to three times as long.
func growFile(f *os.File, to int64) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	zeros := make([]byte, 64<<10)
	for at := end; at < to; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at)
		if err != nil {
			return errors.Join(err, f.Truncate(end))
		}
		at += int64(n)
	}
	return f.Sync()
}
