package podnetwork

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// ref reads "Kind namespace/name" as a reference of Tenure's group, or a definition's.
func ref(text string) v1alpha1.ParametersRef {
	kind, at, _ := strings.Cut(text, " ")
	namespace, name, namespaced := strings.Cut(at, "/")
	if !namespaced {
		namespace, name = "", at
	}
	group := v1alpha1.GroupName
	if kind == KindDefinition {
		group = GroupDefinition
	}
	return v1alpha1.ParametersRef{Group: group, Kind: kind, Namespace: namespace, Name: name}
}

func refs(texts ...string) (all []v1alpha1.ParametersRef) {
	for _, text := range texts {
		all = append(all, ref(text))
	}
	return all
}

// wantFault checks that err is a fault of the parameters, of that reason, with this text; no
// error, where the text is empty.
func wantFault(t *testing.T, err error, reason, text string) {
	t.Helper()
	if text == "" {
		if err != nil {
			t.Errorf("got %v; want no error", err)
		}
		return
	}
	fault, ok := errors.AsType[*ParamsError](err)
	if !ok || fault.Reason != reason || !strings.Contains(fault.Message, text) {
		t.Errorf("got %v; want %s, %q", err, reason, text)
	}
}

func TestReadRefs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		refs  []v1alpha1.ParametersRef
		want  Refs
		fault string
	}{
		{"a definition", refs("NetworkAttachmentDefinition infra/lan"), Refs{Definition: facts.Ref{Namespace: "infra", Name: "lan"}}, ""},
		{"parameters and a pool", refs("IPPool lan", "InterfaceParameters infra/lan"), Refs{Parameters: facts.Ref{Namespace: "infra", Name: "lan"}, Pool: "lan"}, ""},
		{"P13 without a pool", refs("InterfaceParameters infra/lan"), Refs{Parameters: facts.Ref{Namespace: "infra", Name: "lan"}}, ""},
		{"nothing", nil, Refs{}, "does not say how interfaces are made"},
		{"a pool alone", refs("IPPool lan"), Refs{}, "does not say how interfaces are made"},
		{"two definitions", refs("NetworkAttachmentDefinition a/x", "NetworkAttachmentDefinition a/y"), Refs{}, "parametersRefs[1]: NetworkAttachmentDefinition a/y is the second one, after a/x"},
		{"two of parameters", refs("InterfaceParameters a/x", "InterfaceParameters a/y"), Refs{}, "parametersRefs[1]: InterfaceParameters a/y is the second one"},
		{"two pools", refs("InterfaceParameters a/x", "IPPool p", "IPPool q"), Refs{}, "parametersRefs[2]: IPPool q is the second one, after p"},
		{"a definition and a pool", refs("NetworkAttachmentDefinition a/x", "IPPool p"), Refs{}, "has all that is needed"},
		{"no namespace", refs("InterfaceParameters x"), Refs{}, "InterfaceParameters x has no namespace"},
		{"a kind that is not served", refs("ConfigMap a/x"), Refs{}, `serves no ConfigMap of group "tenure.dev"`},
		{"a group that is not served", []v1alpha1.ParametersRef{{Group: "example.com", Kind: KindPool, Name: "p"}}, Refs{}, `serves no IPPool of group "example.com"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadRefs(tt.refs)
			wantFault(t, err, v1alpha1.ReasonParamsInvalid, tt.fault)
			if got != tt.want {
				t.Errorf("got %+v; want %+v", got, tt.want)
			}
		})
	}
}

func TestReadOwnRefs(t *testing.T) {
	made := Refs{Parameters: facts.Ref{Namespace: "infra", Name: "lan"}}
	for _, tt := range []struct {
		name  string
		refs  []v1alpha1.ParametersRef
		of    Refs
		fault string
	}{
		{"of its namespace", refs("InterfaceParameters mine"), made, ""},
		{"of its namespace, which is named", refs("InterfaceParameters team/mine"), made, ""},
		{"of another namespace", refs("InterfaceParameters infra/mine"), made, "infra/mine is of another namespace"},
		{"two", refs("InterfaceParameters a", "InterfaceParameters b"), made, "b is the second one, after a"},
		{"a pool", refs("IPPool p"), made, "serves no IPPool"},
		{"of a definition", refs("InterfaceParameters mine"), Refs{Definition: facts.Ref{Namespace: "infra", Name: "lan"}}, "which an attachment cannot vary: leave spec.parametersRefs out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadOwnRefs("team", tt.refs, "lan", tt.of)
			wantFault(t, err, v1alpha1.ReasonParamsInvalid, tt.fault)
			if want := (facts.Ref{Namespace: "team", Name: "mine"}); err == nil && got != want {
				t.Errorf("got %+v; want %+v", got, want)
			}
		})
	}
}
