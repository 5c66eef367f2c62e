package suites_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// wordings are known: no other difference is.
var wordings = []wording{{
	theirs: "does not support more than 1 address per family",
	ours:   "cannot express 2 IPv6 addresses of one interface; use cniVersion 0.3.1 or later, or one range of each family",
}}

// enter runs a suite on a machine of its own, as far as it sees: its network namespace is new, and
// what plugins keep in /var/lib is gone afterwards.
const enter = `set -e
ip link set lo up
mkdir upper work
mount -t overlay -o lowerdir=/var/lib,upperdir=$PWD/upper,workdir=$PWD/work overlay /var/lib
cd "$1"; shift
exec "$@"`

func TestSuites(t *testing.T) {
	var passed, calls atomic.Int64
	t.Run("of", func(t *testing.T) {
		// Those that take longest come first.
		for _, path := range []string{
			"main/ptp", "main/bridge", "meta/portmap", "meta/firewall", "meta/bandwidth", "main/macvlan", "main/ipvlan",
			"main/vlan", "main/tap", "meta/sbr", "meta/vrf",
		} {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				p, c := judge(t, path)
				passed.Add(int64(p))
				calls.Add(int64(c))
			})
		}
	})
	if passed.Load() == 0 || calls.Load() == 0 {
		t.Errorf("%d specs passed with host-local, and there were %d calls of Tenure: nothing was compared", passed.Load(), calls.Load())
	}
}

// judge compares a suite with host-local and with Tenure, and returns how many specs passed with
// host-local, and how often Tenure was called.
func judge(t *testing.T, path string) (passed, calls int) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	programs := [2]string{built + ":" + os.Getenv("PATH"), ours + ":" + built + ":" + os.Getenv("PATH")}
	var reports [2]report
	var errs [2]error
	var both sync.WaitGroup
	for i := range reports {
		both.Go(func() { reports[i], errs[i] = run(dirs[i], path, programs[i]) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	theirs, own := reports[0], reports[1]
	words := 0
	for _, d := range compare(theirs, own, wordings) {
		if d.wording {
			words++
			continue
		}
		t.Errorf("%s\npasses with host-local, and with Tenure:\n%s", d.spec, d.message)
	}
	lines, err := os.ReadFile(filepath.Join(dirs[1], "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	calls = strings.Count(string(lines), "\n")
	t.Logf("of %d specs %d pass with host-local, and %d with Tenure, which was called %d times; %d want other words", len(theirs), theirs.passed(), own.passed(), calls, words)
	for who, r := range map[string]report{"host-local": theirs, "Tenure": own} {
		for _, name := range r.repeated() {
			t.Logf("with %s at the second attempt: %s", who, name)
		}
	}
	return theirs.passed(), calls
}

// run runs a suite in an empty directory, with plugins as PATH has them.
func run(dir, path, programs string) (report, error) {
	out := filepath.Join(dir, "report.json")
	// A spec that measures may fail once on a machine that is busy. In one order, specs of the same
	// name can be told apart.
	cmd := exec.Command("sh", "-c", enter, "sh", filepath.Join(sources, "plugins", path), filepath.Join(built, filepath.Base(path)+".test"),
		"-ginkgo.json-report="+out, "-ginkgo.seed=1", "-ginkgo.flake-attempts=2", "-ginkgo.no-color")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+programs, "CNI_PATH="+programs, "TMPDIR="+dir, "TENURE_SUITES_CALLS="+filepath.Join(dir, "calls"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	said, err := cmd.CombinedOutput() // specs that fail are in the report
	r, fault := readReport(out)
	if fault != nil {
		return nil, fmt.Errorf("%s has no report: %w\n%w\n%s", path, fault, err, said)
	}
	return r, nil
}
