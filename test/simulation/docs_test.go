package simulation

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
