package access_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/labels"
)

// facts is what is known of one namespace, and which of it was asked for.
type facts struct {
	labels  map[string]string
	allowed bool
	err     error
	asked   []string
}

func (f *facts) Labels(context.Context, string) (map[string]string, error) {
	f.asked = append(f.asked, "labels")
	return f.labels, f.err
}

func (f *facts) MayUse(context.Context, string, string) (bool, error) {
	f.asked = append(f.asked, "use")
	return f.allowed, f.err
}

func TestWithoutANamespaceOnlyAPoolForEverybodyIsUsed(t *testing.T) {
	if err := (access.Rule{}).Check(t.Context(), &facts{}, "", "lan"); err != nil {
		t.Errorf("a pool for everybody: got %v; want none", err)
	}
	for _, r := range []access.Rule{{Namespaces: &labels.Selector{}}, {Asks: true}} {
		f := facts{allowed: true}
		err := r.Check(t.Context(), &f, "", "lan")
		if _, denied := errors.AsType[*access.DeniedError](err); !denied || !strings.Contains(err.Error(), "pool lan may not be used") || len(f.asked) > 0 {
			t.Errorf("%+v: got %v after asking for %v; want it denied without", r, err, f.asked)
		}
	}
}

func TestCheck(t *testing.T) {
	blue := &labels.Selector{Labels: map[string]string{"team": "blue"}}
	tests := []struct {
		name  string
		rule  access.Rule
		facts facts
		asked string
		want  string // empty: it may
	}{
		{"no rule asks for nothing", access.Rule{}, facts{err: errors.New("away")}, "", ""},
		{"selected", access.Rule{Namespaces: blue}, facts{labels: map[string]string{"team": "blue"}}, "labels", ""},
		{"not selected", access.Rule{Namespaces: blue}, facts{}, "labels", "namespace ns may not use pool lan: the IPPool's spec.namespaceSelector (team=blue) does not select it"},
		{"labels not known", access.Rule{Namespaces: blue}, facts{err: errors.New("away")}, "labels", "it cannot be told whether namespace ns may use pool lan, by its spec.namespaceSelector: away"},
		{"allowed", access.Rule{Asks: true}, facts{allowed: true}, "use", ""},
		{"not allowed", access.Rule{Asks: true}, facts{}, "use", "group system:serviceaccounts:ns is not allowed the verb use on ippools.tenure.dev/lan"},
		{"not allowed a PodNetwork", access.Rule{Of: access.PodNetwork, Asks: true}, facts{}, "use", "namespace ns may not use PodNetwork lan: the PodNetwork's spec.access is RBAC, and group system:serviceaccounts:ns is not allowed the verb use on podnetworks.tenure.dev/lan"},
		{"a PodNetwork that does not select it", access.Rule{Of: access.PodNetwork, Namespaces: blue}, facts{}, "labels", "the PodNetwork's spec.namespaceSelector (team=blue)"},
		{"nobody to ask", access.Rule{Asks: true}, facts{err: errors.New("away")}, "use", "by its spec.access RBAC: away"},
		{"both are needed", access.Rule{Namespaces: blue, Asks: true}, facts{labels: map[string]string{"team": "blue"}}, "labels use", "the verb use"},
		{"what is not selected is not asked about", access.Rule{Namespaces: blue, Asks: true}, facts{allowed: true}, "labels", "does not select it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.rule.Check(t.Context(), &tt.facts, "ns", "lan")
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
			if got := strings.Join(tt.facts.asked, " "); got != tt.asked {
				t.Errorf("asked for %q; want %q", got, tt.asked)
			}
			_, unknown := errors.AsType[*access.UnknownError](err)
			if unknown != (err != nil && tt.facts.err != nil) {
				t.Errorf("%v: unknown is %t", err, unknown)
			}
		})
	}
}
