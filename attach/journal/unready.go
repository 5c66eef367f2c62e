package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"

	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/lean/plainfile"
)

func (d Dir) unreadyFile() string { return filepath.Join(d.Path, "unready") }

// SetUnready has STATUS fail with the reason why, in any boot, until it is called again. The empty
// reason ends that. The agent calls it: a STATUS does not ask the agent.
func (d Dir) SetUnready(why string) error {
	if before, err := d.Unready(); err == nil && before == why {
		return nil
	}
	if why == "" {
		if err := atomicfile.Remove(d.unreadyFile()); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		return nil
	}
	if err := atomicfile.MakeDir(d.Path); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	temp := fmt.Sprintf("%s.%016x%s", d.unreadyFile(), rand.Uint64(), suffixTemp)
	if err := atomicfile.Create(d.unreadyFile(), temp, atomicfile.Seal([]byte(why)), reached); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Unready returns the reason that SetUnready was called with last; empty: none.
func (d Dir) Unready() (why string, err error) {
	text, err := plainfile.Read(d.unreadyFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	body, err := atomicfile.Open(text)
	if err != nil {
		return "", &DamagedError{Path: d.unreadyFile(), Err: err}
	}
	return string(body), nil
}
