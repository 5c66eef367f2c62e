package suites_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// spec is what became of a spec.
type spec struct {
	passed   bool
	attempts int
	message  string // of its failure
}

// report has the specs of a suite by their names.
type report map[string]spec

// readReport reads what a suite has written with -ginkgo.json-report.
func readReport(path string) (report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			NumAttempts             int
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	r := report{}
	for _, s := range suites {
		for _, x := range s.SpecReports {
			if x.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(x.ContainerHierarchyTexts, x.LeafNodeText), " ")
			unique := name
			for n := 2; ; n++ { // specs of one name are in the order of the suite's seed
				if _, taken := r[unique]; !taken {
					break
				}
				unique = fmt.Sprintf("%s, %d", name, n)
			}
			r[unique] = spec{passed: x.State == "passed", attempts: x.NumAttempts, message: x.Failure.Message}
		}
	}
	return r, nil
}

// passed returns how many specs have passed.
func (r report) passed() int {
	n := 0
	for _, s := range r {
		if s.passed {
			n++
		}
	}
	return n
}

// repeated returns the specs that passed at the second attempt.
func (r report) repeated() []string {
	var names []string
	for name, s := range r {
		if s.passed && s.attempts > 1 {
			names = append(names, name)
		}
	}
	return names
}

// wording is a sentence of host-local or of the CNI library that a spec looks for, and for which
// Tenure has one of its own: docs/divergence.md says why.
type wording struct{ theirs, ours string }

// in reports whether a failure says that the one was looked for, and the other found.
func (w wording) in(message string) bool {
	return strings.Contains(message, w.theirs) && strings.Contains(message, w.ours)
}

// difference is a spec that passes with host-local and not with Tenure.
type difference struct {
	spec, message string
	wording       bool // only another sentence
}

// compare returns where Tenure's report is worse than host-local's, by the names of the specs.
func compare(hostLocal, tenure report, known []wording) []difference {
	var ds []difference
	for _, name := range slices.Sorted(maps.Keys(hostLocal)) {
		own, ran := tenure[name]
		if !hostLocal[name].passed || own.passed {
			continue
		}
		d := difference{spec: name, message: own.message}
		if !ran {
			d.message = "it has not run"
		}
		d.wording = slices.ContainsFunc(known, func(w wording) bool { return w.in(own.message) })
		ds = append(ds, d)
	}
	return ds
}

func TestCompare(t *testing.T) {
	known := []wording{{theirs: "two of one family", ours: "cannot have two"}}
	passed, failed := spec{passed: true}, spec{message: "no address"}
	tests := []struct {
		name              string
		hostLocal, tenure report
		want              []difference
	}{
		{"both pass", report{"a": passed}, report{"a": passed}, nil},
		{"both fail", report{"a": failed}, report{"a": failed}, nil},
		{"host-local alone fails", report{"a": failed}, report{"a": passed}, nil},
		{"Tenure alone fails", report{"a": passed, "b": passed}, report{"a": failed, "b": passed}, []difference{{spec: "a", message: "no address"}}},
		{"Tenure has not come so far", report{"a": passed}, report{}, []difference{{spec: "a", message: "it has not run"}}},
		{
			"Tenure has other words", report{"a": passed}, report{"a": {message: "cannot have two: want two of one family"}},
			[]difference{{spec: "a", message: "cannot have two: want two of one family", wording: true}},
		},
		{
			"Tenure says something else", report{"a": passed}, report{"a": {message: "no address: want two of one family"}},
			[]difference{{spec: "a", message: "no address: want two of one family"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := compare(tt.hostLocal, tt.tenure, known); !slices.Equal(got, tt.want) {
				t.Errorf("differences %+v; want %+v", got, tt.want)
			}
		})
	}
}

// TestReadReport: specs of one name are told apart by their order, and what is no spec is left out.
func TestReadReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	written := `[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["bridge", "ADD"], "LeafNodeType": "It", "LeafNodeText": "works", "State": "passed", "NumAttempts": 1},
		{"ContainerHierarchyTexts": ["bridge", "ADD"], "LeafNodeType": "It", "LeafNodeText": "works", "State": "failed", "NumAttempts": 2, "Failure": {"Message": "no"}}
	]}]`
	if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readReport(path)
	want := report{"bridge ADD works": {passed: true, attempts: 1}, "bridge ADD works, 2": {attempts: 2, message: "no"}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("report %+v, %v; want %+v", got, err, want)
	}
}
