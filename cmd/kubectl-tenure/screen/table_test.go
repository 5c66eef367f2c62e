package screen

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFactsAreApart: a long key, as some conditions have, does not run into its value.
func TestFactsAreApart(t *testing.T) {
	var out bytes.Buffer
	Of(&out).Facts([]Fact{{"Ready", Cell{Text: "True"}}, {"DefinitionsDisagree", Cell{Text: "True"}}})
	Of(&out).Fact("ForeignAddresses", Cell{Text: "True"})
	want := "Ready                True\nDefinitionsDisagree  True\nForeignAddresses  True\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
