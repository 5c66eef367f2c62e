package nodes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
	"github.com/tenure-ipam/tenure/test/slowdisk"
)

// metricsAt is where the agent whose goroutines are counted serves its metrics: in the
// tests' own network namespace nobody else does.
const metricsAt = "127.0.0.1:9471"

// onDisk starts tenured, as it is shipped, on a disk, and gives it the leases that so
// many sandboxes of a pool need. Then it has no use for the API server any more.
func onDisk(t *testing.T, disk *slowdisk.Disk, pool, ranges string, sandboxes int) (n *fleet.Node, all []fleet.Interface) {
	t.Helper()
	openPool(t, pool, cidr(ranges))
	p := fleet.Build(t, cp, "tenured")
	p.Exec = disk.Start
	f := newFleet(t)
	t.Cleanup(func() { disk.Slow(0) }) // before the fleet's own: an agent whose disk hangs does not end
	f.Change = func(c *daemon.Config) {
		c.Agent.Idle, c.Agent.Wait, c.Listen = time.Hour, 3*time.Second, metricsAt
	}
	n = f.LaunchProcess(p, pool)
	n.AwaitServing()
	for i := range sandboxes {
		all = append(all, onPool(pool, fmt.Sprintf("s%d", i), "net1"))
	}
	served(t, n, all)
	freed(t, n, all)
	return n, all
}

// atOnce makes a call for each interface, all at once, each over a connection of its
// own, as plugins do. It returns the errors and how long the slowest took.
func atOnce(all []fleet.Interface, call func(fleet.Interface) error) (errs []error, slowest time.Duration) {
	errs, took := make([]error, len(all)), make([]time.Duration, len(all))
	var wg sync.WaitGroup
	for j, i := range all {
		wg.Go(func() {
			began := time.Now()
			errs[j] = call(i)
			took[j] = time.Since(began)
		})
	}
	wg.Wait()
	for _, d := range took {
		slowest = max(slowest, d)
	}
	return errs, slowest
}

// served makes ADDs of all at once. All must have addresses in the end.
func served(t *testing.T, n *fleet.Node, all []fleet.Interface) (slowest time.Duration) {
	t.Helper()
	errs, slowest := atOnce(all, func(i fleet.Interface) error { _, err := n.Insist(i); return err })
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("ADDs at once: %v", err)
	}
	return slowest
}

// freed makes DELs of all at once.
func freed(t *testing.T, n *fleet.Node, all []fleet.Interface) {
	t.Helper()
	errs, _ := atOnce(all, n.Del)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("DELs at once: %v", err)
	}
}

// goroutines returns how many goroutines the agent has.
func goroutines() (int, error) {
	text, err := metrics(metricsAt)
	for line := range strings.Lines(text) {
		var count int
		if _, err := fmt.Sscanf(line, "go_goroutines %d", &count); err == nil {
			return count, nil
		}
	}
	return 0, fmt.Errorf("%s does not say how many goroutines there are: %v", metricsAt, err)
}

// TestSlowDisk has hundreds of ADDs at once on a disk that takes a tenth of a second
// for each sync, two of which make a commit: one by one they would take minutes.
func TestSlowDisk(t *testing.T) {
	proof.Only(t)
	const sandboxes, perSync = 500, 100 * time.Millisecond
	var disk slowdisk.Disk
	n, all := onDisk(t, &disk, "slowdisk", "10.35.0.0/20", sandboxes)
	disk.Slow(perSync)
	before, began := disk.Syncs(), time.Now()
	slowest := served(t, n, all)
	syncs, took := disk.Syncs()-before, time.Since(began)
	t.Logf("%d ADDs at once, each sync %v slower: %d syncs in %v, the slowest ADD took %v", sandboxes, perSync, syncs, took.Round(time.Millisecond), slowest.Round(time.Millisecond))
	// Two syncs for each commit, and each commit takes whoever has come.
	if syncs < 2 || syncs > sandboxes {
		t.Errorf("%d syncs for %d ADDs at once; want that they share them", syncs, sandboxes)
	}
	disk.Slow(0)
	freed(t, n, all)
}

