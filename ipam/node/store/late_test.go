package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// hanging returns a store whose first commit, which records claimed(1), hangs at a point
// until goOn is closed. What became of it comes from first.
func hanging(t *testing.T, at string) (s *Store, goOn chan<- struct{}, first <-chan error) {
	t.Helper()
	hangs, released, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	s = newStore(t, Options{Fail: func(point string) {
		if point == at {
			once.Do(func() { close(hangs); <-released })
		}
	}})
	go func() {
		done <- s.Update(context.Background(), func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	}()
	<-hangs
	return s, released, done
}

// TestUpdateSaysThatItWaitedForTheDisk: who gives up while a commit hangs, or comes when
// his time is over, learns what was in the way, and changes nothing.
func TestUpdateSaysThatItWaitedForTheDisk(t *testing.T) {
	s, goOn, first := hanging(t, "before-commit")
	ctx, cancel := context.WithTimeout(t.Context(), 2*slow)
	defer cancel()
	for _, when := range []string{"while it waits", "before it begins"} {
		err := s.Update(ctx, func(tx *Tx) error { return tx.PutAttachment(claimed(2)) })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), s.Path()) || !strings.Contains(err.Error(), "its disk is slow, or hangs") {
			t.Errorf("Update whose time ends %s = %v; want that it names the deadline, the store and the disk", when, err)
		}
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Errorf("the Update whose commit hung: %v", err)
	}
	if got := read(t, s); len(got.Attachments) != 1 {
		t.Errorf("%d attachments are recorded; want the first alone", len(got.Attachments))
	}

	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Update(ended, func(*Tx) error { return nil }); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "disk") {
		t.Errorf("Update = %v; want the cause alone while no commit hangs", err)
	}
}

// TestViewWaitsForTheDiskUntilItsContextEnds: who has seen a commit that hangs in its
// sync is told so in time, and may not rely on what it has seen.
func TestViewWaitsForTheDiskUntilItsContextEnds(t *testing.T) {
	s, goOn, first := hanging(t, "after-commit")
	ctx, cancel := context.WithTimeout(t.Context(), 2*slow)
	defer cancel()
	known := false
	look := func(tx *Tx) (err error) {
		_, known, err = tx.Attachment(claimed(1).Key)
		return err
	}
	err := s.ViewContext(ctx, look)
	if !known || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), s.Path()) || !strings.Contains(err.Error(), "its disk is slow, or hangs") {
		t.Errorf("ViewContext = %v, seen: %v; want that it sees the commit and names the deadline, the store and the disk", err, known)
	}
	known = false
	if err := s.Peek(look); err != nil || !known {
		t.Errorf("Peek = %v, seen: %v; want that it sees the commit, and waits for nothing", err, known)
	}
	waited := make(chan error, 1)
	go func() { waited <- s.View(look) }()
	select {
	case err := <-waited:
		t.Errorf("View = %v while the commit that it saw hangs; want that it waits", err)
		waited <- err
	case <-time.After(slow):
	}
	close(goOn)
	if err := errors.Join(<-first, <-waited, s.ViewContext(t.Context(), look)); err != nil || !known {
		t.Errorf("when the disk goes on: %v, seen: %v", err, known)
	}
}

// TestWait: whatever waits for other calls does so where a scheduler can decide.
func TestWait(t *testing.T) {
	var waits []int
	var s *Store
	s = newStore(t, Options{Wait: func(_ context.Context, first, second <-chan struct{}) int {
		waits = append(waits, len(s.turn))
		select {
		case <-first:
			return 0
		case <-second:
			return 1
		}
	}})
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	if err := errors.Join(s.Check(), s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if !slices.Equal(waits, []int{1, 1, 1, 1}) {
		t.Errorf("with the turn free or not there were %v waits; want four, when it was free", waits)
	}
}
