package nodes_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// The address outlives pods, nodes and agents; the definition is in another
// namespace and has another name than the network (N80, N83).
func TestAddressOutlivesThePod(t *testing.T) {
	w := newWorld(t, "outlive", "elsewhere", "10.40.0.0/20", "fd00:40::/64")
	c := w.claim("outlive")
	want := allocated(t, c) // before any pod
	if len(want) != 2 || !want[0].Addr().Is4() || !want[1].Addr().Is6() {
		t.Fatalf("status.ips is %v; want IPv4, then IPv6", want)
	}
	first := w.pod(w.a, "outlive-1", "outlive", "")
	same(t, w.a, first, want)
	same(t, w.a, first, want) // C10
	endPod(t, w.a, first)
	second := w.pod(w.b, "outlive-2", "outlive", "")
	same(t, w.b, second, want)
	// A restart of the agent, then of the sandbox.
	w.b.Stop()
	w.b = w.fleet.Start(w.b.Name)
	same(t, w.b, second, want)
	endPod(t, w.b, second)
	third := w.pod(w.b, "outlive-3", "outlive", "")
	same(t, w.b, third, want)
	endPod(t, w.b, third)
	if got := w.granted(); len(got) != 2 {
		t.Errorf("granted without a pod: %v; want the claim's two", got)
	}
	fleet.Delete(t, kc, c)
	w.nothingGranted(10 * time.Second)
}

// A pod that moves comes to the new node while the old one still gives back its use of
// the claim: the ADD waits for that, and need not be made again.
func TestClaimGoesToAndFroAtOnce(t *testing.T) {
	w := newWorld(t, "fro", "default", "10.39.0.0/20")
	w.waitUpTo(time.Minute)
	c := w.claim("fro")
	want := allocated(t, c)
	nodes := []*fleet.Node{w.a, w.a, w.b}
	pods := make([]fleet.Interface, 30*len(nodes))
	for i := range pods {
		pods[i] = w.pod(nodes[i%len(nodes)], fmt.Sprintf("fro-%d", i), "fro", "")
	}
	for i, p := range pods {
		n := nodes[i%len(nodes)]
		res, err := n.Add(p)
		if err != nil {
			t.Fatalf("move %d, to %s: %v", i, n.Name, err)
		}
		if len(res.IPs) != 1 || res.IPs[0].Address != want[0] {
			t.Fatalf("move %d, to %s: %v; want %v", i, n.Name, res.IPs, want)
		}
		must(t, n.Del(p))
	}
	for i, p := range pods {
		endPod(t, nodes[i%len(nodes)], p)
	}
}

func TestVMLiveMigration(t *testing.T) {
	w := newWorld(t, "migrate", "default", "10.41.0.0/20")
	vm, vmi := owner("VirtualMachine", "vm"), owner("VirtualMachineInstance", "vm")
	c := w.claim("vm.migrate", vm)
	want := allocated(t, c)
	for _, tt := range []struct {
		name        string
		targetFirst bool // the target's DEL comes first: the migration failed
	}{{"source ends last", false}, {"failed migration", true}} {
		t.Run(tt.name, func(t *testing.T) {
			source := w.pod(w.a, "source", c.Name, "", vmi)
			target := w.pod(w.b, "target", c.Name, "", vmi)
			same(t, w.a, source, want)
			same(t, w.b, target, want) // both at once
			first, last := source, target
			firstNode, lastNode := w.a, w.b
			if tt.targetFirst {
				first, last, firstNode, lastNode = target, source, w.b, w.a
			}
			endPod(t, firstNode, first)
			same(t, lastNode, last, want) // still there
			endPod(t, lastNode, last)
		})
	}
	// Three nodes never share: the third pod waits.
	x := w.fleet.Start("migrate-x")
	x.Config().Agent.Wait = time.Second
	one, two := w.pod(w.a, "one", c.Name, "", vmi), w.pod(w.b, "two", c.Name, "", vmi)
	same(t, w.a, one, want)
	same(t, w.b, two, want)
	x.Refused(t, w.pod(x, "three", c.Name, "", vmi), "two other nodes")
}

// TestLiveMigrationWhileThePoolIsEdited: the target has the claim's addresses as its status shows
// them, whatever has become of their ranges, and the gateway that the pool names by then.
func TestLiveMigrationWhileThePoolIsEdited(t *testing.T) {
	w := newWorldOf(t, "edited", "default", v1alpha1.Range{CIDR: "10.48.0.0/24", Gateway: "10.48.0.1"})
	vm, vmi := owner("VirtualMachine", "vm"), owner("VirtualMachineInstance", "vm")
	c := w.claim("vm.edited", vm)
	want := allocated(t, c)
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	from, source := w.a, w.pod(w.a, "source", c.Name, "", vmi)
	same(t, from, source, want)
	for i, tt := range []struct {
		name    string
		ranges  []v1alpha1.Range
		gateway string
	}{
		{"excluded", []v1alpha1.Range{{CIDR: "10.48.0.0/24", Gateway: "10.48.0.1", Exclude: []string{"10.48.0.0-10.48.0.99"}}}, "10.48.0.1"},
		{"of a wider range, with another gateway", []v1alpha1.Range{{CIDR: "10.48.0.0/16", Gateway: "10.48.0.200"}}, "10.48.0.200"},
		{"of no range", []v1alpha1.Range{{CIDR: "10.49.0.0/24", Gateway: "10.49.0.1"}}, "invalid IP"},
		{"of no family", []v1alpha1.Range{{CIDR: "fd00:48::/64"}}, "invalid IP"},
	} {
		fleet.Edit(t, kc, pool, func() { pool.Spec.Ranges = tt.ranges })
		says(t, pool, v1alpha1.PoolReady, metav1.ConditionTrue)
		to := w.b
		if from == w.b {
			to = w.a
		}
		target := w.pod(to, fmt.Sprintf("target-%d", i), c.Name, "", vmi)
		eventually(t, 10*time.Second, func() error { // until the node has heard of the edit
			res, err := to.Add(target)
			if err != nil {
				return err
			}
			if len(res.IPs) != 1 || res.IPs[0].Address != want[0] || res.IPs[0].Gateway.String() != tt.gateway {
				return errors.Join(fmt.Errorf("%s: %+v; want %v and gateway %s", tt.name, res.IPs, want, tt.gateway), to.Del(target))
			}
			return nil
		})
		endPod(t, from, source)
		from, source = to, target
	}
	endPod(t, from, source)
	fleet.Delete(t, kc, c)
	w.nothingGranted(10 * time.Second)
}

func TestForeignPodsAreRefused(t *testing.T) {
	w := newWorld(t, "foreign", "default", "10.42.0.0/24")
	vm := w.claim("vm-a", owner("VirtualMachine", "vm-a"))
	allocated(t, vm)
	_, err := w.a.Insist(w.pod(w.a, "stranger", "vm-a", ""))
	fleet.WantCode(t, err, agent.CodeClaimRefused, "belongs to VirtualMachine vm-a")
	_, err = w.a.Insist(w.pod(w.a, "other-vm", "vm-a", "", owner("VirtualMachineInstance", "vm-b")))
	fleet.WantCode(t, err, agent.CodeClaimRefused, "belongs to VirtualMachine vm-a")

	// Two replicas of a Deployment name one claim: one has it.
	shared := w.claim("shared")
	allocated(t, shared)
	rs := replicaSet(t, "web-abc")
	mustAdd(t, w.a, w.pod(w.a, "web-1", "shared", "", rs))
	_, err = w.b.Insist(w.pod(w.b, "web-2", "shared", "", rs))
	fleet.WantCode(t, err, agent.CodeClaimRefused, "in use by pod default/web-1 on node foreign-a")
	w.a.Refused(t, w.pod(w.a, "web-3", "shared", "", rs), "in use by pod default/web-1")
	leftNoUse(t, shared.Name, 1)
}

// leftNoUse checks that refused pods have left no use behind.
func leftNoUse(t *testing.T, claim string, want int) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		subs, err := api.SubLeases(t.Context())
		if err != nil {
			return err
		}
		n := 0
		for _, s := range subs {
			if s.Use != nil && s.Use.Claim.Name == claim {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("claim %s has %d uses, want %d", claim, n, want)
		}
		return nil
	})
}

