package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// brokenWitness fails when it is told to.
type brokenWitness struct {
	Witness
	fails bool
}

func (w *brokenWitness) Write(line []byte) error {
	if w.fails {
		return errors.New("no room")
	}
	return w.Witness.Write(line)
}

// TestCommitted: who wants to know is told what became of attachments, once and in order, and
// nothing of a call that failed; and that nobody knows where a commit failed.
func TestCommitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	witness := &brokenWitness{Witness: WitnessFile(path + ".witness")}
	var told []string
	s, err := Open(path, Options{Witness: witness, Committed: func(changes []Change) {
		var said []string
		for _, c := range changes {
			said = append(said, fmt.Sprintf("%s>%s", c.Before.Pod.Name, c.After.Pod.Name))
		}
		told = append(told, strings.Join(said, " "))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	one, two := sampleAttachment(1), sampleAttachment(2)
	other := one
	other.Pod.Name = "other"
	fault := errors.New("refused")
	for _, step := range []struct {
		fn   func(*Tx) error
		want string // what was told, "-" is nothing
		err  error
	}{
		{func(tx *Tx) error { return errors.Join(tx.PutAttachment(one), tx.PutAttachment(two)) }, ">web-1 >web-2", nil},
		{func(tx *Tx) error { return errors.Join(tx.DeleteAttachment(two.Key), fault) }, "-", fault},
		{func(tx *Tx) error { return tx.PutAttachment(other) }, "web-1>other", nil},
		{func(tx *Tx) error { tx.Next(); return nil }, "-", nil},
		{func(tx *Tx) error { return tx.DeleteAttachment(one.Key) }, "other>", nil},
		{func(tx *Tx) error { return tx.DeleteAttachment(one.Key) }, "-", nil},
	} {
		told = nil
		if err := s.Update(t.Context(), step.fn); !errors.Is(err, step.err) {
			t.Fatal(err)
		}
		if got := strings.Join(told, "; "); got != step.want && (step.want != "-" || told != nil) {
			t.Errorf("told %q; want %q", got, step.want)
		}
	}
	told, witness.fails = nil, true
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.DeleteAttachment(two.Key) }); err == nil {
		t.Fatal("a commit without its witness succeeds")
	}
	if len(told) != 1 || told[0] != "" {
		t.Errorf("told %q of a commit that failed; want that it is not known", told)
	}
}
