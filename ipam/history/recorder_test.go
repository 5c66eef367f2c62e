package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRecorder: what is noted is in the file and in the log, once; the log has the events' times.
func TestRecorder(t *testing.T) {
	var log bytes.Buffer
	a := of("a", "10.0.0.1")
	a.Claim = "shop/db"
	r := Recorder{Dir: t.TempDir(), Node: "n1", Bounds: DefaultBounds, Held: func() ([]Span, error) { return nil, nil }, Log: slog.New(slog.NewJSONHandler(&log, nil))}
	r.Note([]Event{given(0, a)})
	r.Note([]Event{freed(7, a)})
	r.flush(t.Context(), at(8))
	r.Close(t.Context())
	if diff := cmp.Diff([]Span{{Holding: a, From: at(0), To: at(7)}}, spansOf(t, r.Dir, "10.0.0.1").Spans, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := `{"time":"2026-11-17T12:00:00Z","level":"INFO","msg":"address given","address":"10.0.0.1","pool":"lan","network":"lan","namespace":"shop","pod":"web-a","podUID":"uid-a","container":"a","interface":"net1","claim":"shop/db","node":"n1"}
{"time":"2026-11-17T12:00:07Z","level":"INFO","msg":"address freed","address":"10.0.0.1","pool":"lan","network":"lan","namespace":"shop","pod":"web-a","podUID":"uid-a","container":"a","interface":"net1","claim":"shop/db","node":"n1"}
`
	if diff := cmp.Diff(want, log.String()); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// TestRecorderStartsAgain: what happened after the last line is found when the next one starts, and
// once.
func TestRecorderStartsAgain(t *testing.T) {
	a, b, c := of("a", "10.0.0.1"), of("b", "10.0.0.1"), of("c", "10.0.0.3")
	dir := t.TempDir()
	held := []Span{{Holding: a, From: at(0)}, {Holding: c, From: at(0)}}
	start := func() *Recorder {
		return &Recorder{Dir: dir, Node: "n1", Bounds: DefaultBounds, Held: func() ([]Span, error) { return held, nil }, Log: slog.New(slog.DiscardHandler)}
	}
	start().flush(t.Context(), at(1)) // and is killed
	held = []Span{{Holding: b, From: at(5)}}
	r := start()
	r.Note([]Event{given(5, b)}) // it may have noted what it finds as well
	r.flush(t.Context(), at(60))
	r.flush(t.Context(), at(61))
	start().flush(t.Context(), at(70))
	want := []Span{{Holding: a, From: at(0), To: at(5), Late: true}, {Holding: b, From: at(5)}}
	if diff := cmp.Diff(want, spansOf(t, dir, "10.0.0.1").Spans, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Span{{Holding: c, From: at(0), To: at(60), Late: true}}, spansOf(t, dir, "10.0.0.3").Spans, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(pathOf(dir, 1))
	if n := bytes.Count(text, []byte("\n")); err != nil || n != 6 {
		t.Errorf("%d lines, %v; want 6:\n%s", n, err, text)
	}
}

// TestTooMuchAtOnce: what was not noted is found as after a crash.
func TestTooMuchAtOnce(t *testing.T) {
	var held []Span
	r := Recorder{Dir: t.TempDir(), Node: "n1", Bounds: DefaultBounds, Held: func() ([]Span, error) { return held, nil }, Log: slog.New(slog.DiscardHandler)}
	r.flush(t.Context(), at(0))
	for i := range maxNoted + 1 {
		r.Note([]Event{given(i, of(fmt.Sprint(i), "10.0.0.1"))})
	}
	held = []Span{{Holding: of("a", "10.0.0.1"), From: at(3)}}
	r.flush(t.Context(), at(9))
	if diff := cmp.Diff(held, spansOf(t, r.Dir, "10.0.0.1").Spans, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNotWritable: a directory that cannot be written is tried again, the log goes on, and nothing
// is lost when it can.
func TestNotWritable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in its way
		t.Fatal(err)
	}
	var log bytes.Buffer
	a := of("a", "10.0.0.1")
	r := Recorder{Dir: dir, Node: "n1", Bounds: DefaultBounds, Held: func() ([]Span, error) { return []Span{{Holding: a, From: at(1)}}, nil }, Log: slog.New(slog.NewJSONHandler(&log, nil))}
	r.Note([]Event{given(1, a)})
	for i := range 59 {
		r.flush(t.Context(), at(i))
	}
	if n := strings.Count(log.String(), "history not written"); n != 1 || !strings.Contains(log.String(), `"address given"`) {
		t.Errorf("%d complaints: %s", n, log.String())
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	r.flush(t.Context(), at(60))
	if diff := cmp.Diff([]Span{{Holding: a, From: at(1)}}, spansOf(t, dir, "10.0.0.1").Spans, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := strings.Count(log.String(), `"address given"`); n != 2 {
		t.Errorf("logged %d times; want it again when the files are open: %s", n, log.String())
	}
}

// TestStoreThatWaits: while the store cannot tell, what is noted is written, and the store is asked
// again.
func TestStoreThatWaits(t *testing.T) {
	fault := errors.New("not now")
	r := Recorder{Dir: t.TempDir(), Node: "n1", Bounds: DefaultBounds, Held: func() ([]Span, error) { return nil, fault }, Log: slog.New(slog.DiscardHandler)}
	a, b := of("a", "10.0.0.1"), of("b", "10.0.0.2")
	r.Note([]Event{given(0, a)})
	r.flush(t.Context(), at(1))
	if got := spansOf(t, r.Dir, "10.0.0.1").Spans; len(got) != 1 {
		t.Errorf("what was noted: %v", got)
	}
	r.Held = func() ([]Span, error) { return []Span{{Holding: a, From: at(0)}, {Holding: b, From: at(0)}}, nil }
	r.flush(t.Context(), at(61))
	if got := spansOf(t, r.Dir, "10.0.0.2").Spans; len(got) != 1 {
		t.Errorf("what the store has: %v", got)
	}
}

// TestOff: it logs, and what was kept is removed.
func TestOff(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	h := open(t, dir, small, noon)
	h.add(t, noon, given(0, of("a", "10.0.0.1")))
	var log bytes.Buffer
	r := Recorder{Dir: dir, Node: "n1", Bounds: Bounds{Size: 0, Age: time.Hour}, Log: slog.New(slog.NewJSONHandler(&log, nil))}
	r.Note([]Event{given(0, of("b", "10.0.0.1"))})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ctx)
	r.Close(ctx)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", dir, err)
	}
	if !strings.Contains(log.String(), `"address given"`) || !strings.Contains(log.String(), "what there was of it is removed") {
		t.Error(log.String())
	}
}
