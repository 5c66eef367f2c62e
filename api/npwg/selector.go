package npwg

import (
	"fmt"
	"slices"
	"strings"
)

// A requirement is one requirement of a label selector, as kubectl writes it: key, !key,
// key=value, key==value, key!=value, key in (a, b), key notin (a, b).
type requirement struct {
	negated  bool // !key
	key      string
	operator string   // "", =, ==, !=, in or notin
	values   []string // one, but with in and notin
}

// matches reports whether labels meet every requirement of a selector. An empty
// selector is an error: it would mean everything.
func matches(selector string, labels map[string]string) (bool, error) {
	all := true
	for _, text := range requirements(selector) {
		r, ok := parseRequirement(text)
		if !ok {
			return false, fmt.Errorf("%q is no label requirement such as team=blue, team!=blue, team in (blue, red), team or !team", text)
		}
		all = all && r.matches(labels)
	}
	return all, nil
}

func (r requirement) matches(labels map[string]string) bool {
	label, has := labels[r.key]
	switch r.operator {
	case "":
		return has != r.negated
	case "!=", "notin":
		return !has || !slices.Contains(r.values, label)
	default:
		return has && slices.Contains(r.values, label)
	}
}

// What a requirement consists of.
const (
	spaces      = "\t\n\f\r "
	namesBegin  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	valueLetter = namesBegin + "-_."
	keyLetter   = valueLetter + "/"
)

// parseRequirement reads a requirement. It goes without package regexp, which every
// start of the plugin would pay for.
func parseRequirement(text string) (r requirement, ok bool) {
	rest, negated := strings.CutPrefix(strings.Trim(text, spaces), "!")
	rest = strings.TrimLeft(rest, spaces)
	after := strings.TrimLeft(rest, keyLetter)
	r = requirement{negated: negated, key: rest[:len(rest)-len(after)]}
	if r.key == "" || !strings.Contains(namesBegin, r.key[:1]) {
		return r, false
	}
	if after == "" {
		return r, true
	}
	r.operator, r.values, ok = parseCondition(after)
	return r, ok && !negated
}

// parseCondition reads what follows the key.
func parseCondition(text string) (operator string, values []string, ok bool) {
	rest := strings.TrimLeft(text, spaces)
	for _, operator := range []string{"==", "=", "!="} {
		if value, ok := strings.CutPrefix(rest, operator); ok {
			value = strings.TrimLeft(value, spaces)
			return operator, []string{value}, strings.Trim(value, valueLetter) == ""
		}
	}
	for _, operator := range []string{"in", "notin"} {
		list, ok := strings.CutPrefix(rest, operator)
		if !ok || rest == text { // without a space before it
			continue
		}
		list, begins := strings.CutPrefix(strings.TrimLeft(list, spaces), "(")
		list, ends := strings.CutSuffix(list, ")")
		for value := range strings.SplitSeq(list, ",") {
			values = append(values, strings.TrimSpace(value))
		}
		return operator, values, begins && ends && strings.Trim(list, valueLetter+spaces+",") == ""
	}
	return "", nil, false
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