func TestClaimDeletedWhileItsPodRuns(t *testing.T) {
	w := newWorld(t, "deleted", "default", "10.43.0.0/30") // two addresses
	c := w.claim("deleted")
	want := allocated(t, c)
	pod := w.pod(w.a, "deleted", "deleted", "")
	same(t, w.a, pod, want)
	fleet.Delete(t, kc, c)
	// Another claim must get the other address, a third none.
	if got := allocated(t, w.claim("second")); slices.Equal(got, want) {
		t.Fatalf("%v given away under a running pod", got)
	}
	third := w.claim("third")
	claimSays(t, third, metav1.ConditionFalse, "SubnetExhausted")
	endPod(t, w.a, pod)
	if got := allocated(t, third); !slices.Equal(got, want) {
		t.Errorf("third got %v; want %v, which the pod gave back", got, want)
	}
}

// TestWrongNetworkOrInterface (N86).
func TestWrongNetworkOrInterface(t *testing.T) {
	w := newWorld(t, "mismatch", "default", "10.44.0.0/24")
	other := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other-net"}, Spec: ipamclaims.IPAMClaimSpec{Network: "somebody-elses"}}
	fleet.Create(t, kc, other)
	forceStatus(t, other, "192.0.2.9/24")
	_, err := w.a.Insist(w.pod(w.a, "net", "other-net", ""))
	fleet.WantCode(t, err, agent.CodeClaimRefused, `is of network "somebody-elses"`)
	wrong := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wrong-if"}, Spec: ipamclaims.IPAMClaimSpec{Network: "mismatch", Interface: "net7"}}
	fleet.Create(t, kc, wrong)
	allocated(t, wrong)
	_, err = w.a.Insist(w.pod(w.a, "if", "wrong-if", ""))
	fleet.WantCode(t, err, agent.CodeClaimRefused, `interface "net7"`)
}

// forceStatus writes a claim's status by hand.
func forceStatus(t *testing.T, c *ipamclaims.IPAMClaim, ips ...string) {
	t.Helper()
	await(t, 10*time.Second, c, func() error { // the controller may write in between
		c.Status.IPs = ips
		return kc.Status().Update(t.Context(), c)
	})
}

func TestStatusByHandIsNotServed(t *testing.T) {
	w := newWorld(t, "byhand", "default", "10.45.0.0/24")
	rightful := w.claim("rightful")
	taken := allocated(t, rightful)
	thief := w.claim("thief")
	allocated(t, thief)
	forceStatus(t, thief, taken[0].String())
	_, err := w.a.Insist(w.pod(w.a, "thief", "thief", ""))
	fleet.WantCode(t, err, agent.CodeClaimRefused, "not granted to it")
	same(t, w.b, w.pod(w.b, "rightful", "rightful", ""), taken)
	forceStatus(t, thief, "192.0.2.1/24")
	_, err = w.a.Insist(w.pod(w.a, "outside", "thief", ""))
	fleet.WantCode(t, err, agent.CodeClaimRefused, "in no pool")
}

func TestIPsAndClaim(t *testing.T) {
	w := newWorld(t, "twowishes", "default", "10.46.0.0/24")
	allocated(t, w.claim("twowishes"))
	_, err := w.a.Insist(w.pod(w.a, "twowishes", "twowishes", `,"ips":["10.46.0.9"]`))
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "only one of ips and ipam-claim-reference")
}

func TestIPsThatDidNotReachThePlugin(t *testing.T) {
	w := newWorld(t, "nocap", "default", "10.47.0.0/24")
	_, err := w.a.Insist(w.pod(w.a, "nocap", "", `,"ips":["10.47.0.9"]`))
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "capability ips")
}

func TestTwoInterfacesOfOnePodNameOneClaim(t *testing.T) {
	w := newWorld(t, "twice", "default", "10.48.0.0/24")
	allocated(t, w.claim("twice"))
	pod := w.pod(w.a, "twice", "twice", fmt.Sprintf(`},{"name":"definition-of-%s","interface":"net2","ipam-claim-reference":"twice"`, w.name))
	mustAdd(t, w.a, pod)
	pod.IfName = "net2"
	_, err := w.a.Insist(pod)
	fleet.WantCode(t, err, agent.CodeClaimRefused, "already used by interface net1")
}

