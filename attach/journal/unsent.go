package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

// MarkUnsent has Unsent find the report of k, which nobody has accepted yet. The mark need
// not survive a crash of the machine, which no pod's network survives.
func (d Dir) MarkUnsent(k Key) error {
	path := filepath.Join(d.unsent(), k.FileName())
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC // which gives it its time, if it is there
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = atomicfile.MakeDir(d.unsent()); err == nil {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Sent notes that the report of k was accepted. It is no error that there is none.
func (d Dir) Sent(k Key) error {
	if err := atomicfile.Remove(filepath.Join(d.unsent(), k.FileName())); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// An Unsent is a report that nobody has accepted yet.
type Unsent struct {
	Key
	Report facts.Report
}

// Unsent returns at most limit reports that were marked before the given time: of
// younger ones, the process that made them may be sending them. Marks of journals
// that are gone or damaged, or have no report, are removed. A missing directory has none.
func (d Dir) Unsent(before time.Time, limit int) (reports []Unsent, err error) {
	names, err := atomicfile.Names(d.unsent())
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names {
		if len(reports) == limit {
			break
		}
		mark := filepath.Join(d.unsent(), name)
		info, err := os.Lstat(mark)
		if err != nil || !info.ModTime().Before(before) {
			continue // sent meanwhile, or too young
		}
		e, _, err := read(filepath.Join(d.attachments(), name))
		_, damaged := errors.AsType[*DamagedError](err)
		switch {
		case err == nil && e.Report != nil:
			reports = append(reports, Unsent{Key: e.Key, Report: *e.Report})
		case err == nil || damaged || errors.Is(err, fs.ErrNotExist):
			errs = append(errs, atomicfile.Remove(mark))
		default:
			errs = append(errs, err) // it may be read another time, or by a newer version
		}
	}
	return reports, errors.Join(errs...)
}
