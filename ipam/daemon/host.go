package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
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

// BootID returns what tells this boot of the machine from others.
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Clock is the machine's: the boot clock counts suspends too.
type Clock struct{}

// Now implements agent.Clock.
func (Clock) Now() protocol.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("daemon: the kernel has no boot clock: %v", err)) // every Linux since 2.6.39 has one
	}
	return protocol.Instant{Boot: time.Duration(ts.Nano()), Wall: time.Now().Round(0)}
}

// After implements agent.Clock.
func (Clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Namespaces looks at the host's network namespaces.
type Namespaces struct {
	// Boot is the machine's current boot.
	Boot string
}

// Gone implements agent.Namespaces. A namespace of an earlier boot is gone. One
// whose directory this process does not see cannot be verified.
func (n Namespaces) Gone(att store.Attachment) bool {
	if att.Boot != "" && att.Boot != n.Boot {
		return true
	}
	if _, err := os.Stat(filepath.Dir(att.Netns)); err != nil && !strings.HasPrefix(att.Netns, "/proc/") {
		return false
	}
	return netns.Gone(att.Netns, att.NetnsID)
}
