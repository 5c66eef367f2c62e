package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// envProgram makes the test binary run one of programs in a sandbox, instead of
// the tests, which look at it from outside.
const envProgram = "SANDBOX_TEST_PROGRAM"

func TestMain(m *testing.M) {
	name := os.Getenv(envProgram)
	if name == "" {
		os.Exit(m.Run())
	}
	o := sandbox.Options{Disk: strings.HasPrefix(name, "disk")}
	os.Exit(sandbox.Main(o, programs[name]))
}

var programs = map[string]func() int{
	"echo": func() int {
		_, _ = io.Copy(os.Stdout, os.Stdin)
		fmt.Fprintln(os.Stderr, os.Args[1])
		return 42
	},
	"look": look,
	"die": func() int {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
		return 0
	},
	"spread": func() int { return spread(nil) },
	"disk": func() int {
		fmt.Println(sandbox.Disk())
		return 0
	},
	"disk-stay": func() int { return spread([]string{sandbox.Disk()}) },
	"nice": func() int {
		text, err := os.ReadFile("/proc/self/autogroup")
		fmt.Print(string(text))
		if err != nil {
			return 1
		}
		return 0
	},
	"tidy": func() int {
		c := make(chan os.Signal, 2)
		signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("ready")
		s := <-c
		fmt.Println("tidied after", s)
		return 7
	},
}

// look prints what a program sees of its sandbox.
func look() int {
	links, err := netlink.LinkList()
	if err != nil {
		return 1
	}
	for _, l := range links {
		fmt.Println("link", l.Attrs().Name, l.Attrs().Flags&1 == 1)
	}
	list := func(what, dir string) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			fmt.Println(what, e.Name())
		}
	}
	list("class", "/sys/class/net")
	list("netns", "/run/netns")
	list("cgroup", "/sys/fs/cgroup")
	var fs unix.Statfs_t
	_ = unix.Statfs(os.TempDir(), &fs)
	fmt.Println("tmpfs", fs.Type == unix.TMPFS_MAGIC)
	fmt.Println("inside", sandbox.Inside())
	// The fresh /proc is that of the new pid namespace: pid 1 is this program.
	self, _ := os.Readlink("/proc/self/exe")
	one, _ := os.Readlink("/proc/1/exe")
	fmt.Println("init", self == one && os.Getpid() != 1)
	return 0
}

// spread leaves an orphan in its own session, a named network namespace and a
// mount, tells the inodes of the namespaces and extra, and stays.
func spread(extra []string) int {
	orphan := exec.Command("/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1000 &")
	if err := orphan.Run(); err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := netns.NewNamed("spread"); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := unix.Mount("tmpfs", "/mnt", "tmpfs", 0, ""); err != nil {
		fmt.Println(err)
		return 1
	}
	for _, ns := range []string{"pid", "net", "mnt"} {
		id, err := os.Readlink("/proc/thread-self/ns/" + ns)
		if err != nil {
			return 1
		}
		fmt.Println(id)
	}
	for _, e := range extra {
		fmt.Println(e)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour) // Go ends a program whose goroutines all wait for each other
	return 1
}

// program is the test binary that runs one of programs in a sandbox of its own,
// even if the tests themselves run in one.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("sandboxes need root")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "TENURE_SANDBOX") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, envProgram+"="+name)
	return cmd
}

// startUntilReady starts cmd and returns the lines that it prints before
// "ready", and the rest of its output.
func startUntilReady(t *testing.T, cmd *exec.Cmd) (lines []string, rest *bufio.Reader) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rest = bufio.NewReader(out)
	for {
		line, err := rest.ReadString('\n')
		if err != nil {
			t.Fatalf("program ends before it is ready: %v; it printed %q", err, append(lines, line))
		}
		if line == "ready\n" {
			return lines, rest
		}
		lines = append(lines, strings.TrimSpace(line))
	}
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

func TestOutputArgumentsAndExitCodePassThrough(t *testing.T) {
	cmd := program(t, "echo", "argument")
	cmd.Stdin = strings.NewReader("over stdin")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if got := exitCode(t, cmd.Run()); got != 42 {
		t.Errorf("exit code %d; want 42", got)
	}
	if got := stdout.String(); got != "over stdin" {
		t.Errorf("stdout %q; want what went to stdin", got)
	}
	if got := stderr.String(); got != "argument\n" {
		t.Errorf("stderr %q; want the argument", got)
	}
}

func TestDeathBySignalIsAnExitCode(t *testing.T) {
	if got, want := exitCode(t, program(t, "die").Run()), 128+int(syscall.SIGKILL); got != want {
		t.Errorf("exit code %d; want %d", got, want)
	}
}

