package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A witness is a file outside the store that says how many commits the store
// has answered. A nil witness does nothing.
type witness struct {
	path string
	f    *os.File // nil before the first write
	line []byte
}

// The witness is one line of a fixed length, so that it is replaced by one write:
//
//	tenure-witness 1 <store ID> <commit, 20 digits>\n
const witnessLine = "tenure-witness 1 %s %020d\n"

// agrees reports whether there is a witness and the store is the one it saw. A
// store that it has seen later, or another store, is ErrOlder.
func (w *witness) agrees(id protocol.StoreID, commit uint64) (bool, error) {
	text, err := os.ReadFile(w.path)
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
		return false, fmt.Errorf("witness %s reads %.80q: %w", w.path, text, ErrOlder)
	}
	if seen != id {
		return false, fmt.Errorf("%w: witness %s is of store %s, and this is %s", ErrOlder, w.path, seen, id)
	}
	if last > commit {
		return false, fmt.Errorf("%w: witness %s has seen commit %d, and the file is at %d", ErrOlder, w.path, last, commit)
	}
	return true, nil
}

// write makes commit the last that the witness has seen.
func (w *witness) write(id protocol.StoreID, commit uint64) error {
	if w == nil {
		return nil
	}
	if w.f == nil {
		f, err := os.OpenFile(w.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("witness: %w", err)
		}
		w.f = f
	}
	w.line = fmt.Appendf(w.line[:0], witnessLine, id, commit)
	if _, err := w.f.WriteAt(w.line, 0); err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	return nil
}

func (w *witness) close() error {
	if w == nil || w.f == nil {
		return nil
	}
	return w.f.Close()
}
