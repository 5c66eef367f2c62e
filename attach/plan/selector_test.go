package plan

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pattern is a requirement as a regular expression.
var pattern = regexp.MustCompile(`^\s*(?:(!?)\s*([A-Za-z0-9][-A-Za-z0-9_./]*)\s*(?:(==?|!=)\s*([-A-Za-z0-9_.]*)|\s(in|notin)\s*\(([-A-Za-z0-9_.,\s]*)\))?)\s*$`)

// byPattern is parseRequirement by the pattern.
func byPattern(text string) (r requirement, ok bool) {
	p := pattern.FindStringSubmatch(text)
	if p == nil || p[1] != "" && (p[3] != "" || p[5] != "") {
		return r, false
	}
	r = requirement{negated: p[1] != "", key: p[2], operator: p[3] + p[5]}
	if p[3] != "" {
		r.values = []string{p[4]}
	}
	if p[5] != "" {
		for value := range strings.SplitSeq(p[6], ",") {
			r.values = append(r.values, strings.TrimSpace(value))
		}
	}
	return r, true
}

// compareRequirement fails t if text reads otherwise than by the pattern.
func compareRequirement(t *testing.T, text string) {
	got, ok := parseRequirement(text)
	want, valid := byPattern(text)
	if ok != valid || ok && (got.negated != want.negated || got.key != want.key || got.operator != want.operator || !slices.Equal(got.values, want.values)) {
		t.Errorf("%q: %+v, %v; want %+v, %v", text, got, ok, want, valid)
	}
}

// requirementsOfEveryKind are made of parts, right ones and wrong ones.
func requirementsOfEveryKind() (all []string) {
	for _, before := range []string{"", " ", "!", "! ", "!!", "\v"} {
		for _, key := range []string{"", "a", "team/x_y.z-1", "-a", "in", "notin", "é"} {
			for _, operator := range []string{"", " ", "=", " == ", "===", "!=", " ! =", "in", " in", "\tin ", " notin\n", " i n", " inx", " =in"} {
				for _, value := range []string{"", "v", " -v_. ", "v w", "()", "(a, b)", " ( a ,\tb,) ", "(a", "a)", "(a)(b)", "(a/b)", "((a))", "é", "(a\v)"} {
					all = append(all, before+key+operator+value)
				}
			}
		}
	}
	return all
}

func TestRequirementIsReadByItsPattern(t *testing.T) {
	for _, text := range requirementsOfEveryKind() {
		compareRequirement(t, text)
	}
}

func FuzzRequirement(f *testing.F) {
	for _, text := range []string{"team=blue", "team != blue", "team in (blue, red)", "!team", "team"} {
		f.Add(text)
	}
	f.Fuzz(compareRequirement)
}
