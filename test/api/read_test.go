package api_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/programs"
)

const poolStatus = `{status: {leasing: Open, pressure: High, blockPrefixLengths: {ipv4: 26},
  counts: {capacity: 65531, used: 60211, claimed: 310, free: 5300, freeText: "5300", capacityText: "65531", unreachable: 20, leases: 977, foreign: 12, reserved: 3},
  conditions: [{type: Ready, status: "True", reason: Open, message: "", lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`

// TestColumns shows what people see, under the short names that they type: the
// first columns of each kind answer whether it is well, and how full.
func TestColumns(t *testing.T) {
	create(t, pools, pool(`{ranges: [{cidr: 10.0.0.0/16}], domain: vlan-10}`))
	checkAccepted(t, change(t, pools, "lan", poolStatus, "status"))
	create(t, leases, lease("10.0.0.64/26", nodeHeld))
	checkAccepted(t, change(t, leases, "lan.0a000040.26", `{status: {used: 60, free: 4}}`, "status"))
	create(t, leases, lease("10.0.0.128/26", clusterHeld))
	create(t, subLeases, subLease("cu.0", useText))
	create(t, subLeases, subLease("4f2a-x7", requestText))
	checkAccepted(t, change(t, subLeases, "4f2a-x7", `{status: {refused: {reason: Exhausted, message: "full"}}}`, "status"))

	tests := []struct{ args, want string }{
		{"tpool", `
NAME READY USED CLAIMED FREE CAPACITY PRESSURE AGE
lan True 60211 310 5300 65531 High _`},
		{"tpool -o wide", `
NAME READY USED CLAIMED FREE CAPACITY PRESSURE UNREACHABLE LEASES FOREIGN RESERVED DOMAIN REASON AGE
lan True 60211 310 5300 65531 High 20 977 12 3 vlan-10 Open _`},
		{"tlease", `
NAME POOL BLOCK HOLDER NODE USED FREE AGE
lan.0a000040.26 lan 10.0.0.64/26 Node a 60 4 _
lan.0a000080.26 lan 10.0.0.128/26 Cluster _`},
		{"tsub", `
NAME NODE CLAIM NAMESPACE POD INTERFACE REFUSED AGE
4f2a-x7 a ns p net1 Exhausted _
cu.0 a vm.lan.net1 ns p net1 _`},
		{"tlease --field-selector spec.holder.node=a -o name", "iplease.tenure.dev/lan.0a000040.26"},
		{"tlease --field-selector spec.pool=lan -o name", "iplease.tenure.dev/lan.0a000040.26\niplease.tenure.dev/lan.0a000080.26"},
		{"tlease --field-selector spec.pool=wan -o name", ""},
		{"tsub --field-selector spec.node=b -o name", ""},
		{"tenure -o name", "iplease.tenure.dev/lan.0a000040.26\niplease.tenure.dev/lan.0a000080.26\nippool.tenure.dev/lan\nipsublease.tenure.dev/4f2a-x7\nipsublease.tenure.dev/cu.0"},
		{"net-attach-def -o name", ""}, // N1
		{"ipamclaims -o name", ""},     // N81
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.Kubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimSpace(tt.want), get(t, kubeconfig, tt.args)); diff != "" {
				t.Errorf("kubectl get %s (-want +got):\n%s", tt.args, diff)
			}
		})
	}
}

// get returns what kubectl get prints, with single blanks, and "_" for the age,
// which is the last column.
func get(t *testing.T, kubeconfig, args string) string {
	t.Helper()
	kubectl, err := programs.Find("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig", kubeconfig, "--cache-dir", t.TempDir(), "get"}, strings.Fields(args)...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl get %s: %v", args, err)
	}
	var lines []string
	for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Fields(line)
		if i > 0 && len(f) > 1 {
			f[len(f)-1] = "_"
		}
		lines = append(lines, strings.Join(f, " "))
	}
	return strings.Join(lines, "\n")
}

// TestGoTypes shows that objects written with the Go types come back as they
// were: no field is lost in the schema, none is added.
func TestGoTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cp.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	pod := v1alpha1.PodReference{Namespace: "ns", Name: "p", UID: "pu", Owner: &v1alpha1.OwnerReference{Kind: "StatefulSet", Name: "s", UID: "su"}}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	tests := []client.Object{
		&v1alpha1.IPPool{ObjectMeta: meta("lan"), Spec: v1alpha1.IPPoolSpec{
			Ranges:    []v1alpha1.Range{{CIDR: "10.0.0.0/24", Start: "10.0.0.10", End: "10.0.0.99", Exclude: []string{"10.0.0.11"}, StaticOnly: []string{"10.0.0.12"}, Gateway: "10.0.0.1"}},
			BlockSize: new(int32(4)), Routes: []v1alpha1.Route{{Dst: "0.0.0.0/0", GW: "10.0.0.1"}}, Domain: "vlan", TakeOver: v1alpha1.TakeOverConfirmed, Access: v1alpha1.AccessRBAC,
			ShareWith: []string{"ns/other"}, Allocation: v1alpha1.AllocationStopped,
			DNS: &v1alpha1.DNS{Nameservers: []string{"10.0.0.53"}, Domain: "lab", Search: []string{"lab"}, Options: []string{"ndots:2"}},
		}},
		&v1alpha1.IPLease{ObjectMeta: meta("lan.0a000040.26"), Spec: v1alpha1.IPLeaseSpec{
			Protocol: 1, Pool: "lan", PoolUID: "u", Block: "10.0.0.64/26", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "a"}, Store: "s", Term: 1, Turn: 2,
			Ceded:  []string{"10.0.0.65"},
			Grants: []v1alpha1.Grant{{Address: "10.0.0.65", Freeing: true, To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, UID: "c", Namespace: "ns", Name: "vm"}}},
		}},
		&v1alpha1.IPSubLease{ObjectMeta: meta("c.0"), Spec: v1alpha1.IPSubLeaseSpec{Protocol: 1, Node: "a", Store: "s", Term: 1, Turn: 2,
			Use: &v1alpha1.Use{Claim: v1alpha1.ClaimReference{Namespace: "ns", Name: "vm", UID: "c"}, Pod: pod, Interface: "net1"}}},
		&v1alpha1.IPSubLease{ObjectMeta: meta("x"), Spec: v1alpha1.IPSubLeaseSpec{Protocol: 1, Node: "a", Store: "s",
			Request: &v1alpha1.Request{Pod: pod, Interface: "net1", Wants: []v1alpha1.Want{{Pool: "lan", Ranges: []string{"10.0.0.1-10.0.0.2"}}}}}},
	}
	for _, want := range tests {
		t.Run(want.GetName(), func(t *testing.T) {
			got := want.DeepCopyObject().(client.Object)
			if err := c.Create(t.Context(), got, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			got.SetUID("")
			got.SetGeneration(0)
			got.SetCreationTimestamp(metav1.Time{})
			got.SetManagedFields(nil)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
