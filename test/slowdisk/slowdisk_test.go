package slowdisk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be the program that syncs.
func TestMain(m *testing.M) {
	if path := os.Getenv("SLOWDISK_TEST_FILE"); path != "" {
		f, err := os.Create(path)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// disk returns a disk that leaves nothing to the next test.
func disk(t *testing.T) *Disk {
	t.Helper()
	var d Disk
	t.Cleanup(d.Wait)
	return &d
}

// syncing returns a program that syncs a file once.
func syncing(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLOWDISK_TEST_FILE="+filepath.Join(t.TempDir(), "f"))
	return cmd
}

func TestSyncTakesAsLongAsItIsTold(t *testing.T) {
	const delay = 300 * time.Millisecond
	d := disk(t)
	d.Slow(delay)
	cmd, began := syncing(t), time.Now()
	if err := d.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay || d.Syncs() != 1 {
		t.Errorf("%d syncs, over after %v; want one, and %v", d.Syncs(), took, delay)
	}
}

// hanging returns a disk on which a program hangs in its sync, and the program.
func hanging(t *testing.T) (*Disk, *exec.Cmd) {
	t.Helper()
	d := disk(t)
	d.Slow(time.Hour)
	cmd := syncing(t)
	if err := d.Start(cmd); err != nil {
		t.Fatal(err)
	}
	for d.Syncs() == 0 {
		time.Sleep(time.Millisecond) // until the program hangs in its sync
	}
	return d, cmd
}

func TestSyncEndsWhenTheDiskIsFastAgain(t *testing.T) {
	d, cmd := hanging(t)
	if n := filters(t); n != 1 {
		t.Errorf("%d filters are open while a program runs; want one", n)
	}
	d.Slow(0)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	d.Wait()
	if n := filters(t); n != 0 {
		t.Errorf("%d filters are open when it has ended; want none", n)
	}
}

func TestSyncFails(t *testing.T) {
	d := disk(t)
	d.Fail(syscall.EIO)
	cmd := syncing(t)
	if err := d.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 || d.Syncs() != 1 {
		t.Errorf("%d syncs, and then %v; want one, which fails", d.Syncs(), err)
	}
}

func TestOtherSyncsOfThisProcessAreAsFastAsEver(t *testing.T) {
	d, cmd := hanging(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "ours"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if d.Syncs() != 1 {
		t.Errorf("%d syncs were asked for; want that of the program alone", d.Syncs())
	}
}

// TestProgramThatCannotBeStarted leaves no filter behind: nobody is asked any more.
func TestProgramThatCannotBeStarted(t *testing.T) {
	d := disk(t)
	none := filepath.Join(t.TempDir(), "none")
	if err := d.Start(exec.Command(none)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start = %v; want that there is no such program", err)
	}
	d.Wait()
	if n := filters(t); n != 0 {
		t.Errorf("%d filters are open; want none", n)
	}
}

// filters returns how many filters this process has open: one for each program that
// runs on a disk. Other files come and go by themselves, as those of the runtime.
func filters(t *testing.T) (n int) {
	t.Helper()
	const files = "/proc/self/fd"
	all, err := os.ReadDir(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		// One that is closed by now is no filter.
		if to, err := os.Readlink(filepath.Join(files, f.Name())); err == nil && to == "anon_inode:seccomp notify" {
			n++
		}
	}
	return n
}
