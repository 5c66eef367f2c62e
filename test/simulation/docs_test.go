package simulation

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsNameEveryFault holds that docs/contributing/simulation.md lists the faults M1 to M72 with
// what each may break, and explains each that the simulation does not find.
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
	for n := range 72 {
		fault := Fault(fmt.Sprintf("M%d", n+1))
		if !slices.Contains(listed, fault) {
			t.Errorf("the table lacks %s", fault)
		}
		i := slices.IndexFunc(Bugs(), func(b Bug) bool { return b.Fault == fault })
		found := i >= 0 && Bugs()[i].Within > 0
		if i >= 0 {
			breaks := strings.Trim(fmt.Sprint(Bugs()[i].Breaks), "[]")
			if row := "| " + strings.ReplaceAll(breaks, " ", ", ") + " |"; !regexp.MustCompile(`(?m)^\| ` + string(fault) + ` \| .* ` + regexp.QuoteMeta(row) + `$`).MatchString(table) {
				t.Errorf("%s breaks %s, which its row does not say", fault, breaks)
			}
		}
		if found == slices.Contains(excused, fault) {
			t.Errorf("%s: found by TestFaults: %v; and the page says the same of it", fault, found)
		}
	}
}
