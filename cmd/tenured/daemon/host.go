package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// MachineID returns what tells this machine from others for as long as it lives:
// the firmware's UUID, which a disk that is copied or lost does not carry, else
// the operating system's machine ID.
func MachineID() (string, error) {
	var errs []error
	for _, path := range []string{"/sys/class/dmi/id/product_uuid", "/etc/machine-id", "/var/lib/dbus/machine-id"} {
		text, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if id := strings.ToLower(strings.TrimSpace(string(text))); id != "" {
			return id, nil
		}
	}
	return "", fmt.Errorf("find out which machine this is (give it with --machine-id): %w", errors.Join(errs...))
}

// DefaultBootFile is where the kernel tells one boot of a machine from another.
const DefaultBootFile = "/proc/sys/kernel/random/boot_id"

// BootID returns what tells this boot of the machine from others, as file says.
func BootID(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Clock is the machine's: the boot clock counts suspends too.
type Clock struct{}

// Now implements sched.Clock.
func (Clock) Now() protocol.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("daemon: the kernel has no boot clock: %v", err)) // every Linux since 2.6.39 has one
	}
	return protocol.Instant{Boot: time.Duration(ts.Nano()), Wall: time.Now().Round(0)}
}

// After implements sched.Clock.
func (Clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// host looks at what the host has of pods.
type host struct {
	// Boot is the machine's current boot.
	Boot string
	// NetnsDirs are where runtimes keep network namespaces, ResultDirs where the CNI
	// library keeps results.
	NetnsDirs, ResultDirs []string
	// HostLocalDir is host-local's default directory.
	HostLocalDir string
	// SeesHost says that this process is in the host's process namespace: only
	// then does a missing /proc/PID mean that the process is gone.
	SeesHost bool
}

// DefaultNetnsDirs are where runtimes keep network namespaces.
func DefaultNetnsDirs() []string { return []string{"/run/netns", "/var/run/netns"} }

// hostFromHere looks from where this process is.
func hostFromHere(c Config) host {
	return host{
		Boot: c.Agent.Boot, NetnsDirs: c.NetnsDirs, ResultDirs: c.ResultDirs, HostLocalDir: c.HostLocalDir,
		SeesHost: netns.SeesHost(),
	}
}

// Cached implements sightings.Host.
func (h host) Cached() (entries []cniresults.Entry, unread []*cniresults.FileError, err error) {
	return cniresults.Read(h.ResultDirs)
}

// Netns implements agent.Host: those in the directories where runtimes keep them,
// and those that the CNI library was given.
func (h host) Netns() ([]store.Netns, error) {
	var paths []string
	for _, dir := range h.NetnsDirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	cached, _, err := h.Cached()
	if err != nil {
		return nil, err
	}
	for _, e := range cached {
		paths = append(paths, e.Netns)
	}
	slices.Sort(paths)
	var all []store.Netns
	for _, path := range slices.Compact(paths) {
		if id := netns.ID(path); id != "" {
			all = append(all, store.Netns{Path: path, ID: id})
		}
	}
	return all, nil
}

// Gone implements agent.Host. A namespace of an earlier boot is gone.
func (h host) Gone(att store.Attachment) bool {
	return att.Boot != "" && att.Boot != h.Boot || netns.SurelyGone(att.Netns, att.NetnsID, h.SeesHost)
}