// TestHangingDisk has a thousand ADDs at once while the disk does not answer: each is
// told so in its time, what waits is bounded, and when the disk answers again all is
// served.
func TestHangingDisk(t *testing.T) {
	proof.Only(t)
	const sandboxes, patience = 1000, 30 * time.Second // patience is the plugin's
	var disk slowdisk.Disk
	n, all := onDisk(t, &disk, "hanging", "10.36.0.0/20", sandboxes)
	idle, err := goroutines()
	if err != nil {
		t.Fatal(err)
	}

	disk.Slow(time.Hour)
	before := disk.Syncs()
	first := make(chan error, 1)
	go func() { _, err := n.Add(all[0]); first <- err }()
	eventually(t, 5*time.Second, func() error {
		if disk.Syncs() == before {
			return errors.New("no commit hangs")
		}
		return nil
	})
	most, stop := watchGoroutines(t)
	errs, slowest := atOnce(all[1:], func(i fleet.Interface) error { _, err := n.Add(i); return err })
	stop()
	for _, err := range errs {
		e, ok := errors.AsType[*agentapi.Error](err)
		if !ok || e.Code != agentapi.CodeTryAgainLater || !strings.Contains(e.Error(), n.Config().Store) || !strings.Contains(e.Error(), "its disk is slow, or hangs") {
			t.Fatalf("an ADD while the disk hangs: %v; want code %d that names the store and the disk", err, agentapi.CodeTryAgainLater)
		}
	}
	t.Logf("%d ADDs at once on a disk that hangs: the slowest was told so after %v; %d goroutines at most, %d before", sandboxes, slowest.Round(time.Millisecond), *most, idle)
	if slowest > patience {
		t.Errorf("an ADD was answered after %v, when its plugin had given up", slowest)
	}
	// Each connection that is served has two goroutines, and a few are for what a
	// request begins.
	if bound := idle + 3*agentapi.DefaultLimits().Conns; *most > bound {
		t.Errorf("%d goroutines; want at most %d, however many ADDs there are", *most, bound)
	}

	disk.Slow(0)
	if err := <-first; err != nil {
		t.Errorf("the ADD whose commit hung: %v", err)
	}
	served(t, n, all[1:])
	freed(t, n, all)
	eventually(t, 10*time.Second, func() error {
		now, err := goroutines()
		if err == nil && now > idle+20 {
			err = fmt.Errorf("%d goroutines are left, of %d before", now, idle)
		}
		return err
	})
}

// watchGoroutines keeps the greatest number of goroutines in most until stop is called.
func watchGoroutines(t *testing.T) (most *int, stop func()) {
	t.Helper()
	most = new(int)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			now, err := goroutines()
			if err != nil {
				t.Error(err)
			}
			*most = max(*most, now)
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return most, func() { close(end); <-ended }
}

// TestAgentOnFullDisk fills the disk under an agent's store: an ADD is told so, a
// DEL works, and so does everything when there is room again.
func TestAgentOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	openPool(t, "full-disk", cidr("10.37.0.0/16"))
	n := newFleet(t, func(c *daemon.Config) { c.Store, c.Agent.Idle = filepath.Join(dir, "store.db"), time.Hour }).Start("full-disk")
	on := func(i int) fleet.Interface { return onPool("full-disk", fmt.Sprintf("s%d", i), "net1") }
	mustAdd(t, n, on(0))

	ballast := filepath.Join(dir, "ballast")
	fillUp(t, ballast)
	var held []fleet.Interface
	var full error
	for full == nil {
		var batch []fleet.Interface
		for i := range 50 {
			batch = append(batch, on(1+len(held)+i))
		}
		errs, _ := atOnce(batch, func(i fleet.Interface) error { _, err := n.Insist(i); return err })
		for i, err := range errs {
			if full = errors.Join(full, err); err == nil {
				held = append(held, batch[i])
			}
		}
		if len(held) > 20000 {
			t.Fatalf("%d attachments are in a store on a full disk", len(held))
		}
	}
	e, ok := errors.AsType[*agentapi.Error](full)
	if !ok || e.Code != agentapi.CodeTryAgainLater || !strings.Contains(full.Error(), n.Config().Store) || !strings.Contains(full.Error(), "make room on its file system") {
		t.Errorf("ADD on a full disk, after %d: %v; want code %d with the file and the remedy", len(held), full, agentapi.CodeTryAgainLater)
	}
	freed(t, n, held)
	mustAdd(t, n, on(0)) // again
	must(t, os.Remove(ballast))
	served(t, n, held)
}

// fillUp makes a file that takes all the room of its file system.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 64<<10); len(chunk) > 0; {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
