package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

// TestUpdateSaysThatItWaitedForTheDisk: who gives up while a commit hangs learns what
// was in the way, and changes nothing.
func TestUpdateSaysThatItWaitedForTheDisk(t *testing.T) {
	hangs, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := newStore(t, Options{Fail: func(point string) {
		if point == "before-commit" {
			once.Do(func() { close(hangs); <-goOn })
		}
	}})
	first := make(chan error, 1)
	go func() {
		first <- s.Update(context.Background(), func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	}()
	<-hangs
	ctx, cancel := context.WithTimeout(t.Context(), 2*slow)
	defer cancel()
	err := s.Update(ctx, func(tx *Tx) error { return tx.PutAttachment(claimed(2)) })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), s.Path()) || !strings.Contains(err.Error(), "its disk is slow, or hangs") {
		t.Errorf("Update = %v; want that it names the deadline, the store and the disk", err)
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
