package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

// Why a store is set aside; part of the name that it then has.
const (
	asideDamaged     = "damaged"         // it does not read as it was written
	asideOlder       = "older"           // it has gone back behind what it answered
	asideUnwitnessed = "unwitnessed"     // nothing proves that it is the latest
	asideForeign     = "another-machine" // it came with a disk from another machine
)

// asideKept is how many stores that were set aside stay: enough to look into what
// happened, and not so many that a disk which damages every store fills up.
const asideKept = 4

// asideTime is the form of the time in the name of a store that was set aside:
// such names sort by age.
const asideTime = "20060102T150405.000Z"

// witnessOf is the path of the store's witness: beside the socket, where a reboot
// empties it.
func witnessOf(socket string) string { return socket + ".witness" }

// openStore opens the store at path, whose directory it makes. A store that is
// damaged, or not provably the one that last answered on this machine in this boot,
// would give addresses twice: it is set aside and a new one made, which has another
// ID.
func openStore(ctx context.Context, path string, o store.Options, a agent.Config, log *slog.Logger) (*store.Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the store's directory: %w", err)
	}
	st, err := store.Open(path, o)
	var reason, what string
	switch {
	case errors.Is(err, store.ErrCorrupt):
		reason, what = asideDamaged, err.Error()
	case errors.Is(err, store.ErrOlder):
		reason, what = asideOlder, err.Error()
	case err != nil:
		return nil, fmt.Errorf("open the store: %w", err)
	default:
		if reason, what, err = Doubt(st, a); err != nil || reason != "" {
			if err = errors.Join(err, st.Close()); err != nil {
				return nil, fmt.Errorf("open the store: %w", err)
			}
		}
	}
	if reason == "" {
		return st, nil
	}
	aside, err := setAside(path, reason, time.Now())
	if err != nil {
		return nil, fmt.Errorf("the store %s cannot be used (%s), and cannot be set aside: %w", path, what, err)
	}
	if st, err = store.Open(path, o); err != nil {
		return nil, fmt.Errorf("make a new store in place of the one that was set aside as %s: %w", aside, err)
	}
	log.ErrorContext(ctx, "store set aside, a new one is made: what the node has is read back, and what the lost store held stays frozen while its pods may run",
		"store", path, "aside", aside, "reason", reason, "error", what, "id", st.ID())
	return st, nil
}

// Doubt returns why a store that reads well may all the same not be the one that
// last answered here, for the name and for people; empty if nothing speaks against
// it. The counter beside the socket proves a store; it is lost with every boot, and
// then nothing of the boot before can run any more.
func Doubt(st *store.Store, a agent.Config) (reason, what string, err error) {
	if st.Witnessed() {
		return "", "", nil
	}
	var id store.Identity
	err = st.View(func(tx *store.Tx) error {
		var err error
		id, err = tx.Identity()
		return err
	})
	switch {
	case err != nil:
		return "", "", err
	case id.Boot == a.Boot:
		return asideUnwitnessed, "it has served in this boot of the machine, and the counter that follows it is missing: it may have been put back to an earlier state", nil
	case id.Machine != "" && id.Machine != a.Machine:
		return asideForeign, fmt.Sprintf("it is that of machine %s, and this is machine %s", id.Machine, a.Machine), nil
	}
	return "", "", nil
}

// setAside renames the store, and the redo log that an earlier version may have left, so that the
// name says when and why, and removes the oldest of more than asideKept such files.
func setAside(path, reason string, now time.Time) (aside string, err error) {
	aside = fmt.Sprintf("%s.%s-%s", path, now.UTC().Format(asideTime), reason)
	if _, err := os.Lstat(aside); err == nil {
		return "", fmt.Errorf("%s: %w", aside, fs.ErrExist)
	}
	if err := os.Rename(path, aside); err != nil {
		return "", err
	}
	if err := os.Rename(store.RedoPath(path), store.RedoPath(aside)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	// The new store must not reach the disk under a name that a crash gives back
	// to the old one.
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return "", err
	}
	return aside, dropOldest(path)
}

func dropOldest(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	var asides []string
	for _, e := range entries {
		if isAside(e.Name(), filepath.Base(path)) {
			asides = append(asides, e.Name())
		}
	}
	slices.Sort(asides)
	var errs []error
	for _, name := range asides[:max(0, len(asides)-asideKept)] {
		old := filepath.Join(filepath.Dir(path), name)
		_ = os.Remove(store.RedoPath(old)) // few have one
		errs = append(errs, os.Remove(old))
	}
	return errors.Join(errs...)
}

// isAside reports whether name is that of a store called base that was set aside.
func isAside(name, base string) bool {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return false
	}
	when, reason, ok := strings.Cut(rest, "-")
	if !ok {
		return false
	}
	_, err := time.Parse(asideTime, when)
	return err == nil && slices.Contains([]string{asideDamaged, asideOlder, asideUnwitnessed, asideForeign}, reason)
}
