// Package sandbox runs the current program again in namespaces of its own, so
// that nothing it starts can outlive it or be seen outside.
//
// A test binary enters it in TestMain, a program in main:
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.Main(sandbox.Options{}, m.Run)) }
//
// Three processes then share the work, all of them the same program:
//
//	outside   waits, forwards signals, exits as the program does
//	└─ init   pid 1 of the new pid namespace: mounts, loopback, reaps orphans
//	   └─ run the program itself, in the sandbox
//
// When outside ends in any way, SIGKILL included, the kernel kills init; when
// init ends, the kernel kills every process of the pid namespace, and with them
// go the network namespaces, the mounts and the tmpfs. No code has to run for
// that.
//
// Inside, /run is a private tmpfs and TMPDIR lies on it; /proc and /sys show
// the new namespaces, /sys/fs/cgroup is as it was; the only network interface
// is a loopback that is up. The rest of the file system is the machine's own.
package sandbox
