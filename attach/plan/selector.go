package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// requirement is one requirement of a label selector, as kubectl writes it: key,
// !key, key=value, key==value, key!=value, key in (a, b), key notin (a, b). Few
// plans need it, and the plugin starts for each: it is compiled when it is used.
var requirement = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(?:(!?)\s*([A-Za-z0-9][-A-Za-z0-9_./]*)\s*(?:(==?|!=)\s*([-A-Za-z0-9_.]*)|\s(in|notin)\s*\(([-A-Za-z0-9_.,\s]*)\))?)\s*$`)
})

// matches reports whether labels meet every requirement of a selector. An empty
// selector is an error: it would mean everything.
func matches(selector string, labels map[string]string) (bool, error) {
	all := true
	for _, text := range requirements(selector) {
		p := requirement().FindStringSubmatch(text)
		if p == nil || p[1] != "" && (p[3] != "" || p[5] != "") {
			return false, fmt.Errorf("%q is no label requirement such as team=blue, team!=blue, team in (blue, red), team or !team", text)
		}
		negated, key, operator, value, set, values := p[1] != "", p[2], p[3], p[4], p[5], p[6]
		label, has := labels[key]
		member := slices.ContainsFunc(strings.Split(values, ","), func(v string) bool { return strings.TrimSpace(v) == label })
		ok := has != negated // key, !key
		switch {
		case operator == "!=":
			ok = !has || label != value
		case operator != "":
			ok = has && label == value
		case set == "in":
			ok = has && member
		case set == "notin":
			ok = !has || !member
		}
		all = all && ok
	}
	return all, nil
}

// requirements cuts a selector at its commas, but for those between parentheses.
func requirements(selector string) (all []string) {
	depth, begin := 0, 0
	for i, c := range selector {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			all = append(all, selector[begin:i])
			begin = i + 1
		}
	}
	return append(all, selector[begin:])
}
