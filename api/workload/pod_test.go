package workload

import (
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// TestClaimsByName: a pod has the claims of its name, which are names of objects whatever the pod
// and the network are called, and no two alike.
func TestClaimsByName(t *testing.T) {
	long := strings.Repeat("a", 250)
	names := map[string]bool{}
	for _, name := range []string{
		PodClaimName("kafka-0", Element{Namespace: "ns", Name: "lan"}, "ns"),
		PodClaimName("kafka-0", Element{Namespace: "ns", Name: "lan", Interface: "net1"}, "ns"),
		PodClaimName("kafka-0", Element{Namespace: "ns", Name: "lan", Interface: "Net1"}, "ns"),
		PodClaimName("kafka-0", Element{Namespace: "infra", Name: "lan"}, "ns"),
		PodClaimName(long, Element{Namespace: "ns", Name: "lan"}, "ns"),
		PodClaimName(long+"b", Element{Namespace: "ns", Name: "lan"}, "ns"),
		MachineClaimName("vm.lan", "wan"),
		MachineClaimName("vm.lan", "WAN/1"),
		MachineClaimName("vm.lan2", "wan"),
		MachineClaimName(long, "wan"),
	} {
		if err := npwg.CheckName(name); err != nil || names[name] {
			t.Errorf("%s: %v, there already: %v", name, err, names[name])
		}
		names[name] = true
	}
	if !names["kafka-0.lan"] || !names["kafka-0.lan.net1"] || !names["kafka-0.infra.lan"] {
		t.Errorf("names are %v", names)
	}
}

// TestNamesThatPass: a claim by a pod's name is of use only if a later pod has the name.
func TestNamesThatPass(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  PodName
		want string
	}{
		"an operator's":                    {PodName{"kafka-0", "", "StrimziPodSet"}, ""},
		"an operator's, as StatefulSets'":  {PodName{"db-24567", "db-", "StatefulSet"}, ""},
		"an operator's with a long suffix": {PodName{"db-broker", "", "Cluster"}, ""},
		"an operator's of chance":          {PodName{"web-x2k4p", "web-", "CloneSet"}, `out of "web-"`},
		"its name is like one of chance":   {PodName{"web-x2k4p", "", "PodSet"}, ""},
		"a Deployment's":                   {PodName{"web-5f-x2k4p", "web-5f-", "ReplicaSet"}, "a ReplicaSet gives each"},
		"a Job's":                          {PodName{"job-0-x2k4p", "job-0-", "Job"}, "a Job gives each"},
		"a machine's":                      {PodName{"virt-launcher-vm-x2k4p", "virt-launcher-vm-", "VirtualMachineInstance"}, "gives each"},
		"a static one":                     {PodName{"proxy-node1", "", "Node"}, "static pod"},
		"nobody's":                         {PodName{"pod", "", ""}, "no controller owns the pod"},
	} {
		if got := tt.pod.WhyPasses(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q; want %q", name, got, tt.want)
		}
	}
}
