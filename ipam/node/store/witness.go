package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Witness is a line outside the store that says how many commits the store has answered. A
// reboot takes it away.
type Witness interface {
	// Read returns the line, and an error that is fs.ErrNotExist if there is none.
	Read() ([]byte, error)
	// Write replaces the line, by one that is as long.
	Write(line []byte) error
	// Close lets go of what Write needs, until the next one.
	Close() error
	// String is what errors call it.
	String() string
}

// WitnessFile returns the Witness that is a file, whose file system a reboot empties (/run).
func WitnessFile(path string) Witness { return &witnessFile{path: path} }

type witnessFile struct {
	path string
	f    *os.File // nil before the first write
}

func (w *witnessFile) String() string        { return w.path }
func (w *witnessFile) Read() ([]byte, error) { return os.ReadFile(w.path) }

func (w *witnessFile) Write(line []byte) (err error) {
	if w.f == nil {
		if w.f, err = os.OpenFile(w.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return err
		}
	}
	_, err = w.f.WriteAt(line, 0)
	return err
}

func (w *witnessFile) Close() error {
	f := w.f
	if f == nil {
		return nil
	}
	w.f = nil
	return f.Close()
}

// The line has a fixed length, so that a file's is replaced by one write:
//
//	tenure-witness 1 <store ID> <commit, 20 digits>\n
const witnessLine = "tenure-witness 1 %s %020d\n"

// agrees reports whether the witness, if the options name one, is there and has seen this store.
// A store that it has seen later, or another store, is ErrOlder.
func (o Options) agrees(id protocol.StoreID, commit uint64) (bool, error) {
	if o.Witness == nil {
		return false, nil
	}
	text, err := o.Witness.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var (
		seen protocol.StoreID
		last uint64
	)
	if _, err := fmt.Sscanf(string(text), witnessLine, &seen, &last); err != nil {
		return false, fmt.Errorf("witness %s reads %.80q: %w", o.Witness, text, ErrOlder)
	}
	if seen != id {
		return false, fmt.Errorf("%w: witness %s is of store %s, and this is %s", ErrOlder, o.Witness, seen, id)
	}
	if last > commit {
		return false, fmt.Errorf("%w: witness %s has seen commit %d, and the file is at %d", ErrOlder, o.Witness, last, commit)
	}
	return true, nil
}

// tellWitness makes commit the last that the witness has seen.
func (o Options) tellWitness(id protocol.StoreID, commit uint64) error {
	if o.Witness == nil {
		return nil
	}
	if err := o.Witness.Write(fmt.Appendf(nil, witnessLine, id, commit)); err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	return nil
}

func (o Options) closeWitness() error {
	if o.Witness == nil {
		return nil
	}
	return o.Witness.Close()
}
