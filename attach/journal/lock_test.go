package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/pause"
)

// briefly is a context for locks that are not to be had.
func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// TestLocksExclude (D10).
func TestLocksExclude(t *testing.T) {
	d := Dir{filepath.Join(t.TempDir(), "state")}
	a, err := d.Lock(t.Context(), "a")
	check(t, err)
	b, err := d.Lock(t.Context(), "b") // another container
	check(t, err)
	if _, err := d.Lock(briefly(t), "a"); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the same container: %v; want ErrBusy", err)
	}
	if _, err := d.LockAll(briefly(t)); !errors.Is(err, ErrBusy) {
		t.Errorf("all, while two are at work: %v; want ErrBusy", err)
	}
	check(t, errors.Join(a.Release(), b.Release()))
	all, err := d.LockAll(t.Context())
	check(t, err)
	if _, err := d.Lock(briefly(t), "a"); !errors.Is(err, ErrBusy) {
		t.Errorf("one, while somebody has all: %v; want ErrBusy", err)
	}
	among, err := d.LockAmong(t.Context(), all, "a")
	check(t, err)
	check(t, errors.Join(among.Release(), all.Release()))
	a, err = d.Lock(t.Context(), "a")
	check(t, err)
	if _, err := d.LockAmong(t.Context(), a, "b"); err == nil {
		t.Error("LockAmong without the lock on all: no error")
	}
	check(t, a.Release())
}

// TestLockIsNotLostWithItsFile: a lock whose file was removed excludes nobody, so
// whoever waited for it takes the new one.
func TestLockIsNotLostWithItsFile(t *testing.T) {
	d := Dir{t.TempDir()}
	var wg sync.WaitGroup
	inside, most := 0, 0
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			for range 20 {
				l, err := d.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				if err := l.Forget(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most != 1 {
		t.Errorf("%d at once; want 1", most)
	}
	if _, err := os.Stat(filepath.Join(d.locks(), "a")); err == nil {
		t.Error("the file of a forgotten container is still there")
	}
}

// TestHeirsHoldTheLock (D10): what a killed call has started keeps the lock until it
// ends.
func TestHeirsHoldTheLock(t *testing.T) {
	d := Dir{t.TempDir()}
	l, err := d.Lock(t.Context(), "a")
	check(t, err)
	r, w, err := os.Pipe()
	check(t, err)
	heir := exec.Command("cat")
	heir.Stdin, heir.ExtraFiles = r, []*os.File{l.File()}
	check(t, heir.Start())
	check(t, errors.Join(r.Close(), l.own.Close(), l.shared.Close())) // as the kernel does, of a process that is killed
	waiting, err := os.Open(l.path)                                   // has no lock
	check(t, err)
	_, err = d.Lock(briefly(t), "a")
	if !errors.Is(err, ErrBusy) {
		t.Errorf("while the heir lives: %v; want ErrBusy", err)
	}
	if want := fmt.Sprintf("held by process %d (cat)", heir.Process.Pid); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("while the heir lives: %v; want it to end in %q", err, want)
	}
	check(t, waiting.Close())
	check(t, errors.Join(w.Close(), heir.Wait()))
	l, err = d.Lock(t.Context(), "a")
	check(t, err)
	check(t, l.Release())
}

// TestReleaseLeavesHeirsNothing: a process that a call has left behind, and that was not
// what the lock was for, does not keep it.
func TestReleaseLeavesHeirsNothing(t *testing.T) {
	d := Dir{t.TempDir()}
	for name, lock := range map[string]func(context.Context) (*Lock, error){
		"container": func(ctx context.Context) (*Lock, error) { return d.Lock(ctx, "a") }, "all": d.LockAll,
	} {
		l, err := lock(t.Context())
		check(t, err)
		r, w, err := os.Pipe()
		check(t, err)
		heir := exec.Command("cat")
		heir.Stdin, heir.ExtraFiles = r, []*os.File{l.File()}
		check(t, heir.Start())
		check(t, errors.Join(r.Close(), l.Release()))
		l, err = lock(briefly(t))
		if err != nil {
			t.Errorf("%s: after Release: %v; want the lock", name, err)
		} else {
			check(t, l.Release())
		}
		check(t, errors.Join(w.Close(), heir.Wait()))
	}
}

// TestAllHasItsTurn (D10): a stream of calls for containers does not keep whoever
// wants all of them waiting.
func TestAllHasItsTurn(t *testing.T) {
	d := Dir{t.TempDir()}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := d.Lock(ctx, id)
				if err != nil {
					return // the test is over
				}
				pause.For(ctx, 2*time.Millisecond)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		all, err := d.LockAll(patient)
		check(t, err)
		check(t, all.Release())
	}
	stop()
	wg.Wait()
}
