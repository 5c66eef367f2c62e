// Package security_test tries to break in: with the credentials of one node's agent, with
// the controller's, and as somebody who may edit a namespace, against a real API server
// with the roles and policies that Tenure is shipped with. Every attempt must be refused
// for the reason that it should be; a table at the end counts them.
package security_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
)

const system = kube.DefaultRegistrationNamespace

var (
	cp        *controlplane.ControlPlane
	kc        client.Client // an administrator's
	clientset kubernetes.Interface
)

func TestMain(m *testing.M) {
	o := controlplane.Options{
		Controllers: []string{controlplane.GarbageCollector, controlplane.ServiceAccounts, "clusterrole-aggregation-controller"},
		// As Kubernetes 1.33 has it: a watch then takes the right to list, too.
		APIServerArgs: []string{"--feature-gates=WatchList=false"},
	}
	os.Exit(fleet.Main(o, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, kc = c.ControlPlane, c.Client
		if clientset, err = kubernetes.NewForConfig(cp.Config()); err != nil {
			return 0, err
		}
		if err := fleet.InstallRoles(ctx, kc); err != nil {
			return 0, err
		}
		if err := fleet.InstallPolicies(ctx, kc); err != nil {
			return 0, err
		}
		if err := c.Create(ctx, furniture()...); err != nil {
			return 0, err
		}
		if err := awaitPolicies(ctx); err != nil {
			return 0, err
		}
		code = m.Run()
		fmt.Print(score())
		return code, nil
	}))
}

// furniture is what is there to be broken: two nodes, a namespace in which alice may
// edit, another in which she may not, and a pool that hers may not use.
func furniture() (all []client.Object) {
	for _, text := range []string{
		`{apiVersion: v1, kind: Node, metadata: {name: node-a}, status: {capacity: {memory: 1Gi}, allocatable: {memory: 1Gi}}}`,
		`{apiVersion: v1, kind: Node, metadata: {name: node-b}}`,
		`{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}`,
		`{apiVersion: v1, kind: Namespace, metadata: {name: team-b, labels: {team: b}}}`,
		`{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: team-b}}`,
		`{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: tenure-system}}`,
		`{apiVersion: tenure.dev/v1alpha1, kind: IPPool, metadata: {name: free}, spec: {ranges: [{cidr: 10.81.0.0/24}]}}`,
		`{apiVersion: tenure.dev/v1alpha1, kind: IPPool, metadata: {name: for-b}, spec: {ranges: [{cidr: 10.82.0.0/24}], namespaceSelector: {matchLabels: {team: b}}}}`,
		`{apiVersion: tenure.dev/v1alpha1, kind: IPPool, metadata: {name: by-verb}, spec: {ranges: [{cidr: 10.83.0.0/24}], access: RBAC}}`,
		leaseText("lent", "10.81.0.1", "{kind: Node, node: node-b}", "store: sb, term: 1"),
		leaseText("mine", "10.81.0.2", "{kind: Node, node: node-a}", "store: sa, term: 1"),
		leaseText("granted", "10.81.0.3", "{kind: Node, node: node-a}",
			"store: sa, term: 1, ceded: [10.81.0.3], grants: [{address: 10.81.0.3, to: {kind: Claim, uid: u, namespace: team-b, name: vm}}]"),
		leaseText("shared", "10.81.0.4", "{kind: Cluster}", ""),
		strings.Replace(leaseText("kept", "10.81.0.7", "{kind: Node, node: node-a}", "store: sa, term: 1"), "metadata: {", "metadata: {finalizers: [example.org/kept], ", 1),
		requestText("of-a", "node-a"), requestText("of-b", "node-b"),
		regText("node-b"), regText("tenure-controller"),
		`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: vm, namespace: team-b}, spec: {network: lan, interface: net1}}`,
		`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: owned, namespace: team-b, ownerReferences: [{apiVersion: x.dev/v1, kind: Database, name: main, uid: u}]}, spec: {network: lan, interface: net1}}`,
		machinesClaim("db"), machinesClaim("web"),
		`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: vm, namespace: team-a}, spec: {network: nobody, interface: net1}}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: alice, namespace: team-a},
		  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}`,
	} {
		all = append(all, parse(text))
	}
	return all
}

// leaseNames are those of the pool free, by what the tests call them.
var leaseNames = map[string]string{"lent": "free.0a510001.32", "mine": "free.0a510002.32", "granted": "free.0a510003.32", "shared": "free.0a510004.32", "kept": "free.0a510007.32"}

