package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// Options says what a sandbox offers beyond the namespaces.
type Options struct {
	// Disk asks for a directory on a real disk, see [Disk]: for tests whose
	// point is that an fsync reaches one. It is the one thing that the kernel
	// does not remove by itself: a sandbox that was killed leaves it to the
	// next one that asks for a disk.
	Disk bool
}

// The environment carries the sandbox's facts from one process to the next.
const (
	envOutside = "TENURE_SANDBOX"      // the mount namespace of the world outside
	envRole    = "TENURE_SANDBOX_ROLE" // roleInit in pid 1, absent elsewhere
	envDisk    = "TENURE_SANDBOX_DISK" // what Disk returns
)

// roleInit marks pid 1 of the sandbox.
const roleInit = "init"

// Exit codes of the sandbox itself. A program that a signal ends exits, as in
// a shell, with signalBase plus the signal's number.
const (
	exitBroken = 125
	signalBase = 128
)

// Main runs run in a sandbox and returns the exit code of the process, which
// the caller hands to os.Exit at once. Outside a sandbox it starts the current
// program again inside one, with the same arguments, environment, working
// directory and standard streams, and never calls run itself; inside one
// (also that of a parent process) it returns run's result.
//
// Faults of the sandbox itself are printed to standard error; then the exit
// code is 125. Main has to be called early, from TestMain or main: what the
// program did before is done three times.
func Main(o Options, run func() int) int {
	code, err := start(o, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return exitBroken
	}
	return code
}

func start(o Options, run func() int) (int, error) {
	if os.Getenv(envRole) == roleInit {
		return initialise()
	}
	inside, err := inSandbox()
	if err != nil {
		return 0, err
	}
	if inside {
		return run(), nil
	}
	return outside(o)
}

// Inside reports whether this process runs in a sandbox. What must never touch
// the machine itself asks first.
func Inside() bool {
	ok, err := inSandbox()
	return ok && err == nil
}

// Disk returns the sandbox's directory on a real disk, or "" if the sandbox
// was made without one.
func Disk() string { return os.Getenv(envDisk) }

// inSandbox compares mount namespaces instead of trusting the variable: one
// that has leaked into a shell names that shell's own namespace. A process in
// namespaces nested further is inside as well.
func inSandbox() (bool, error) {
	out := os.Getenv(envOutside)
	if out == "" {
		return false, nil
	}
	own, err := mountNamespace()
	return own != out, err
}

func mountNamespace() (string, error) {
	ns, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return "", fmt.Errorf("read own mount namespace: %w", err)
	}
	return ns, nil
}

// outside starts init in new namespaces, lets signals through, and returns
// init's exit code.
func outside(o Options) (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("namespaces and mounts need root: run this as root, for example with sudo -E")
	}
	ns, err := mountNamespace()
	if err != nil {
		return 0, err
	}
	env := append(os.Environ(), envOutside+"="+ns, envRole+"="+roleInit)
	if o.Disk {
		d, err := newDisk(DiskRoot)
		if err != nil {
			return 0, err
		}
		defer d.remove()
		env = append(env, envDisk+"="+d.path)
	}

	lifeline, held, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make the lifeline: %w", err)
	}
	defer held.Close()

	// Pdeathsig is about the thread that forked, not the process: this one is
	// kept, and lives until the process ends.
	runtime.LockOSThread()
	code, err := supervise(env, lifeline, &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		// A session of its own: a terminal's Ctrl-C goes to this process
		// alone, which forwards it once.
		Setsid: true,
	}, waitFor)
	if errors.Is(err, syscall.EPERM) {
		return 0, fmt.Errorf("%w: root without CAP_SYS_ADMIN (in a container?) cannot make namespaces", err)
	}
	return code, err
}

// initialise is the life of pid 1: it prepares the mounts and the loopback,
// then runs the program and everything orphaned below it.
func initialise() (int, error) {
	if os.Getpid() != 1 {
		return 0, fmt.Errorf("%s=%s is set for pid %d: it is the sandbox's own, unset it", envRole, roleInit, os.Getpid())
	}
	followLifeline()
	if err := errors.Join(prepare(), followNice()); err != nil {
		return 0, err
	}
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, envRole+"=") && !strings.HasPrefix(e, "TMPDIR=") {
			env = append(env, e)
		}
	}
	return supervise(append(env, "TMPDIR="+tmpDir), nil, &syscall.SysProcAttr{}, reapUntil)
}
