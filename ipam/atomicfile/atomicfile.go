// Package atomicfile writes small files that survive a crash, or are not there, and
// lines that tell whether they are whole.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MakeDir makes dir, for root alone, and those above it that are missing, and makes them
// last.
func MakeDir(dir string) error { return makeDir(dir, SyncDir) }

// makeDir does what MakeDir does. sync makes the names in a directory last.
func makeDir(dir string, sync func(dir string) error) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if err := makeDir(above, sync); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) { // made meanwhile, or a link to nothing
		_, err = os.Stat(dir)
	}
	if err != nil {
		return err
	}
	return sync(above)
}

// Create makes the file final with the content text, replacing one that is there.
// It is written as temp first, which must be of the same directory and not exist.
// When Create returns nil the file survives a crash of everything; after an error
// or a crash final is as it was, or new and whole, and temp may be left: see
// [Sweep]. reached is called after each step, for tests that die there.
func Create(final, temp string, text []byte, reached func(step string)) error {
	if err := writeSynced(temp, text, reached); err != nil {
		return errors.Join(err, Remove(temp))
	}
	reached("written")
	if err := os.Rename(temp, final); err != nil {
		return errors.Join(err, Remove(temp))
	}
	reached("renamed")
	if err := SyncDir(filepath.Dir(final)); err != nil {
		return err
	}
	reached("synced")
	return nil
}

// CreateNew creates a file that is not there yet, as Create does, but leaves the syncs to
// [SyncNew]. After a crash of this process, final is not there, or whole. After a crash of the
// machine it may be there in part, until SyncNew has returned. So it must be seen from text
// whether it is whole, and nothing that text is needed to undo may be done before SyncNew has
// returned. The file is open for more to be appended. After an error final is not there.
func CreateNew(final, temp string, text []byte, reached func(step string)) (*os.File, error) {
	f, err := writeNew(temp, text, reached)
	if err != nil {
		return nil, errors.Join(err, Remove(temp))
	}
	reached("written")
	if err := os.Rename(temp, final); err != nil {
		return nil, errors.Join(err, f.Close(), Remove(temp))
	}
	reached("renamed")
	return f, nil
}

// SyncNew has what [CreateNew] has made, and what was appended since, survive a crash of
// everything: file and directory at once, so that a file system with a journal writes that
// once. After an error it may, or not, or in part.
func SyncNew(f *os.File, final string, reached func(step string)) error {
	dir := make(chan error, 1)
	go func() { dir <- SyncDir(filepath.Dir(final)) }()
	if err := errors.Join(f.Sync(), <-dir); err != nil {
		return err
	}
	reached("synced")
	return nil
}

// writeNew makes a new file at path with the content text, which is not on disk yet. After
// an error the file may be there.
func writeNew(path string, text []byte, reached func(step string)) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	reached("created")
	if _, err := f.Write(text); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeSynced makes a new file at path with the content text, on disk.
func writeSynced(path string, text []byte, reached func(step string)) error {
	f, err := writeNew(path, text, reached)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncDir makes the names in dir last.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Remove removes path. That it is gone already is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Names returns what dir has, in no order. A missing directory has nothing.
func Names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// Sweep removes what writers that were killed left behind in dir: files whose
// names end in suffix and that are older than before.
func Sweep(dir, suffix string, before time.Time) error {
	names, err := Names(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err == nil && info.ModTime().Before(before) {
			err = Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Seal makes body, which has no newline, a line of its own: CRC-32, space, body,
// newline.
func Seal(body []byte) []byte {
	return fmt.Appendf(make([]byte, 0, 8+1+len(body)+1), "%08x %s\n", crc32.ChecksumIEEE(body), body)
}

// Open returns the body of a line that [Seal] made. Its error says what is wrong
// with the line.
func Open(line []byte) ([]byte, error) {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	sum, body, ok := bytes.Cut(text, []byte(" "))
	if !ok || !whole {
		return nil, errors.New("it is cut short")
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || len(sum) != 8 {
		return nil, fmt.Errorf("%q is no checksum", sum)
	}
	if got := crc32.ChecksumIEEE(body); uint64(got) != want {
		return nil, fmt.Errorf("checksum %08x does not match %08x", got, want)
	}
	return body, nil
}
