package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const envLimit = "STORE_TEST_LIMIT"

// A fullDisk is what fills up under a store.
type fullDisk struct {
	path string // of the store
	fill func() error
	free func() error
}

// useUp adds attachments until there is no room and returns how many fitted.
// What is added and freed at a time is what an ADD and a DEL do.
func (d *fullDisk) useUp(s *Store, from int) (added int, err error) {
	for {
		err := s.Update(context.Background(), func(tx *Tx) error { return addLike(tx, from+added) })
		switch {
		case err == nil:
			added++
		case errors.Is(err, ErrFull):
			cause := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG)
			if !cause || !strings.Contains(err.Error(), d.path) || !strings.Contains(err.Error(), "make room") {
				return 0, fmt.Errorf("the error %q does not say where, why and what to do", err)
			}
			return added, nil
		default:
			return 0, err
		}
	}
}

// exercise fills the disk under a store: what adds is refused, what frees works,
// and so does everything once there is room.
func (d *fullDisk) exercise() (err error) {
	s, err := Open(d.path, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	right := protocol.Right{Kind: protocol.RightLease, Name: "r", Phase: protocol.Held}
	if err := s.Update(context.Background(), func(tx *Tx) error { return tx.PutRight(right) }); err != nil {
		return err
	}
	if err := d.fill(); err != nil {
		return err
	}
	const early = 3
	for n := range early {
		if err := s.Update(context.Background(), func(tx *Tx) error { return addLike(tx, n) }); err != nil {
			return fmt.Errorf("while the file has room: %w", err)
		}
	}
	added, err := d.useUp(s, early)
	if err != nil {
		return err
	}
	if err := d.refuses(s, right); err != nil {
		return err
	}
	// Frees, together and one by one, until nothing is left.
	for n := range early + added {
		if err := s.Update(context.Background(), func(tx *Tx) error { return tx.DeleteAttachment(sampleAttachment(n).Key) }); err != nil {
			return fmt.Errorf("delete %d of %d on a full disk: %w", n, early+added, err)
		}
	}
	again, err := d.useUp(s, 1<<20)
	if err != nil || again < added/2 {
		return fmt.Errorf("%d fit into what %d left: %w", again, added, err)
	}
	if err := d.free(); err != nil {
		return err
	}
	for n := range 500 {
		if err := s.Update(context.Background(), func(tx *Tx) error { return addLike(tx, 1<<21+n) }); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
	}
	got, err := tryRead(s)
	if err != nil || len(got.Attachments) != again+500 {
		return fmt.Errorf("%d attachments are recorded, %d were answered: %w", len(got.Attachments), again+500, err)
	}
	return nil
}

// refuses reports what a full store lets pass, or does not let pass, wrongly.
func (d *fullDisk) refuses(s *Store, right protocol.Right) error {
	another, released := right, right
	another.Name = "another"
	released.Phase, released.Revision = protocol.Releasing, "123456789"
	calls := []struct {
		name string
		fn   func(*Tx) error
		full bool
	}{
		{"another right", func(tx *Tx) error { return tx.PutRight(another) }, true},
		{"a large table", func(tx *Tx) error {
			for n := range 40000 {
				if err := tx.Table("large").Put(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, 100)); err != nil {
					return err
				}
			}
			return nil
		}, true},
		{"a right's next phase", func(tx *Tx) error { return tx.PutRight(released) }, false},
		{"an attachment in place of another", func(tx *Tx) error {
			return errors.Join(tx.DeleteAttachment(sampleAttachment(1).Key), tx.PutAttachment(sampleAttachment(1)))
		}, false},
	}
	for _, c := range calls {
		if err := s.Update(context.Background(), c.fn); errors.Is(err, ErrFull) != c.full || !c.full && err != nil {
			return fmt.Errorf("%s on a full disk: %w; want ErrFull: %v", c.name, err, c.full)
		}
	}
	return s.View(func(tx *Tx) error {
		r, _, err := tx.Right("r")
		if _, ok, err := tx.Right("another"); ok || err != nil {
			return fmt.Errorf("a change that was refused is there: %w", err)
		}
		if r.Phase != protocol.Releasing || len(tx.Pools()) != 1 {
			return fmt.Errorf("right %v, pools %v", r, tx.Pools())
		}
		return err
	})
}

// mountTmpfs puts a small file system at dir, in a mount namespace of this
// process.
func mountTmpfs(dir string) error {
	return errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"))
}

