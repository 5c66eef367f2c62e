package npwg

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
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

func TestSelectorsMeanWhatTheyMeanToKubernetes(t *testing.T) {
	sets := []map[string]string{nil, {"a": "x"}, {"a": "y"}, {"a": ""}, {"b": "x"}, {"a": "x", "b": "y"}, {"kubernetes.io/metadata.name": "shop"}}
	for _, text := range []string{
		"a", "!a", "a=x", "a==x", "a!=x", "a in (x,y)", "a in (x, z)", "a notin (x)", "a notin (x , y),b", "a=x,b=y", " a = x , ! b ", "a=", "a in ()",
		"kubernetes.io/metadata.name=shop", "kubernetes.io/metadata.name in (shop,web)",
	} {
		theirs, err := labels.Parse(text)
		if err != nil {
			t.Fatalf("labels.Parse(%q): %v", text, err)
		}
		for _, set := range sets {
			if got, err := matches(text, set); err != nil || got != theirs.Matches(labels.Set(set)) {
				t.Errorf("matches(%q, %v) = %t, %v; want %t", text, set, got, err, !got)
			}
		}
	}
	for _, text := range []string{"", "a in x", "a in (x", "!a=x", "a,,b", "(a)", "=x", "a=x y", "!a in (x)", "a ~ b"} {
		if _, err := matches(text, nil); err == nil {
			t.Errorf("matches(%q): no error", text)
		}
	}
}

// TestWhyForbidden: who is named, and who has the labels; what cannot be read lets nobody in.
func TestWhyForbidden(t *testing.T) {
	blue := map[string]string{"team": "blue"}
	for _, tt := range []struct {
		names, selector string
		forbidden, says bool
	}{
		{"-", "-", true, false}, {"", "-", true, true}, {"shop", "-", false, true}, {"web , shop", "-", false, true}, {"*", "-", false, true},
		{"web", "-", true, true}, {"-", "team=blue", false, true}, {"-", "team=red", true, true}, {"shop", "team=red", false, true},
		{"web", "team=blue", false, true}, {"-", "", true, true}, {"-", "team in blue", true, true},
	} {
		of := map[string]string{AnnotationNamespaces: tt.names, AnnotationSelector: tt.selector}
		maps.DeleteFunc(of, func(_, text string) bool { return text == "-" })
		if why, says := WhyForbidden(of, "shop", blue); (why != "") != tt.forbidden || says != tt.says {
			t.Errorf("%v: %q, %t", of, why, says)
		}
	}
}
