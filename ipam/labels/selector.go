// Package labels selects objects by their labels, as Kubernetes does. It has no client and imports
// nothing of Kubernetes, so that what is linked into the CNI plugin can name its types.
package labels

import (
	"maps"
	"slices"
	"strings"
)

// A Selector selects objects by their labels, as a label selector of Kubernetes does: all its
// requirements must be met, and one without any selects everything. Its JSON form is kept in the
// agent's store.
type Selector struct {
	Labels       map[string]string `json:"labels,omitempty"` // each must be there with that value
	Requirements []Requirement     `json:"requirements,omitempty"`
}

// A Requirement is what a selector requires of one label.
type Requirement struct {
	Key      string   `json:"key"`
	Operator Operator `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// Operator says what a [Requirement] requires.
type Operator string

// The operators, in the API's words. Of In and NotIn the label's value is to be, or not
// to be, one of Values; a label that is not there is in nothing.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Matches reports whether labels meet every requirement of s.
func (s Selector) Matches(labels map[string]string) bool {
	for key, value := range s.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return !slices.ContainsFunc(s.Requirements, func(r Requirement) bool { return !r.met(labels) })
}

func (r Requirement) met(labels map[string]string) bool {
	value, has := labels[r.Key]
	switch r.Operator {
	case In:
		return has && slices.Contains(r.Values, value)
	case NotIn:
		return !has || !slices.Contains(r.Values, value)
	case Exists:
		return has
	case DoesNotExist:
		return !has
	default: // of a later version: whom it means is not known, so that it lets nobody
		return false
	}
}

// String writes s as kubectl's option --selector has it.
func (s Selector) String() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		all = append(all, key+"="+s.Labels[key])
	}
	for _, r := range s.Requirements {
		values := "(" + strings.Join(r.Values, ",") + ")"
		switch r.Operator {
		case In:
			all = append(all, r.Key+" in "+values)
		case NotIn:
			all = append(all, r.Key+" notin "+values)
		case Exists:
			all = append(all, r.Key)
		case DoesNotExist:
			all = append(all, "!"+r.Key)
		default:
			all = append(all, r.Key+" "+string(r.Operator)+" "+values)
		}
	}
	return strings.Join(all, ",")
}