func leaseText(name, address, holder, more string) string {
	return fmt.Sprintf(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: %s},
	  spec: {protocol: 1, pool: free, poolUID: u, block: %s/32, turn: 1, holder: %s, %s}}`, leaseNames[name], address, holder, more)
}

func requestText(name, node string) string {
	return fmt.Sprintf(`{apiVersion: tenure.dev/v1alpha1, kind: IPSubLease, metadata: {name: %s},
	  spec: {protocol: 1, node: %s, store: s, term: 1, request: {pod: {namespace: team-b, name: p, uid: p}, interface: net1, wants: [{pool: free, ranges: [10.81.0.9-10.81.0.9]}]}}}`, name, node)
}

func useText(claim, node string) string {
	return fmt.Sprintf(`{apiVersion: tenure.dev/v1alpha1, kind: IPSubLease, metadata: {name: %s.0},
	  spec: {protocol: 1, node: %s, store: s, term: 1, use: {claim: {namespace: team-b, name: vm, uid: %s}, pod: {namespace: team-b, name: p, uid: p}, interface: net1}}}`, claim, node, claim)
}

// regText is a registration as an agent writes it that another had before.
func regText(name string) string {
	return fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: %s, namespace: tenure-system, annotations: {tenure.dev/node-uid: u, tenure.dev/machine: m,
	  tenure.dev/boot: b, tenure.dev/turn: "7", tenure.dev/recalls: "", tenure.dev/restored: "", tenure.dev/former: %s}},
	  spec: {holderIdentity: s, leaseTransitions: 3, leaseDurationSeconds: 900, renewTime: "2026-01-02T03:04:05.000000Z"}}`, name, strconv.Quote(formerText()))
}

