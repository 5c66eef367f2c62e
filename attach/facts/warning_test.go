package facts

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLimit(t *testing.T) {
	if got := Limit(nil); got != nil {
		t.Errorf("Limit(nil) = %v; want nil", got)
	}
	few := make([]Warning, maxWarnings)
	for i := range few {
		few[i] = Warning{"Reason", strings.Repeat("x", maxMessage)}
	}
	for i, w := range Limit(few) {
		if w != few[i] {
			t.Errorf("%d: %v; want it as it is", i, w)
		}
	}
	if got := Limit(few); len(got) != maxWarnings {
		t.Errorf("%d warnings; want all %d", len(got), maxWarnings)
	}
	many := append(few, few...)
	got := Limit(append(many, Warning{"Last", "x"}))
	if last := got[len(got)-1]; len(got) != maxWarnings+1 || last != (Warning{"Reason", "and 17 more"}) {
		t.Errorf("%d warnings, the last %v; want 17, and 17 more", len(got), last)
	}
	for _, long := range []string{strings.Repeat("x", maxMessage+1), strings.Repeat("é", maxMessage), "x" + strings.Repeat("é", maxMessage)} {
		cut := Limit([]Warning{{"Reason", long}})[0].Message
		if text, ok := strings.CutSuffix(cut, "…"); len(cut) > maxMessage || len(cut) < maxMessage-3 || !ok || !strings.HasPrefix(long, text) || !utf8.ValidString(cut) {
			t.Errorf("a message of %d bytes became %d, %.20q…; want its beginning", len(long), len(cut), cut)
		}
	}
}
