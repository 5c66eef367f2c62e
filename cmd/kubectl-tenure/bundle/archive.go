package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// An archive is a compressed tar that is written as its files come. Several may add at once.
type archive struct {
	mu    sync.Mutex
	gz    *gzip.Writer
	tar   *tar.Writer
	dir   string // that all files are in
	now   time.Time
	files int
	bytes int64 // of all files, as they are
}

func newArchive(to io.Writer, dir string, now time.Time) *archive {
	gz := gzip.NewWriter(to)
	return &archive{gz: gz, tar: tar.NewWriter(gz), dir: dir, now: now}
}

// add adds a file.
func (a *archive) add(name string, text []byte) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is no name of a file in a bundle", name)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: a.dir + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now.Truncate(time.Second)}
	if err := a.tar.WriteHeader(h); err != nil {
		return &writeError{err}
	}
	if _, err := a.tar.Write(text); err != nil {
		return &writeError{err}
	}
	a.files++
	a.bytes += int64(len(text))
	return nil
}

// close writes the end.
func (a *archive) close() error {
	if err := errors.Join(a.tar.Close(), a.gz.Close()); err != nil {
		return &writeError{err}
	}
	return nil
}

// A writeError says that the bundle cannot be written: then nothing else is worth reading.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write the bundle: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// A file is where a bundle goes: under a name of its own until it is whole.
type file struct {
	*os.File
	final string
}

// createFile makes a file that will be called final. It must not be there yet.
func createFile(final string) (*file, error) {
	if err := absent(final); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(final), ".tenure-bundle-*.part") // the user's alone
	if err != nil {
		return nil, fmt.Errorf("make the bundle: %w", err)
	}
	return &file{f, final}, nil
}

// absent returns an error if there is something of that name.
func absent(name string) error {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("make the bundle: %w", err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name a file in it", name)
	}
	return fmt.Errorf("%s is there already: remove it, or give another name", name)
}

// finish gives the file its name, or removes it.
func (f *file) finish() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = f.rename()
	}
	removed := os.Remove(f.Name()) // also where it has both names
	if errors.Is(removed, fs.ErrNotExist) {
		removed = nil
	}
	return errors.Join(err, removed)
}

// rename gives the file its final name. It may keep the other one.
func (f *file) rename() error {
	// A link fails where somebody has made a file of that name meanwhile. Not all file systems have
	// links.
	err := os.Link(f.Name(), f.final)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := absent(f.final); err != nil {
		return err
	}
	return os.Rename(f.Name(), f.final)
}

// discard removes the file.
func (f *file) discard() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }
