package protocol

import (
	"strings"
	"testing"
)

func TestStandoff(t *testing.T) {
	of := func(set string) PodRef {
		return PodRef{Namespace: "ns", Name: set + "-k7x2q", Owner: OwnerRef{Kind: "ReplicaSet", Name: set}}
	}
	named := func(name string) PodRef { return PodRef{Namespace: "ns", Name: name} }
	elsewhere := of("web-6f9c5")
	elsewhere.Namespace = "other"
	stateful := of("web-7d4b8")
	stateful.Owner.Kind = "StatefulSet"
	for _, tt := range []struct {
		name  string
		p, o  PodRef
		wants string // part of the text; empty: there is none
	}{
		{"a rolling update", of("web-7d4b8"), of("web-6f9c5"), "Deployment web. "},
		{"of the other only the name is known", of("my-web-7d4b8"), named("my-web-6f9c5-abcde"), "Deployment my-web. "},
		{"two replicas", of("web-7d4b8"), named("web-7d4b8-abcde"), "have one replica alone"},
		{"a ReplicaSet that no Deployment made", of("web"), named("web-abcde"), "replicas of web"},
		{"two Deployments", of("web-7d4b8"), of("db-6f9c5"), ""},
		{"one whose name begins alike", of("web-7d4b8"), of("web-2-6f9c5"), ""},
		{"a pod by itself", of("web-7d4b8"), named("web"), ""},
		{"another namespace", of("web-7d4b8"), elsewhere, ""},
		{"a StatefulSet", stateful, of("web-6f9c5"), ""},
		{"itself", of("web-7d4b8"), of("web-7d4b8"), ""},
		{"nobody", of("web-7d4b8"), PodRef{}, ""},
	} {
		if got := tt.p.Standoff(tt.o); (got == "") != (tt.wants == "") || !strings.Contains(got, tt.wants) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.wants)
		}
	}
}
