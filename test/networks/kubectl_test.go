package networks_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/programs"
)

// kubectl is the program kubectl-tenure with an administrator's kubeconfig.
type kubectl struct {
	t                *testing.T
	path, kubeconfig string
}

func newKubectl(t *testing.T) kubectl {
	t.Helper()
	dir := t.TempDir()
	path, err := programs.Build(t.Context(), dir, "kubectl-tenure")
	if err != nil {
		t.Fatal(err)
	}
	k := kubectl{t, path, filepath.Join(dir, "kubeconfig")}
	if err := cp.Kubeconfig(k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return k
}

// run runs a command line, and checks the exit code and that every one of want is in
// what it prints.
func (k kubectl) run(code int, args string, want ...string) {
	k.t.Helper()
	cmd := exec.CommandContext(k.t.Context(), k.path, append(strings.Fields(args), "--kubeconfig", k.kubeconfig)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		k.t.Fatal(exit, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		k.t.Errorf("%s: exits with %d; want %d\n%s", args, got, code, &out)
	}
	text := strings.Join(strings.Fields(out.String()), " ") // columns are padded
	for _, w := range want {
		if !strings.Contains(text, w) {
			k.t.Errorf("%s does not say %q:\n%s", args, w, &out)
		}
	}
}

func TestKubectlTenure(t *testing.T) {
	alone(t) // the test writes what it would write
	k := newKubectl(t)
	ns := namespace(t, map[string]string{"team": "blue"})
	define(t, ns, "lan", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1"}`, nil)
	newPod(t, ns, "web", "n1", "lan@lan0")
	newPod(t, ns, "bad", "n1", "lan,nowhere")
	k.run(0, "explain web -n "+ns, "Pod "+ns+"/web has 2 attachments", ns+"/lan", "lan0", `"master": "eth1"`)
	k.run(3, "explain bad -n "+ns, "would not be attached", "nowhere")
	define(t, ns, "lost", `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"tenure","pool":"lost"}}`, nil)
	define(t, ns, "spelt", `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"Tenure","pool":"lost"}}`, nil)
	newPod(t, ns, "wrong", "n1", "lost,spelt")
	k.run(3, "explain wrong -n "+ns, "would not be attached", "ipam.pool: pool lost does not exist", `ipam.type: is "Tenure"`)
	newPod(t, ns, "odd", "n1", `[{"nam": "lan"}]`)
	k.run(3, "pod odd -n "+ns, "Note: InvalidNetworkAnnotation: ", "is ignored as a whole", "element 1: name: missing")
	k.run(1, "explain gone -n "+ns, `pods "gone" not found`)

	pool := create(t, &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec:       v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.99.0.0/24"}, {CIDR: "fd99::/64"}}},
	})
	k.run(0, "pools -o wide", "shop - - - - - - - - - Automatic - 10.99.0.0/24,fd99::/64")
	pool.Status = v1alpha1.IPPoolStatus{
		Pressure: v1alpha1.PressureHigh, Counts: &v1alpha1.PoolCounts{Capacity: 253, Used: 3, Claimed: 1, Free: 249, Unreachable: 1, Leases: 2},
		Conditions: []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionFalse, Reason: "Overlapping", LastTransitionTime: metav1.Now()}},
	}
	if err := kc.Status().Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	k.run(0, "pools", "NAME USAGE USED CLAIMED FREE CAPACITY UNREACHABLE PRESSURE READY", "shop 1% 3 1 249 253 1 High False (Overlapping)")
	k.run(1, "pools nothing", "pool nothing: there is none of that name")

	claim := create(t, &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vm.lan"},
		Spec:       ipamclaims.IPAMClaimSpec{Network: "lan", Interface: "lan0"},
	})
	k.run(0, "claims -n "+ns, ns+" vm.lan lan lan0 - - -")
	claim.Status.IPs = []string{"10.99.0.9/24"}
	claim.Status.OwnerPod = &ipamclaims.OwnerPod{Name: "vm-1"}
	if err := kc.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	k.run(0, "claims -A", ns+" vm.lan lan lan0 10.99.0.9/24 vm-1 -")

	lease(t, pool, "10.99.0.0/29", v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "n1"}, nil, "10.99.0.2 "+ns+"/web lan0")
	lease(t, pool, "10.99.0.8/29", v1alpha1.Holder{Kind: v1alpha1.HolderCluster}, []v1alpha1.Grant{
		{Address: "10.99.0.9", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, UID: string(claim.UID), Namespace: ns, Name: claim.Name}},
	})
	k.run(0, "who 10.99.0.2", "pool shop: pod "+ns+"/web on node n1, interface lan0; given by node n1")
	k.run(0, "who 10.99.0.9", "pool shop: claim "+ns+"/vm.lan, used by no pod now; granted by the cluster")
	k.run(3, "who 10.99.0.3", "free with node n1", "nobody has it, as far as is published")
	define(t, ns, "shop", `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"tenure","pool":"shop"}}`, nil)
	// One that another node's pod shows is none of n1's.
	for name, on := range map[string]string{"fresh": "n1", "elsewhere": "n2"} {
		newPod(t, ns, name, on, "", func(p *corev1.Pod) {
			p.Annotations = map[string]string{npwg.AnnotationStatus: `[{"name":"` + ns + `/shop","interface":"net1","ips":["10.99.0.3"]}]`}
		})
	}
	k.run(0, "who 10.99.0.3", "pool shop: pod "+ns+"/fresh on node n1, interface net1; given by node n1", "by the pod's status")
	k.run(3, "who 10.99.0.99", "its block is not leased")
	k.run(3, "who 192.0.2.1", "192.0.2.1 is in no pool")
}

// lease makes a lease of a pool's block, with what its holder has published.
func lease(t *testing.T, pool *v1alpha1.IPPool, block string, holder v1alpha1.Holder, grants []v1alpha1.Grant, allocations ...string) {
	t.Helper()
	l := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: protocol.LeaseName(protocol.PoolName(pool.Name), netip.MustParsePrefix(block))},
		Spec: v1alpha1.IPLeaseSpec{
			Protocol: 1, Pool: pool.Name, PoolUID: string(pool.UID), Block: block, Holder: holder, Grants: grants,
		},
	}
	if holder.Kind == v1alpha1.HolderNode {
		l.Spec.Store, l.Spec.Term = "store", 1
	}
	create(t, l)
	now := metav1.Now()
	l.Status = v1alpha1.IPLeaseStatus{Published: &now, Allocations: allocations}
	if err := kc.Status().Update(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}
