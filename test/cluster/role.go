package cluster

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/test/sandbox"
)

// envNode tells a process that it is a node's init: the node's directory.
const envNode = "TENURE_CLUSTER_NODE"

// Main runs run in a sandbox, as [sandbox.Main] does, where clusters can be started,
// and returns the exit code for os.Exit. It has to be called early: the program is
// started again as the sandbox's processes and as every node's init.
func Main(run func() int) int {
	if dir := os.Getenv(envNode); dir != "" {
		if err := beInit(dir); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
		}
		return 1 // init ends with an error or not at all
	}
	code := sandbox.Main(sandbox.Options{Disk: true}, run)
	if !sandbox.Inside() {
		if err := Sweep(); err != nil {
			fmt.Fprintln(os.Stderr, "cluster:", err)
			code = max(code, 1)
		}
	}
	return code
}

// handshakeFD is where init says "ready", or what went wrong.
const handshakeFD = 3

// beInit is the life of a node's first process: it mounts what the node sees, and
// then collects what is orphaned, as long as the node is powered.
func beInit(dir string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("%s is set for pid %d: it is for the first process of a node, unset it", envNode, os.Getpid())
	}
	unix.CloseOnExec(handshakeFD)
	handshake := os.NewFile(handshakeFD, "handshake")
	if err := mountAll(dir); err != nil {
		return err
	}
	if _, err := handshake.WriteString("ready"); err != nil {
		return fmt.Errorf("tell that the node is there: %w", err)
	}
	if err := handshake.Close(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(-1, &status, 0, nil); err == unix.ECHILD {
			// Children come by themselves: those of processes that have ended.
			if err := unix.Pause(); err != nil && err != unix.EINTR {
				return err
			}
		}
	}
}

// mountAll makes the node's file system, out of what is below dir.
func mountAll(dir string) error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV
	steps := []mount{
		{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE},
		{source: "proc", target: "/proc", fstype: "proc", flags: quiet | unix.MS_NOEXEC},
		{source: "run", target: "/run", fstype: "tmpfs", flags: quiet, data: "mode=755"},
		over(dir, etcDir),
		over(dir, optDir),
		{source: filepath.Join(dir, "lib"), target: "/var/lib", flags: unix.MS_BIND},
		{source: filepath.Join(dir, "log"), target: "/var/log", flags: unix.MS_BIND},
	}
	for _, m := range steps {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := shield(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(filepath.Base(dir))); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// What the kubelet mounts for pods has to reach them.
	return mount{target: "/", flags: unix.MS_REC | unix.MS_SHARED}.do()
}

// Directories of the machine that a node sees, with what it has written over them.
const (
	etcDir = "/etc"
	optDir = "/opt"
)

// hideMachines hides what the machine may have of CNI, configurations and plugins, from
// the node whose disk is dir.
func hideMachines(dir string) error {
	for _, top := range []string{etcDir, optDir} {
		path := filepath.Join(dir, top, "cni")
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := unix.Setxattr(path, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("make %s opaque: %w", path, err)
		}
	}
	return nil
}

// over is a mount in which everything that is written to target goes below dir.
func over(dir, target string) mount {
	upper := filepath.Join(dir, filepath.Base(target))
	return mount{source: "node", target: target, fstype: "overlay", data: "lowerdir=" + target + ",upperdir=" + upper + ",workdir=" + upper + ".work"}
}

// parameters are those of the kernel that the kubelet sets, which has one value of
// each for the whole machine.
var parameters = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// Where a node has the files that stand for the kernel's parameters, by the names that
// sysctl(8) has for them; and its boot's ID.
const (
	kernelDir = "/run/kernel"
	bootID    = "kernel/random/boot_id"
	bootFile  = kernelDir + "/kernel.random.boot_id"
)

// shield puts a file in the place of each of the parameters, and of the boot's ID:
// each boot of a node is one of its own.
func shield() error {
	if err := os.Mkdir(kernelDir, 0o755); err != nil {
		return fmt.Errorf("prepare /run: %w", err)
	}
	files := map[string][]byte{}
	for _, name := range parameters {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return fmt.Errorf("read a parameter of the kernel: %w", err)
		}
		files[name] = value
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/uuid") // a new one at every read
	if err != nil {
		return fmt.Errorf("make a boot ID: %w", err)
	}
	files[bootID] = boot
	for name, value := range files {
		path := filepath.Join(kernelDir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(path, value, 0o644); err != nil {
			return fmt.Errorf("prepare /run: %w", err)
		}
		if err := (mount{source: path, target: filepath.Join("/proc/sys", name), flags: unix.MS_BIND}).do(); err != nil {
			return err
		}
	}
	return nil
}

// mount is one call of mount(2).
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", cmp.Or(m.fstype, m.source), m.target, err)
	}
	return nil
}
