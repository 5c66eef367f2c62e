package podnetworks

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
)

func TestConditions(t *testing.T) {
	foreign := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.NetworkParamsReady, Status: status, Reason: "Theirs", Message: "as they say", ObservedGeneration: 1}}
	}
	fault := &podnetwork.ParamsError{Reason: v1alpha1.ReasonParamsMissing, Message: "it is not there"}
	for _, tt := range []struct {
		name   string
		before []metav1.Condition
		look   look
		want   string // type=status/reason of each, in order
		says   string // of Ready
	}{
		{"no parameters", nil, look{}, "Ready=True/NetworkReady InUse=False/Unreferenced", "pods can be attached"},
		{"P3 nobody has said that the parameters are ready", nil, look{provider: "foo.io/bar", refers: true}, "Ready=False/ParamsNotReady InUse=False/Unreferenced", "foo.io/bar has not set"},
		{"P3 there is nobody to say", nil, look{refers: true}, "Ready=False/ParamsNotReady InUse=False/Unreferenced", "spec.provider is empty"},
		{"P5 the provider says that they are not", foreign("False"), look{provider: "foo.io/bar", refers: true}, "ParamsReady=False/Theirs Ready=False/ParamsNotReady InUse=False/Unreferenced", "as they say"},
		{"P5 the provider does not know", foreign("Unknown"), look{provider: "foo.io/bar", refers: true}, "ParamsReady=Unknown/Theirs Ready=False/ParamsNotReady InUse=False/Unreferenced", "as they say"},
		{"P5 the provider says that they are", foreign("True"), look{provider: "foo.io/bar", refers: true}, "ParamsReady=True/Theirs Ready=True/NetworkReady InUse=False/Unreferenced", ""},
		{"FD5 no parameters, and the provider says no", foreign("False"), look{provider: "foo.io/bar"}, "ParamsReady=False/Theirs Ready=False/ParamsNotReady InUse=False/Unreferenced", ""},
		{"P4 disabled", nil, look{disabled: true, inUse: true}, "Ready=False/AdministrativelyDisabled InUse=True/Referenced", "spec.enabled"},
		{"P4 disabled wins", nil, look{disabled: true, refers: true, judged: true, params: fault}, "Ready=False/AdministrativelyDisabled ParamsReady=False/ParamsMissing InUse=False/Unreferenced", ""},
		{"P9 being deleted", nil, look{deleting: true, disabled: true, refers: true, inUse: true}, "Ready=False/Deleting InUse=True/Referenced", "new pods are not attached"},
		{"accepted", nil, look{refers: true, judged: true, inUse: true}, "Ready=True/NetworkReady ParamsReady=True/ParamsAccepted InUse=True/Referenced", ""},
		{"not accepted", nil, look{refers: true, judged: true, params: fault}, "Ready=False/ParamsNotReady ParamsReady=False/ParamsMissing InUse=False/Unreferenced", "it is not there"},
		{"Q1 the network is not ready", nil, look{refers: true, judged: true, network: "PodNetwork lan is not Ready"}, "Ready=False/PodNetworkNotReady ParamsReady=True/ParamsAccepted InUse=False/Unreferenced", "PodNetwork lan"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.look.generation = 3
			got := conditions(tt.before, tt.look)
			var text []string
			for _, c := range got {
				text = append(text, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
				if c.Reason != "Theirs" && c.ObservedGeneration != 3 {
					t.Errorf("%s is of generation %d; want 3", c.Type, c.ObservedGeneration)
				}
				if c.Type == v1alpha1.NetworkReady && !strings.Contains(c.Message, tt.says) {
					t.Errorf("Ready says %q; want %q", c.Message, tt.says)
				}
			}
			if strings.Join(text, " ") != tt.want {
				t.Errorf("got  %s\nwant %s", strings.Join(text, " "), tt.want)
			}
			if again := conditions(got, tt.look); !same(got, again) {
				t.Errorf("a second look changes %v to %v", got, again)
			}
			tt.look.generation = 4
			if again := conditions(got, tt.look); same(got, again) {
				t.Error("another generation changes nothing")
			}
		})
	}
}
