package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangedShowsWhatIsNotAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	before := report{machine: machine{Load: "0.1", Versions: map[string]string{"tenure": "abc"}}, figures: []figure{
		newFigure("slower", "ms", []float64{1, 1.1, 1.2}),
		newFigure("overlapping", "ms", []float64{1, 1.1, 1.2}),
		newFigure("one round, little", "MB", []float64{4}),
		newFigure("one round, much", "MB", []float64{4}),
		newFigure("gone", "MB", []float64{4}),
	}}
	if err := before.writeJSON(path); err != nil {
		t.Fatal(err)
	}
	e, err := readEarlier(path)
	if err != nil {
		t.Fatal(err)
	}
	got := e.changed([]figure{
		newFigure("slower", "ms", []float64{2, 2.2, 2.1}),
		newFigure("overlapping", "ms", []float64{1.15, 2, 3}),
		newFigure("one round, little", "MB", []float64{4.2}),
		newFigure("one round, much", "MB", []float64{8}),
		newFigure("new", "MB", []float64{8}),
	})
	want := table{
		title: "changed since the last run, of abc at a load of 0.1", columns: []string{"figure", "was", "is", "times"},
		rows: [][]string{{"slower", "1.10 ms", "2.10 ms", "1.91"}, {"one round, much", "4.00 MB", "8.00 MB", "2.00"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(table{})); diff != "" {
		t.Errorf("changed figures (-want +got):\n%s", diff)
	}
}

func TestEarlierFigures(t *testing.T) {
	dir := t.TempDir()
	if e, err := readEarlier(filepath.Join(dir, "none")); err != nil || len(e.changed([]figure{newFigure("x", "", []float64{1})}).rows) > 0 {
		t.Errorf("without a file: %v, %v; want nothing to compare with", e, err)
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{}\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEarlier(broken); err == nil {
		t.Error("a damaged file is read as if it were whole")
	}
}
