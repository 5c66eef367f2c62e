package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/simulation/mutant"
)

// TestFaults switches one bug on at a time. A simulation that a bug passes proves
// nothing: each must be found within so many seeds, by the invariant that it
// breaks. What it breaks else on the way, such as that something comes to rest, is no
// proof, and none of the contrary. It runs in a program that was built with the mutants.
func TestFaults(t *testing.T) {
	if !mutant.Built {
		runWithMutants(t)
		return
	}
	for _, bug := range Bugs() {
		if bug.Within == 0 {
			continue // the page says why
		}
		t.Run(string(bug.Fault)+" "+bug.What, func(t *testing.T) {
			if err := SwitchOn(bug.Fault); err != nil {
				t.Fatal(err)
			}
			finds := func(seed uint64) bool {
				if bug.In != nil && !bug.In(kindOf(seed)) {
					return false
				}
				out := Run(seed, bug.Fault)
				if out.Failure == nil {
					return false
				}
				t.Logf("seed %d: %v", seed, out.Failure)
				return slices.Contains(bug.Breaks, out.Failure.Invariant)
			}
			if finds(bug.Finder) {
				return
			}
			var found atomic.Bool
			each(bug.Within, func(seed uint64) bool {
				if !finds(seed) {
					return true
				}
				t.Logf("it is found by seed %d: say so in its row", seed)
				found.Store(true)
				return false
			})
			if !found.Load() {
				t.Errorf("not found within %d seeds", bug.Within)
			}
		})
	}
}

// runWithMutants runs the test in a program that was built with the mutants.
func runWithMutants(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := WriteOverlay(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "mutants.test")
	for _, command := range [][]string{
		{"go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, "."},
		{program, "-test.run", "^TestFaults$", "-test.v", "-test.timeout", "60m"},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		} else {
			t.Logf("%s", out)
		}
	}
}

// TestShrink holds that a shrunk run is short and breaks the same invariant.
func TestShrink(t *testing.T) {
	bug := Bugs()[slices.IndexFunc(Bugs(), func(b Bug) bool { return b.Fault == "M24" })]
	for seed := range bug.Within {
		long := Trace(seed, bug.Fault)
		if long.Failure == nil {
			continue
		}
		short, tries := Shrink(long.Schedule, bug.Fault)
		out := PlayTrace(short, bug.Fault)
		if out.Failure == nil || out.Failure.Invariant != long.Failure.Invariant {
			t.Fatalf("seed %d breaks %v, and shrunk %v", seed, long.Failure, out.Failure)
		}
		t.Logf("seed %d: %d acts shrunk to %d in %d runs, %d lines: %v", seed, long.Acts, out.Acts, tries, len(out.Trace), out.Failure)
		if out.Acts > long.Acts/2 {
			t.Errorf("seed %d: %d acts were shrunk to %d only", seed, long.Acts, out.Acts)
		}
		return
	}
	t.Fatal("no seed fails")
}

// TestDocsNameEveryFault holds that docs/contributing/simulation.md lists every fault with what it
// may break, and none besides, and explains each that the simulation does not find.
func TestDocsNameEveryFault(t *testing.T) {
	text, err := os.ReadFile("../../docs/contributing/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	table, rest, ok := strings.Cut(string(text), "### Faults that it does not find")
	if !ok {
		t.Fatal("the page has no section on faults that are not found")
	}
	named := func(pattern, in string) (all []Fault) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(in, -1) {
			all = append(all, Fault(m[1]))
		}
		return all
	}
	listed, excused := named(`(?m)^\| (M\d+) \|`, table), named(`(?m)^- \*\*(M\d+)\*\*`, rest)
	for _, fault := range listed {
		if !slices.ContainsFunc(Bugs(), func(b Bug) bool { return b.Fault == fault }) {
			t.Errorf("the table has %s, which there is not", fault)
		}
	}
	for _, bug := range Bugs() {
		if !slices.Contains(listed, bug.Fault) {
			t.Errorf("the table lacks %s", bug.Fault)
		}
		breaks := strings.Trim(fmt.Sprint(bug.Breaks), "[]")
		if row := "| " + strings.ReplaceAll(breaks, " ", ", ") + " |"; !regexp.MustCompile(`(?m)^\| ` + string(bug.Fault) + ` \| .* ` + regexp.QuoteMeta(row) + `$`).MatchString(table) {
			t.Errorf("%s breaks %s, which its row does not say", bug.Fault, breaks)
		}
		if found := bug.Within > 0; found == slices.Contains(excused, bug.Fault) {
			t.Errorf("%s: found by TestFaults: %v; and the page says the same of it", bug.Fault, found)
		}
	}
}
