package history

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var small = Bounds{Size: MinSize, Age: 32 * time.Hour}

func open(t *testing.T, dir string, b Bounds, now time.Time) *File {
	t.Helper()
	h, err := OpenFile(dir, "n1", b, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func (h *File) add(t *testing.T, now time.Time, events ...Event) {
	t.Helper()
	if err := h.Append(events, now); err != nil {
		t.Fatal(err)
	}
}

// spansOf returns what the files say of an address for all time.
func spansOf(t *testing.T, dir, address string) Answer {
	t.Helper()
	a, err := Read(dir, netip.MustParseAddr(address), time.Time{}, noon.Add(10000*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sizeOf(t *testing.T, dir string) (size int64, files int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	return size, len(entries)
}

// TestSizeIsBounded: the oldest lines go; what is still held stays, and ends as seen.
func TestSizeIsBounded(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, small, noon)
	long := of("long", "10.0.9.9")
	h.add(t, noon, given(0, long))
	var some []Event
	for i := range 8000 {
		x := of(fmt.Sprint("c", i), "10.0.0.1")
		if some = append(some, given(i, x), freed(i, x)); i%100 == 99 {
			h.add(t, at(i), some...)
			some = nil
		}
		if i%1000 == 999 {
			if size, _ := sizeOf(t, dir); size > MinSize {
				t.Fatalf("%d bytes after %d holdings; want %d at most", size, i, MinSize)
			}
		}
	}
	a := spansOf(t, dir, "10.0.0.1")
	if n := len(a.Spans); n < 1000 || n > 7000 || !a.Begins.After(noon) {
		t.Errorf("%d spans since %v; want the last ones", n, a.Begins)
	}
	if last := a.Spans[len(a.Spans)-1]; last.Container != "c7999" {
		t.Errorf("the last is %v", last)
	}
	h = open(t, dir, small, at(9000))
	h.add(t, at(9001), freed(9001, long))
	if diff := cmp.Diff([]Span{{Holding: long, From: at(0), To: at(9001)}}, spansOf(t, dir, "10.0.9.9").Spans, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAgeIsBounded(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, small, noon)
	x, long := of("x", "10.0.0.1"), of("long", "10.0.9.9")
	h.add(t, noon, given(0, x), given(0, long), freed(5, x))
	for hour := 0; hour <= 31; hour++ {
		h.add(t, noon.Add(time.Duration(hour)*time.Hour))
	}
	if got := spansOf(t, dir, "10.0.0.1").Spans; len(got) != 1 {
		t.Errorf("before its time: %v", got)
	}
	for minute := 0; minute <= 180; minute++ {
		h.add(t, noon.Add(32*time.Hour+time.Duration(minute)*time.Minute))
	}
	if got := spansOf(t, dir, "10.0.0.1").Spans; len(got) != 0 {
		t.Errorf("after its time: %v", got)
	}
	if got := spansOf(t, dir, "10.0.9.9").Spans; len(got) != 1 || !got[0].From.Equal(noon) {
		t.Errorf("what is still held: %v", got)
	}
	if _, files := sizeOf(t, dir); files > partsOfAge+2 {
		t.Errorf("%d files", files)
	}
}

// TestTornLine: a write that was cut off is as if it had not been, for a reader and for the next
// agent. Damage in the middle takes its lines alone.
func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	a, b := of("a", "10.0.0.1"), of("b", "10.0.0.1")
	h := open(t, dir, small, noon)
	h.add(t, noon, given(0, a), freed(5, a))
	whole, err := os.ReadFile(pathOf(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	torn := b // longer than what is written over it
	torn.Pod = strings.Repeat("x", 200)
	line, err := appendLine(nil, given(6, torn))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(line); cut += 7 {
		if err := os.WriteFile(pathOf(dir, 1), slices.Concat(whole, line[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := spansOf(t, dir, "10.0.0.1").Spans; len(got) != 1 {
			t.Fatalf("cut after %d: %v", cut, got)
		}
		again := open(t, dir, small, at(7))
		again.add(t, at(8), given(8, b))
		if got := spansOf(t, dir, "10.0.0.1").Spans; len(got) != 2 || !got[1].From.Equal(at(8)) {
			t.Fatalf("cut after %d, and written on: %v", cut, got)
		}
		if text, err := os.ReadFile(pathOf(dir, 1)); err != nil || !bytes.HasSuffix(text, []byte("}\n")) {
			t.Fatalf("cut after %d, and written on: %v, %q", cut, err, text)
		}
	}
	if err := os.WriteFile(pathOf(dir, 1), slices.Concat(whole, []byte("\x00garbage\n{}\n"), bytes.Repeat([]byte("x"), 3*maxLine), []byte("\n"), line), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := spansOf(t, dir, "10.0.0.1").Spans; len(got) != 2 {
		t.Errorf("damaged: %v", got)
	}
}

// TestReadWhileSegmentsGo: who reads meanwhile still finds what is held.
func TestReadWhileSegmentsGo(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, small, noon)
	h.add(t, noon, given(0, of("long", "10.0.9.9")))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			var some []Event
			for k := range 200 {
				x := of(fmt.Sprint("c", i, k), "10.0.0.1")
				some = append(some, given(i, x), freed(i, x))
			}
			if err := h.Append(some, at(i)); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 200 {
		if got := spansOf(t, dir, "10.0.9.9").Spans; len(got) != 1 {
			t.Errorf("what is held: %v", got)
			break
		}
	}
	close(stop)
	<-done
}

// TestSegmentGoesWhileListed: what a segment had that is gone when it is opened is found in a later
// one. Where segments keep going, who asks is told.
func TestSegmentGoesWhileListed(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, small, noon)
	listed := 0
	files, err := openSegments(dir, func(dir string) ([]uint64, error) {
		if listed++; listed < 3 {
			return []uint64{0, 1}, nil
		}
		return segmentsIn(dir)
	})
	files.close()
	if err != nil || listed != 3 || len(files) != 1 {
		t.Errorf("listed %d times: %d files, %v", listed, len(files), err)
	}
	if err := os.Symlink("nothing", pathOf(dir, 0)); err != nil { // as if it always went
		t.Fatal(err)
	}
	if a, err := Read(dir, netip.MustParseAddr("10.0.0.1"), noon, noon); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("%v, %v", a, err)
	}
}

// TestKilledBeforeTheFirstLine: an agent that is killed when it has made a segment begins it when
// it starts again.
func TestKilledBeforeTheFirstLine(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "part of a line": `{"time":"20`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(pathOf(dir, 1), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			open(t, dir, small, at(5))
			open(t, dir, small, at(9)) // once
			if a := spansOf(t, dir, "10.0.0.1"); !a.Begins.Equal(at(5)) || a.Node != "n1" {
				t.Errorf("it begins %v on node %q", a.Begins, a.Node)
			}
		})
	}
}

func TestNoHistory(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := Read(dir, netip.MustParseAddr("10.0.0.1"), noon, noon); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestAnswer(t *testing.T) {
	want := Answer{Spans: []Span{{Holding: of("a", "10.0.0.1"), From: at(0)}, {Holding: of("b", "fd00::1"), From: at(0), To: at(5), Late: true}}, Extent: Extent{Node: "n1", Begins: at(0)}}
	var text bytes.Buffer
	if err := want.Write(&text); err != nil {
		t.Fatal(err)
	}
	whole := text.Bytes()
	got, err := ReadAnswer(bytes.NewReader(whole))
	if diff := cmp.Diff(want, got, compare); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for cut := range len(whole) - 1 {
		if got, err := ReadAnswer(bytes.NewReader(whole[:cut])); err == nil {
			t.Fatalf("cut off after %d: %v", cut, got)
		}
	}
}

// FuzzSegment: no file breaks who reads it, and what is made of it holds together.
func FuzzSegment(f *testing.F) {
	var seed []byte
	for _, e := range []Event{{Time: noon, What: Begun, Holding: Holding{Node: "n1"}}, given(0, of("a", "10.0.0.1")), freed(3, of("a", "10.0.0.1")), late(freed(3, of("b", "fd00::1")))} {
		seed, _ = appendLine(seed, e)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-3])
	f.Add([]byte(`{"time":"0000-01-01T00:00:00Z","event":"freed","address":"10.0.0.1"}` + "\n"))
	f.Add([]byte(`{"time":"2026-11-17T12:00:00Z","event":"given","address":"fe80::1%eth0"}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var spans Spans
		whole, err := scanSegment(bytes.NewReader(data), nil, spans.Add)
		if err != nil || whole > int64(len(data)) || whole != int64(bytes.LastIndexByte(data, '\n')+1) {
			t.Fatalf("%d whole bytes of %d, %v", whole, len(data), err)
		}
		for _, s := range spans.All() {
			if s.Late && s.To.IsZero() || !s.To.IsZero() && s.To.Before(s.From) {
				t.Errorf("%v", s)
			}
		}
		_, _ = ReadAnswer(bytes.NewReader(data))
	})
}
