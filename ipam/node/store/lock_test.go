package store

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

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestSecondOpener opens a store that is open.
func TestSecondOpener(t *testing.T) {
	s := newStore(t, Options{})
	for _, o := range []Options{{}, {ReadOnly: true}} {
		_, err := Open(s.Path(), o)
		if !errors.Is(err, ErrLocked) {
			t.Fatalf("Open(%+v) = %v; want ErrLocked", o, err)
		}
		for _, want := range []string{s.Path(), "stop"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error %q does not say %q", err, want)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reopen(t, s.Path(), Options{})
}

func TestReadOnly(t *testing.T) {
	s := newStore(t, Options{})
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	want := read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := load(t, s.Path())
	one, two := reopen(t, s.Path(), Options{ReadOnly: true}), reopen(t, s.Path(), Options{ReadOnly: true})
	for _, r := range []*Store{one, two} {
		if d := diff(want, read(t, r)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		err := r.Update(t.Context(), func(*Tx) error { t.Error("the function ran"); return nil })
		if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), s.Path()) {
			t.Errorf("Update = %v; want ErrReadOnly with the path", err)
		}
		if err := r.Check(); err != nil {
			t.Errorf("Check = %v", err)
		}
	}
	if _, err := Open(s.Path(), Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("Open of a store that is being read = %v; want ErrLocked", err)
	}
	if after := load(t, s.Path()); string(after) != string(before) {
		t.Error("reading has changed the file")
	}
}

// TestLocalWaits opens a store that is open, in local mode.
func TestLocalWaits(t *testing.T) {
	s := newStore(t, Options{})
	cause := errors.New("the runtime has given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	given := make(chan error)
	go func() { _, err := OpenLocal(ctx, s.Path(), Options{}); given <- err }()
	cancel(cause)
	if err := <-given; !errors.Is(err, cause) || !strings.Contains(err.Error(), s.Path()) {
		t.Errorf("OpenLocal = %v; want %v with the path", err, cause)
	}
	opened := make(chan error)
	go func() {
		other, err := OpenLocal(t.Context(), s.Path(), Options{})
		if err == nil {
			err = other.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("OpenLocal does not wait: %v", err)
	default:
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("OpenLocal after Close = %v", err)
	}
}

// TestLocalAfterMove waits for a store that is moved away meanwhile: the waiter
// must not get the one that was moved.
func TestLocalAfterMove(t *testing.T) {
	s := newStore(t, Options{})
	ids := make(chan protocol.StoreID)
	go func() {
		other, err := OpenLocal(t.Context(), s.Path(), Options{})
		if err != nil {
			t.Error(err)
			close(ids)
			return
		}
		ids <- other.ID()
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := os.Rename(s.Path(), s.Path()+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if id := <-ids; id == s.ID() {
		t.Error("the waiter opened the store that was moved away")
	}
}

// TestOpenMakesItsDirectory opens a store where there is nothing, also behind a
// link that leads nowhere.
func TestOpenMakesItsDirectory(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "a", "b", "c", "store.db"), link} {
		s := reopen(t, path, Options{})
		update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, %v; want 0600", path, info.Mode(), err)
		}
	}
}

// runLocal is a short-lived process of local mode: it counts one call.
func runLocal() {
	s, err := OpenLocal(context.Background(), os.Getenv(envPath), Options{})
	if err == nil {
		err = errors.Join(s.Update(context.Background(), func(tx *Tx) error {
			return tx.PutAttachment(claimed(int(tx.Next())))
		}), s.Close())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// TestLocalProcesses runs many short-lived processes on a store that none of
// them finds: one makes it, and no change is lost.
func TestLocalProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "store.db")
	const processes = 48
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envRun+"=local", envPath+"="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("a process fails: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	if got := len(read(t, reopen(t, path, Options{})).Attachments); got != processes {
		t.Errorf("%d attachments; want %d", got, processes)
	}
}
