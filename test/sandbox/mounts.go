package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Directories of the sandbox on its tmpfs.
const (
	tmpDir   = "/run/tmp"   // TMPDIR
	netnsDir = "/run/netns" // named network namespaces, as ip-netns(8) expects them
	cgroups  = "/sys/fs/cgroup"
)

// mount is one call of mount(2).
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

// prepare turns fresh namespaces into the sandbox that the package describes.
// It runs as pid 1, before the program.
func prepare() error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV
	// Private first: nothing below may reach the mounts outside.
	for _, m := range []mount{
		{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE},
		{source: "proc", target: "/proc", fstype: "proc", flags: quiet | unix.MS_NOEXEC},
		{source: "sandbox", target: "/run", fstype: "tmpfs", flags: quiet, data: "mode=755"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	for dir, mode := range map[string]fs.FileMode{tmpDir: 0o777 | fs.ModeSticky, netnsDir: 0o755, "/run/lock": 0o777 | fs.ModeSticky} {
		if err := os.Mkdir(dir, mode); err != nil {
			return fmt.Errorf("prepare /run: %w", err)
		}
		if err := os.Chmod(dir, mode); err != nil { // past the umask
			return fmt.Errorf("prepare /run: %w", err)
		}
	}
	if err := freshSys(); err != nil {
		return err
	}
	if err := shareVarRun(); err != nil {
		return err
	}
	// As ip-netns(8) does it: who has a mount namespace within the sandbox sees the
	// network namespaces that are made later.
	for _, m := range []mount{{source: netnsDir, target: netnsDir, flags: unix.MS_BIND}, {target: netnsDir, flags: unix.MS_SHARED}} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte("sandbox")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return loopbackUp()
}

// freshSys mounts a sysfs that shows the new network namespace, and puts the
// cgroup hierarchies back on it: they are mounts of their own, of which there
// may be many (version 1, hybrid) or one.
func freshSys() error {
	const aside = "/run/cgroup"
	if err := os.Mkdir(aside, 0o755); err != nil {
		return fmt.Errorf("prepare /run: %w", err)
	}
	for _, m := range []mount{
		{source: cgroups, target: aside, flags: unix.MS_BIND | unix.MS_REC},
		{source: "sysfs", target: "/sys", fstype: "sysfs", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{source: aside, target: cgroups, flags: unix.MS_MOVE},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := os.Remove(aside); err != nil {
		return fmt.Errorf("prepare /run: %w", err)
	}
	return nil
}

// shareVarRun makes /var/run the private /run where it is not a link to it.
func shareVarRun() error {
	run, err := os.Stat("/run")
	if err != nil {
		return fmt.Errorf("prepare /run: %w", err)
	}
	varRun, err := os.Stat("/var/run")
	if errors.Is(err, fs.ErrNotExist) || err == nil && os.SameFile(run, varRun) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("prepare /var/run: %w", err)
	}
	return mount{source: "/run", target: "/var/run", flags: unix.MS_BIND}.do()
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	return nil
}