// runLimited is a process whose disk is full, or may not be written.
func runLimited() {
	d := &fullDisk{path: os.Getenv(envPath)}
	run := d.exercise
	switch os.Getenv(envLimit) {
	case "file size":
		// The kernel refuses to make any file larger, as a full disk would.
		signal.Ignore(syscall.SIGXFSZ)
		limit := func(n uint64) error {
			return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: math.MaxUint64})
		}
		d.fill = func() error { return limit(reserve + step + 4096) }
		d.free = func() error { return limit(math.MaxUint64) }
	case "tmpfs":
		ballast := filepath.Join(filepath.Dir(d.path), "ballast")
		run = func() error { return errors.Join(mountTmpfs(filepath.Dir(d.path)), d.exercise()) }
		d.fill = func() error {
			if err := os.WriteFile(ballast, make([]byte, 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				return fmt.Errorf("the tmpfs takes it all: %w", err)
			}
			return nil
		}
		d.free = func() error { return os.Remove(ballast) }
	case "read-only mount":
		run = d.exerciseReadOnly
	}
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// TestDiskFull fills the disk in every way that is at hand: by a limit on the
// size of files, which needs no rights, and on a small file system where the test
// may mount one.
func TestDiskFull(t *testing.T) {
	limits := map[string]*syscall.SysProcAttr{"file size": {}}
	if os.Geteuid() == 0 {
		limits["tmpfs"] = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}
	for limit, attr := range limits {
		t.Run(limit, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envRun+"=limited", envLimit+"="+limit, envPath+"="+filepath.Join(t.TempDir(), "store.db"))
			cmd.SysProcAttr = attr
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Run("hook", func(t *testing.T) {
		var full atomic.Bool
		d := fullDisk{path: filepath.Join(t.TempDir(), "store.db")}
		d.fill = func() error { full.Store(true); return nil }
		d.free = func() error { full.Store(false); return nil }
		s, err := Open(d.path, Options{grow: func(f *os.File, to int64) error {
			if full.Load() {
				return syscall.ENOSPC
			}
			return growFile(f, to)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_ = d.fill()
		added, err := d.useUp(s, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(sampleAttachment(1 << 20)) })
		if !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Update = %v; want ErrFull that wraps ENOSPC", err)
		}
		update(t, s, func(tx *Tx) error { return tx.DeleteAttachment(sampleAttachment(added - 1).Key) })
		_ = d.free()
		update(t, s, func(tx *Tx) error { return tx.PutAttachment(sampleAttachment(1 << 20)) })
	})
}

// exerciseReadOnly makes a store read-only by the file system that it is on.
func (d *fullDisk) exerciseReadOnly() error {
	dir := filepath.Dir(d.path)
	if err := mountTmpfs(dir); err != nil {
		return err
	}
	s, err := Open(d.path, Options{})
	if err != nil {
		return err
	}
	err = errors.Join(s.Update(context.Background(), func(tx *Tx) error { return tx.PutAttachment(claimed(1)) }), s.Close(),
		syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	if err != nil {
		return err
	}
	return errors.Join(refusedAsReadOnly(d.path), refusedAsReadOnly(filepath.Join(dir, "another.db")))
}

// refusedAsReadOnly reports it if a store opens for writing where it cannot be
// written, or, if there is one, does not open for reading.
func refusedAsReadOnly(path string) error {
	s, err := Open(path, Options{})
	if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "writable") {
		return fmt.Errorf("Open = %v, %w; want ErrReadOnly with the path and what to do", s, err)
	}
	if s, err = Open(path, Options{ReadOnly: true}); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	got, err := tryRead(s)
	if len(got.Attachments) != 1 {
		err = fmt.Errorf("%d attachments; want 1: %w", len(got.Attachments), err)
	}
	return errors.Join(err, s.Close())
}

// TestReadOnlyDisk opens a store that may not be written: for root by a mount, as
// root may write any file; for others by its mode.
func TestReadOnlyDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if os.Geteuid() == 0 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envRun+"=limited", envLimit+"=read-only mount", envPath+"="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	s := reopen(t, path, Options{})
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	if err := errors.Join(s.Close(), os.Chmod(path, 0o400)); err != nil {
		t.Fatal(err)
	}
	if err := refusedAsReadOnly(path); err != nil {
		t.Error(err)
	}
}

// TestFullAtCreation makes a store where there is no room for one.
func TestFullAtCreation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	_, err := Open(path, Options{grow: func(*os.File, int64) error { return syscall.ENOSPC }})
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), path) {
		t.Errorf("Open = %v; want ErrFull with the path", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	reopen(t, path, Options{})
}

// TestGrowFile: a file that was made larger takes up its space.
func TestGrowFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := growFile(f, 300<<10); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil || info.Size() != 300<<10 || info.Sys().(*syscall.Stat_t).Blocks*512 < 300<<10 {
		t.Errorf("the file is %d bytes, %v; want all of it to take up space", info.Size(), err)
	}
	if text := load(t, f.Name()); string(text[:5]) != "text\x00" {
		t.Errorf("the file begins %q", text[:5])
	}
}