func TestInsideIsPrivate(t *testing.T) {
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := program(t, "look").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"link lo true", "class lo"}
	entries, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		want = append(want, "cgroup "+e.Name())
	}
	want = append(want, "tmpfs true", "inside true", "init true")
	if got := strings.Split(strings.TrimSpace(string(out)), "\n"); !slices.Equal(got, want) {
		t.Errorf("a program in the sandbox sees\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Where the kernel weighs sessions, not processes, the sandbox's is as nice as who
// started it.
func TestNiceReachesTheSession(t *testing.T) {
	if _, err := os.Stat("/proc/self/autogroup"); err != nil {
		t.Skip("this kernel does not group processes by session")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "nice")
	nice, err := exec.LookPath("nice")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args = nice, []string{"nice", "-n", "5", self}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(strings.TrimSpace(string(out)), " nice 5") {
		t.Errorf("the session is %q; want nice 5", out)
	}
}

func TestInterruptReachesTheProgram(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			cmd := program(t, "tidy")
			_, rest := startUntilReady(t, cmd)
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(rest)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := string(said), fmt.Sprintf("tidied after %v\n", s); got != want {
				t.Errorf("program says %q; want %q", got, want)
			}
			if got := exitCode(t, cmd.Wait()); got != 7 {
				t.Errorf("exit code %d; want 7", got)
			}
		})
	}
}

func TestKilledLeavesNothing(t *testing.T) {
	mountsBefore := mounts(t)
	cmd := program(t, "spread")
	ids, rest := startUntilReady(t, cmd)
	if got := users(t, ids); len(got) < 4 {
		t.Fatalf("%d processes in the sandbox: %v; want init, the program and two orphans", len(got), got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Every process of the sandbox holds the pipe: it ends with the last one.
	if _, err := io.ReadAll(rest); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, func() error {
		if got := users(t, ids); len(got) > 0 {
			return fmt.Errorf("processes %v still use the namespaces %v", got, ids)
		}
		return nil
	})
	if _, err := os.Stat("/run/netns/spread"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("/run/netns/spread outside: %v; want no such file", err)
	}
	if got := mounts(t); got != mountsBefore {
		t.Errorf("mounts outside are now\n%s\nwant, as before,\n%s", got, mountsBefore)
	}
}

// mounts returns what is mounted outside where a sandbox and its program spread mount.
// Elsewhere the machine's other programs mount and unmount.
func mounts(t *testing.T) string {
	t.Helper()
	points := []string{"/", "/proc", "/sys", "/sys/fs/cgroup", "/run", "/var/run", "/run/netns", "/run/netns/spread", "/mnt"}
	var found strings.Builder
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		const point = 4 // proc(5)
		if f := strings.Fields(line); len(f) > point && slices.Contains(points, f[point]) {
			found.WriteString(line)
		}
	}
	return found.String()
}

func TestDiskVanishesWithTheSandbox(t *testing.T) {
	out, err := program(t, "disk").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	if !strings.HasPrefix(dir, "/var/tmp/tenure-sandbox-") {
		t.Fatalf("disk is %q; want a directory of its own in /var/tmp", dir)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s after the end: %v; want no such file", dir, err)
	}
}

func TestDiskOfAKilledSandboxIsSweptByTheNext(t *testing.T) {
	living, killed := program(t, "disk-stay"), program(t, "disk-stay")
	livingLines, _ := startUntilReady(t, living)
	killedLines, _ := startUntilReady(t, killed)
	livingDir, killedDir := livingLines[len(livingLines)-1], killedLines[len(killedLines)-1]
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	if _, err := os.Stat(killedDir); err != nil {
		t.Fatalf("the killed sandbox's disk: %v; want it left behind for this test", err)
	}
	if err := program(t, "disk").Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killedDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s after the next sandbox: %v; want no such file", killedDir, err)
	}
	if _, err := os.Stat(livingDir); err != nil {
		t.Errorf("disk of a living sandbox: %v; want it untouched", err)
	}
	if err := living.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = living.Wait()
	if _, err := os.Stat(livingDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s after a terminated sandbox: %v; want no such file", livingDir, err)
	}
}

func TestNotRootIsAClearError(t *testing.T) {
	// The go command's own directory is closed to others, and so are t.TempDir's.
	dir, err := os.MkdirTemp("", "sandbox") //nolint:usetesting // t.TempDir cannot be opened to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "program")
	if err := os.WriteFile(binary, []byte(read(t, "/proc/self/exe")), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "echo")
	cmd.Path, cmd.Dir = binary, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if got := exitCode(t, cmd.Run()); got != 125 {
		t.Errorf("exit code %d; want 125", got)
	}
	want := "sandbox: namespaces and mounts need root: run this as root, for example with sudo -E\n"
	if got := stderr.String(); got != want {
		t.Errorf("stderr %q; want %q", got, want)
	}
}

// users returns the processes that are in one of the namespaces ids.
func users(t *testing.T, ids []string) (pids []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		id, err := os.Readlink(l)
		pid := strings.Split(l, "/")[2]
		if err == nil && slices.Contains(ids, id) && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// eventually waits for cond, which the kernel brings about.
func eventually(t *testing.T, cond func() error) {
	t.Helper()
	if err := process.Await(t.Context(), process.Patience, func(context.Context) error { return cond() }); err != nil {
		t.Fatal(err)
	}
}
