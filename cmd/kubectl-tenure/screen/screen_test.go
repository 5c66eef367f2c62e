package screen

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTable: the last columns are for -o wide, and colours do not shift columns.
func TestTable(t *testing.T) {
	tab := Table{Heads: []string{"NAME", "MESSAGE", "LATER"}, Wide: 1}
	tab.Row(append(Plain("a"), Cell{"fine", LookGood}, Cell{"x", LookBad})...)
	tab.Row(Plain("longer-name", "", "y")...)
	for _, tt := range []struct {
		colour, wide bool
		want         string
	}{
		{false, false, "NAME          MESSAGE\na             fine\nlonger-name   -\n"},
		{false, true, "NAME          MESSAGE   LATER\na             fine      x\nlonger-name   -         y\n"},
		{true, true, "NAME          MESSAGE   LATER\na             fine      x\nlonger-name   -         y\n"},
	} {
		var out bytes.Buffer
		tab.Write(Screen{w: &out, colour: tt.colour}, tt.wide)
		got := out.String()
		if painted := strings.Contains(got, "\x1b[31mx\x1b[0m"); painted != tt.colour {
			t.Errorf("colour %v: got %q", tt.colour, got)
		}
		if diff := cmp.Diff(tt.want, regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(got, "")); diff != "" {
			t.Errorf("colour %v, wide %v (-want +got):\n%s", tt.colour, tt.wide, diff)
		}
	}
}
