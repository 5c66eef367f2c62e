// Package delqueue keeps the DELs that found no agent: a directory with one file
// for each, written by the plugin before it answers and removed by the agent
// once its store has applied it. Docs and flags call it the journal.
//
// The agent shares the directory with plugins that live for milliseconds and may
// be killed at any step, so nothing in it is ever changed in place:
//
//	<key>.<random>.del          an entry: checksum, space, JSON, newline
//	<key>.<random>.tmp          an entry being written; not acknowledged to anybody
//	<key>.<random>.del.damaged  an entry that does not read, set aside by List
//
// <key> is a hash of the attachment's key, so that the entries of one attachment
// are found by name; <random> lets one attachment have several.
package delqueue

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

// DefaultDir is where plugin and agent keep the journal unless they are told
// otherwise.
const DefaultDir = "/var/lib/tenure/journal"

// An Entry is one DEL that the runtime was told had succeeded, and that no store
// has applied yet.
type Entry struct {
	// ID names the entry in its directory. [Write] makes it.
	ID string `json:"-"`

	// Network, ContainerID and IfName are the attachment's key.
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`

	// Netns is CNI_NETNS, empty where the runtime gave none.
	Netns string `json:"netns,omitempty"`

	// Time is when the DEL was journalled, for people: clocks jump, so nothing
	// is decided by it.
	Time time.Time `json:"time"`
}

const (
	suffixEntry   = ".del"
	suffixTemp    = ".tmp"
	suffixDamaged = ".damaged"
)

// Write adds e to dir, which it makes where it does not exist. When it returns
// nil the entry survives a crash of everything. The ID of e is ignored; that of
// the new entry is returned.
func Write(dir string, e Entry) (id string, err error) {
	if err := atomicfile.MakeDir(dir); err != nil {
		return "", fmt.Errorf("journal of DELs: %w", err)
	}
	text, err := e.encode()
	if err != nil {
		return "", fmt.Errorf("journal of DELs: %w", err)
	}
	stem := keyHash(e.Network, e.ContainerID, e.IfName) + "." + fmt.Sprintf("%016x", rand.Uint64())
	temp, final := filepath.Join(dir, stem+suffixTemp), filepath.Join(dir, stem+suffixEntry)
	if err := atomicfile.Create(final, temp, text, reached); err != nil {
		return "", fmt.Errorf("journal of DELs: %w", err)
	}
	return stem + suffixEntry, nil
}

// reached is called at each step of Write and Remove. Tests replace it, to die
// there.
var reached = func(_ string) {}

// List returns the entries of dir in the order in which they were journalled,
// as far as the clock tells. A missing directory has none. An entry that does
// not read is renamed, so that it is not met again but not lost either, and its
// new name is in damaged; whoever lists must report it.
func List(dir string) (entries []Entry, damaged []string, err error) {
	return list(dir, "")
}

// OfKey lists as [List] does, for one attachment alone. If there are no entries, it costs one
// look into the directory.
func OfKey(dir, network, containerID, ifName string) (entries []Entry, damaged []string, err error) {
	all, damaged, err := list(dir, keyHash(network, containerID, ifName)+".")
	for _, e := range all { // two keys may share a hash
		if e.Network == network && e.ContainerID == containerID && e.IfName == ifName {
			entries = append(entries, e)
		}
	}
	return entries, damaged, err
}

func list(dir, prefix string) (entries []Entry, damaged []string, err error) {
	names, err := atomicfile.Names(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("journal of DELs: %w", err)
	}
	var errs []error
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffixEntry) {
			continue
		}
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e, err := decode(text)
		if err != nil {
			if err := os.Rename(path, path+suffixDamaged); err != nil {
				errs = append(errs, err)
			}
			damaged = append(damaged, path+suffixDamaged)
			continue
		}
		e.ID = name
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	if len(errs) > 0 {
		return entries, damaged, fmt.Errorf("journal of DELs: %w", errors.Join(errs...))
	}
	return entries, damaged, nil
}

// Remove removes entries by their IDs. When it returns nil they do not come back
// after a crash. Removing what is gone is no error.
func Remove(dir string, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var errs []error
	for _, e := range entries {
		if e.ID == "" || e.ID != filepath.Base(e.ID) {
			errs = append(errs, fmt.Errorf("%q is not the ID of an entry", e.ID))
			continue
		}
		errs = append(errs, atomicfile.Remove(filepath.Join(dir, e.ID)))
		reached("removed")
	}
	if err := errors.Join(append(errs, atomicfile.SyncDir(dir))...); err != nil {
		return fmt.Errorf("journal of DELs: %w", err)
	}
	return nil
}

// Damaged returns the paths of the entries that were set aside in dir.
func Damaged(dir string) ([]string, error) {
	names, err := atomicfile.Names(dir)
	if err != nil {
		return nil, fmt.Errorf("journal of DELs: %w", err)
	}
	var paths []string
	for _, name := range names {
		if strings.HasSuffix(name, suffixDamaged) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// Sweep removes what writers that were killed left behind: entries being written
// whose file is older than before. Those were never acknowledged to anybody.
func Sweep(dir string, before time.Time) error {
	if err := atomicfile.Sweep(dir, suffixTemp, before); err != nil {
		return fmt.Errorf("journal of DELs: %w", err)
	}
	return nil
}

// encode returns the text of e's file.
func (e Entry) encode() ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return atomicfile.Seal(body), nil
}

// decode is the inverse of encode.
func decode(text []byte) (Entry, error) {
	body, err := atomicfile.Open(text)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	if err := json.Unmarshal(body, &e); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// keyHash names an attachment in file names. The lengths keep ("a", "bc") and
// ("ab", "c") apart.
func keyHash(network, containerID, ifName string) string {
	h := fnv.New128a()
	fmt.Fprintf(h, "%d %s %d %s %d %s", len(network), network, len(containerID), containerID, len(ifName), ifName)
	return fmt.Sprintf("%x", h.Sum(nil))
}