// formerText is the list of former registrants as an agent writes it.
func formerText() string {
	raw, err := json.Marshal([]protocol.Former{
		{Store: "s1", Machine: `odd "\<m>` + "\n", Boot: "b", NodeUID: "u", Term: 1, Fence: protocol.MaxFence, Ended: true, Vouched: true}, {Store: "s2", Term: 2},
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func parse(text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return o
}

// awaitPolicies returns when the API server enforces every policy: it notices new ones
// some moments after their creation. Each is known by what it alone refuses.
func awaitPolicies(ctx context.Context) error {
	nobody, err := cp.AddUser("system:serviceaccount:tenure-system:tenured", "system:serviceaccounts")
	if err != nil {
		return err
	}
	agent, err := client.New(nobody, client.Options{})
	if err != nil {
		return err
	}
	leader, err := cp.AddUser("system:serviceaccount:tenure-system:tenure-controller", "system:serviceaccounts")
	if err != nil {
		return err
	}
	controller, err := client.New(leader, client.Options{})
	if err != nil {
		return err
	}
	for name, try := range map[string]func() error{
		"node-leases": func() error {
			return agent.Create(ctx, parse(leaseText("mine", "10.81.0.2", "{kind: Cluster}", "")), client.DryRunAll)
		},
		"node-subleases":     func() error { return agent.Create(ctx, parse(requestText("probe", "x")), client.DryRunAll) },
		"node-registrations": func() error { return agent.Create(ctx, parse(regText("probe")), client.DryRunAll) },
		"deletion":           func() error { return kc.Delete(ctx, named("IPSubLease", "", "of-b"), client.DryRunAll) },
		"claim-ports": func() error {
			return kc.Patch(ctx, named("IPAMClaim", "team-b", "vm"), client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"tenure.dev/port": "{}"}}}`)), client.DryRunAll)
		},
		"workload-claims": func() error {
			return controller.Delete(ctx, named("IPAMClaim", "team-b", "vm"), client.DryRunAll)
		},
	} {
		err := process.Await(ctx, process.Patience, func(context.Context) error {
			if err := try(); err == nil || !strings.Contains(err.Error(), name+".tenure.dev") {
				return fmt.Errorf("policy %s is not enforced: %w", name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// named is an object of a kind that the tests have.
func named(kind, namespace, name string) *unstructured.Unstructured {
	versions := map[string]string{
		"IPPool": "tenure.dev/v1alpha1", "IPLease": "tenure.dev/v1alpha1", "IPSubLease": "tenure.dev/v1alpha1", "IPAMClaim": "k8s.cni.cncf.io/v1alpha1",
		"Lease": "coordination.k8s.io/v1", "NetworkAttachmentDefinition": "k8s.cni.cncf.io/v1",
		"ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
		"ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
		"MutatingWebhookConfiguration":   "admissionregistration.k8s.io/v1",
		"CustomResourceDefinition":       "apiextensions.k8s.io/v1", "DaemonSet": "apps/v1",
		"ClusterRole": "rbac.authorization.k8s.io/v1", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	if v, ok := versions[kind]; ok {
		o.SetAPIVersion(v)
	}
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// podOn creates a pod that is bound to a node, with a service account, and no kubelet
// that runs it.
func podOn(t *testing.T, namespace, name, node, account string) *corev1.Pod {
	t.Helper()
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	// The namespace has a service account some moments after it is made.
	fleet.Eventually(t, 20*time.Second, func() error {
		err := kc.Create(t.Context(), pod)
		if apierrors.IsForbidden(err) {
			return err
		}
		if err != nil {
			t.Fatal(err)
		}
		return nil
	})
	return pod
}

// boundTo returns the credentials of an account of Tenure's that a pod on a node has.
func boundTo(t *testing.T, account string, pod *corev1.Pod) *rest.Config {
	t.Helper()
	var bound *authentication.BoundObjectReference
	if pod != nil {
		bound = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	rc, err := cp.ServiceAccount(t.Context(), system, account, bound)
	if err != nil {
		t.Fatal(err)
	}
	return rc
}

// An intruder has somebody's credentials.
type intruder struct {
	name string
	client.Client
	kube kubernetes.Interface
}

func newIntruder(t *testing.T, name string, rc *rest.Config) intruder {
	t.Helper()
	opts, err := kube.ClientOptions(rc)
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS, rc.Burst = 500, 500
	c, err := client.New(rc, opts)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	return intruder{name, c, k}
}

// patch merges body, YAML in one line, into an object or a subresource of it.
func (i intruder) patch(o client.Object, body string, sub ...string) error {
	raw, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		panic(err)
	}
	p := client.RawPatch("application/merge-patch+json", raw)
	if len(sub) > 0 {
		return i.SubResource(sub[0]).Patch(context.Background(), o, p)
	}
	return i.Patch(context.Background(), o, p)
}

func (i intruder) create(text string) error { return i.Create(context.Background(), parse(text)) }

func (i intruder) delete(o client.Object) error { return i.Delete(context.Background(), o) }

func (i intruder) get(o client.Object) error {
	return i.Get(context.Background(), client.ObjectKeyFromObject(o), o)
}

// An attempt is one way to break in.
type attempt struct {
	name string
	do   func() error
	want string // what the refusal says
}

// results counts what became of the attempts.
var results = struct {
	sync.Mutex
	made, refused map[string]int // by who made them; guarded by the mutex
}{made: map[string]int{}, refused: map[string]int{}}

// breakIn makes the attempts: all must be refused in the words that are wanted.
func (i intruder) breakIn(t *testing.T, all []attempt) {
	t.Helper()
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			err := a.do()
			results.Lock()
			defer results.Unlock()
			results.made[i.name]++
			switch {
			case err == nil:
				t.Error("it succeeds; want it refused")
			case !strings.Contains(err.Error(), a.want):
				t.Errorf("got %v; want it to say %q", err, a.want)
			default:
				results.refused[i.name]++
			}
		})
	}
}

// mayDo makes what somebody is to be able to do: otherwise nothing would be shown by the
// refusal of the rest.
func (i intruder) mayDo(t *testing.T, all []attempt) {
	t.Helper()
	for _, a := range all {
		t.Run("may "+a.name, func(t *testing.T) {
			if err := a.do(); err != nil {
				t.Errorf("got %v; want it done", err)
			}
		})
	}
}

// score is the table of attempts.
func score() string {
	results.Lock()
	defer results.Unlock()
	var b strings.Builder
	made, refused := 0, 0
	fmt.Fprintf(&b, "%-32s %9s %9s\n", "credentials of", "attempts", "refused")
	for _, who := range slices.Sorted(maps.Keys(results.made)) {
		made, refused = made+results.made[who], refused+results.refused[who]
		fmt.Fprintf(&b, "%-32s %9d %9d\n", who, results.made[who], results.refused[who])
	}
	fmt.Fprintf(&b, "%-32s %9d %9d\n", "all", made, refused)
	return b.String()
}

// many is the members of a map of so many annotations.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `a%d: "", `, i)
	}
	return b.String()
}

// machinesClaim is a claim of a virtual machine that nobody owns.
func machinesClaim(vm string) string {
	return fmt.Sprintf(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: %[1]s.lan, namespace: team-b, labels: {kubevirt.io/vm: %[1]s}}, spec: {network: lan, interface: net1}}`, vm)
}
