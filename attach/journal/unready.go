package journal

import (
	"fmt"
	"path/filepath"

	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

func (d Dir) unreadyFile() string { return filepath.Join(d.Path, "unready") }

// SetUnready has STATUS fail with the reason why, in any boot, until it is called again. The empty
// reason ends that. The agent calls it: a STATUS does not ask the agent.
func (d Dir) SetUnready(why string) error {
	if why == "" {
		if err := atomicfile.Remove(d.unreadyFile()); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		return nil
	}
	_, err := d.keep(d.unreadyFile(), []byte(why))
	return err
}

// Unready returns the reason that SetUnready was called with last; empty: none.
func (d Dir) Unready() (why string, err error) {
	body, err := kept(d.unreadyFile())
	return string(body), err
}
