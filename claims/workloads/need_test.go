package workloads

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestNeeds: a claim that has the name of one that a pod needs is left alone where it is somebody
// else's, and becomes the pod's where it is nobody's.
func TestNeeds(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "operator.example/v1", Kind: "PodSet", Name: "kafka", UID: "o1", Controller: new(true)}
	other := owner
	other.UID = "o2"
	vm := ref("VirtualMachine", "vm", "v1")
	pods := need{name: "kafka-0.lan", network: "net", ifName: "net1", owner: owner}
	machines := need{name: "vm.lan.hash", network: "net", owner: vm, machine: "vm"}
	owners := func(o ...metav1.OwnerReference) []metav1.OwnerReference { return o }
	for name, tt := range map[string]struct {
		need  need
		there claim
		want  string
	}{
		"as it is":                         {pods, claim{network: "net", byName: "o1", owners: owners(owner)}, ""},
		"nobody's":                         {pods, claim{network: "net"}, "change"},
		"nobody's, of an owner before":     {pods, claim{network: "net", byName: "o0"}, "change"},
		"its owner's, without the label":   {pods, claim{network: "net", owners: owners(owner)}, "change"},
		"its owner's, without the owner":   {pods, claim{network: "net", byName: "o1"}, "change"},
		"another owner's of the name":      {pods, claim{network: "net", byName: "o2", owners: owners(other)}, "it belongs to PodSet kafka"},
		"two owners'":                      {pods, claim{network: "net", byName: "o1", owners: owners(owner, other)}, "it belongs to"},
		"of another network":               {pods, claim{network: "wan"}, `it is of network "wan", and the pod needs one of "net"`},
		"of another interface":             {pods, claim{network: "net", ifName: "net2"}, "it is for interface net2"},
		"a StatefulSet's":                  {pods, claim{network: "net", set: "kafka"}, "it is for StatefulSet kafka"},
		"a machine's":                      {pods, claim{network: "net", vm: "kafka"}, `it is for virtual machine "kafka"`},
		"being deleted":                    {pods, claim{network: "wan", deleting: true}, ""},
		"the machine's":                    {machines, claim{network: "net", vm: "vm", owners: owners(vm)}, ""},
		"the machine's, that was restored": {machines, claim{network: "net", vm: "vm"}, ""},
		"another machine's":                {machines, claim{network: "net", vm: "wm"}, "it is for virtual machine"},
		"a person's":                       {machines, claim{network: "net"}, "it is for virtual machine"},
	} {
		v := tt.need.judge(tt.there)
		switch {
		case v.change != nil:
			if o := v.change.owners; tt.want != "change" || len(o) != 1 || o[0].UID != tt.need.owner.UID {
				t.Errorf("%s: changed to %v; want %q", name, o, tt.want)
			}
		case v.fault != nil:
			if v.fault.reason != ReasonTaken || tt.want == "" || !strings.Contains(v.fault.message, tt.want) {
				t.Errorf("%s: %v; want %q", name, v.fault, tt.want)
			}
		case tt.want != "":
			t.Errorf("%s: nothing; want %q", name, tt.want)
		}
	}
}

// TestPodsInTheCache: of most pods nothing is kept but their names.
func TestPodsInTheCache(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations, labels string
		want                int // annotations that are kept
		owned               bool
	}{
		"asks":             {workload.AnnotationClaims, "app", 2, true},
		"a machine's":      {"other", kube.LauncherLabel, 1, true},
		"asks for nothing": {"other", "app", 0, false},
	} {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{tt.annotations: "x", kube.AnnotationNetworks: "lan"}, Labels: map[string]string{tt.labels: kube.Launcher},
			OwnerReferences: []metav1.OwnerReference{{UID: "o"}},
		}}
		for range 2 { // a cache may do it again
			CondensePod(o)
		}
		if len(o.Annotations) != tt.want || (len(o.OwnerReferences) == 1) != tt.owned || (o.Labels != nil) != (tt.labels == kube.LauncherLabel) {
			t.Errorf("%s: kept are %+v", name, o.ObjectMeta)
		}
	}
}
