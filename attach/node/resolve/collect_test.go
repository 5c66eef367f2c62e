package resolve

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// What the plugin could not report while the agent was away the agent takes from its
// directory, once, and not while the plugin may be sending it.
func TestCollectsWhatCouldNotBeReported(t *testing.T) {
	w := newWorld()
	cfg := DefaultConfig(t.TempDir())
	cfg.State = t.TempDir()
	r, err := New(cfg, w.cluster(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dir := journal.Dir{Path: cfg.State}
	for id, rep := range map[string]facts.Report{
		"c1": {
			Pod: facts.PodRef{Namespace: "ns", Name: "p", UID: "u1"}, Status: json.RawMessage(`[1]`),
			Warnings: []facts.Warning{{Reason: "Odd", Message: "look"}},
		},
		"c2": {Pod: facts.PodRef{Name: "no-namespace"}, Status: json.RawMessage(`[1]`)}, // never understood
	} {
		key := journal.Key{ContainerID: id, Network: "tenure", IfName: "eth0"}
		log, err := dir.Create(journal.Head{Key: key, Boot: "b", Plan: plan.Plan{Pod: rep.Pod}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(log.Answer(rep), dir.MarkUnsent(key)); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	r.collectOnce(t.Context(), now)
	if n := r.outbox.size(); n != 0 {
		t.Errorf("%d reports were taken that the plugin may be sending", n)
	}
	for range 2 {
		r.collectOnce(t.Context(), now.Add(time.Minute))
	}
	if n := r.outbox.size(); n != 1 || !slices.Equal(w.said, []string{"ns/p u1 Odd: look"}) {
		t.Errorf("%d statuses were taken and %q said; want one of each", n, w.said)
	}
	if left, err := dir.Unsent(now.Add(time.Minute), 10); err != nil || len(left) > 0 {
		t.Errorf("left to be sent: %v, %v", left, err)
	}
}