// KubeVirt's controller makes the claim after the pod's ADD has begun.
func TestClaimThatComesLate(t *testing.T) {
	w := newWorld(t, "late", "default", "10.49.0.0/24")
	w.waitUpTo(time.Minute)
	pod := w.pod(w.a, "late", "late", "")
	done := make(chan error, 1)
	go func() { _, err := w.a.Add(pod); done <- err }()
	c := w.claim("late")
	if err := <-done; err != nil {
		t.Errorf("ADD that waits for its claim: %v", err)
	}
	allocated(t, c)
	w.waitUpTo(300 * time.Millisecond)
	w.a.Refused(t, w.pod(w.a, "never", "never", ""), "claim default/never: does not exist yet")
}

// A claim's pod is served again while the API server is away, and its DEL is not
// lost.
func TestClaimWithTheAPIAway(t *testing.T) {
	w := newWorld(t, "apiaway", "default", "10.50.0.0/24")
	c := w.claim("apiaway")
	want := allocated(t, c)
	pod := w.pod(w.a, "apiaway", "apiaway", "")
	same(t, w.a, pod, want)
	must(t, cp.PauseAPIServer())
	same(t, w.a, pod, want)
	if err := w.a.Del(pod); err != nil {
		t.Error(err)
	}
	must(t, cp.ResumeAPIServer())
	fleet.Delete(t, kc, c)
	w.nothingGranted(30 * time.Second)
}

// The sandbox of a pod with a claim dies and is made anew on the same node, before
// the old one's DEL.
func TestClaimAndANewSandbox(t *testing.T) {
	w := newWorld(t, "sandbox", "default", "10.51.0.0/24")
	want := allocated(t, w.claim("sandbox"))
	old := w.pod(w.a, "sandbox", "sandbox", "")
	same(t, w.a, old, want)
	fresh := w.renewed(old)
	w.a.Refused(t, fresh, "in use by pod default/sandbox") // the old network namespace is there
	must(t, os.Remove(old.Netns))
	same(t, w.a, fresh, want)
	if err := w.a.Del(old); err != nil { // late: frees nothing
		t.Error(err)
	}
	same(t, w.a, fresh, want)
	leftNoUse(t, "sandbox", 1)
}

// StatefulSet pods deleted and recreated under the same names, again and again, on
// changing nodes.
func TestSameNamesAgainAndAgain(t *testing.T) {
	const rounds = 40
	w := newWorld(t, "samenames", "default", "10.52.0.0/29")
	sts, web := statefulSet(t, "db"), statefulSet(t, "web")
	c := w.claim("db-0", sts)
	want := allocated(t, c)
	for i := range rounds {
		node := w.a
		if i%3 == 1 {
			node = w.b
		}
		ordinary := w.pod(node, "web-0", "", "", web)
		claimed := w.pod(node, "db-0", "db-0", "", sts)
		mustAdd(t, node, ordinary)
		same(t, node, claimed, want)
		endPod(t, node, ordinary)
		endPod(t, node, claimed)
	}
	fleet.Delete(t, kc, c)
	w.nothingGranted(10 * time.Second)
}

// Garbage: the sandbox and the pod are gone, and no DEL ever came.
func TestGarbageIsFreed(t *testing.T) {
	w := newWorld(t, "swept", "default", "10.53.0.0/24")
	w.a.Stop()
	w.a.Config().Agent.SweepEvery = time.Second
	w.a = w.fleet.Start(w.a.Name)
	c := w.claim("swept")
	allocated(t, c)
	gone, alive := w.pod(w.a, "gone", "swept", ""), w.pod(w.a, "alive", "", "")
	mustAdd(t, w.a, gone)
	kept := mustAdd(t, w.a, alive)
	must(t, os.Remove(gone.Netns))
	fleet.Delete(t, kc, podOf(gone))
	fleet.Delete(t, kc, c)
	w.nothingGranted(20 * time.Second)
	same(t, w.a, alive, kept)
	leases, err := api.LeasesOfNode(t.Context(), protocol.NodeName(w.a.Name))
	if err != nil || len(leases) == 0 {
		t.Errorf("leases of the node: %v, %v; want those of the pod that is alive", leases, err)
	}
}
