// Package operator_test proves kubectl tenure against a real API server and the real
// controller: what check finds of damage that was done on purpose, and what
// release-node does and refuses to do.
package operator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
)

var (
	cp       *controlplane.ControlPlane
	api      *kube.API
	kc       client.Client
	accounts fleet.Accounts
	kubectl  program
)

// program is kubectl-tenure as it ships, with an administrator's kubeconfig.
type program struct{ path, kubeconfig string }

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{
		Controllers: []string{controlplane.GarbageCollector, "clusterrole-aggregation-controller", "namespace-controller"},
	}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, api, kc = c.ControlPlane, c.API, c.Client
		if accounts, err = fleet.Install(ctx, cp, kc); err != nil {
			return 0, err
		}
		if kubectl.path, err = programs.Build(ctx, cp.Dir(), "kubectl-tenure"); err != nil {
			return 0, err
		}
		kubectl.kubeconfig = filepath.Join(cp.Dir(), "kubeconfig-of-a-person")
		if err := cp.Kubeconfig(kubectl.kubeconfig); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

// tenure runs kubectl tenure, checks the exit code, and returns what it prints, in which
// columns are one space apart.
func tenure(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := command(t, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if _, ok := errors.AsType[*exec.ExitError](cmd.Run()); !ok && cmd.ProcessState == nil {
		t.Fatalf("%q does not run", args)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%q exits with %d; want %d\n%s", args, got, code, &out)
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

func command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), kubectl.path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubectl.kubeconfig)
	return cmd
}

// says fails the test unless text has all of these words.
func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q: %s", w, text)
		}
	}
}

// create creates an object, and deletes it when the test ends.
func create(t testing.TB, o client.Object) {
	t.Helper()
	if err := kc.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kc.Delete(context.Background(), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// setStatus writes an object's status.
func setStatus(t *testing.T, o client.Object) {
	t.Helper()
	if err := kc.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// world is a small cluster in good order, of objects alone: a node with its registration, a pool
// with a network, and a namespace.
type world struct {
	t         *testing.T
	namespace string
	node      string
	store     protocol.StoreID
	pool      *v1alpha1.IPPool
	reg       protocol.Registration
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, namespace: fleet.Unique("ns"), node: fleet.Unique("node"), pool: &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")},
		Spec:       v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.40.0.0/20"}}},
	}}
	w.store = protocol.StoreID("store-of-" + w.node)
	w.pool.Spec.Domain = w.pool.Name // the tests share address ranges
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "default"}})
	create(t, w.pool)
	bits := int32(28)
	w.pool.Status = v1alpha1.IPPoolStatus{Leasing: v1alpha1.LeasingOpen, Opening: "1", BlockPrefixLengths: &v1alpha1.BlockPrefixLengths{IPv4: &bits}}
	setStatus(t, w.pool)
	create(t, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lan"},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"lan","type":"bridge","ipam":{"type":"tenure","pool":%q}}`, w.pool.Name)},
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
	create(t, node)
	w.register(protocol.UID(node.UID), time.Now(), 15*time.Minute)
	return w
}

// register registers an agent for the node, whose last heartbeat was at beat.
func (w *world) register(node protocol.UID, beat time.Time, fence time.Duration) {
	w.t.Helper()
	var err error
	w.reg, _, err = api.CreateRegistration(w.t.Context(), protocol.Registration{
		Node: protocol.NodeName(w.node), NodeUID: node, Store: w.store, Machine: "m", Boot: "b", Term: 1, Fence: fence, Beat: beat, Writes: 1,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.deregister)
}

// deregister deletes the registration.
func (w *world) deregister() {
	l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: w.node}}
	if err := kc.Delete(context.Background(), l); client.IgnoreNotFound(err) != nil {
		w.t.Error(err)
	}
}

// quiet has the last heartbeat be so long ago, by all that the registration says.
func (w *world) quiet(since, fence time.Duration) {
	w.t.Helper()
	w.deregister()
	w.register(w.reg.NodeUID, time.Now().Add(-since), fence)
	l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: w.node}}
	// The API server has noted when the heartbeat came: it forgets that.
	forget := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))
	if err := kc.Patch(w.t.Context(), l, forget); err != nil {
		w.t.Fatal(err)
	}
}

// nodeGone deletes the Node.
func (w *world) nodeGone() {
	w.t.Helper()
	if err := kc.Delete(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}

// lease makes a lease of a block: of the node's, or where that has no name, the
// cluster's.
func (w *world) lease(block, node string, grants ...v1alpha1.Grant) *v1alpha1.IPLease {
	w.t.Helper()
	l := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: protocol.LeaseName(protocol.PoolName(w.pool.Name), netip.MustParsePrefix(block))},
		Spec: v1alpha1.IPLeaseSpec{
			Protocol: 1, Pool: w.pool.Name, PoolUID: string(w.pool.UID), Block: block, Grants: grants, Holder: v1alpha1.Holder{Kind: v1alpha1.HolderCluster},
		},
	}
	if node != "" {
		l.Spec.Holder, l.Spec.Store, l.Spec.Term = v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}, string(w.store), 1
	}
	create(w.t, l)
	return l
}

// published writes what a lease's holder publishes.
func (w *world) published(l *v1alpha1.IPLease, allocations ...string) {
	w.t.Helper()
	now, used := metav1.Now(), int32(len(allocations))
	l.Status = v1alpha1.IPLeaseStatus{Published: &now, Allocations: allocations, Used: &used}
	setStatus(w.t, l)
}

// podWith makes a pod on the node whose status shows an address on the network.
func (w *world) podWith(name, addr string) *corev1.Pod {
	w.t.Helper()
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{
			nad.NetworkAttachmentAnnot: "lan",
			nad.NetworkStatusAnnot:     fmt.Sprintf(`[{"name":"%s/lan","interface":"net1","ips":[%q]}]`, w.namespace, addr),
		}},
		Spec: corev1.PodSpec{NodeName: w.node, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	create(w.t, pod)
	return pod
}

// claim makes a claim whose status has these addresses.
func (w *world) claim(name string, ips ...string) *ipamclaims.IPAMClaim {
	w.t.Helper()
	c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: ipamclaims.IPAMClaimSpec{Network: "lan"}}
	create(w.t, c)
	c.Status.IPs = append([]string{}, ips...)
	setStatus(w.t, c)
	return c
}

// toClaim grants an address to a claim.
func toClaim(c *ipamclaims.IPAMClaim, addr string) v1alpha1.Grant {
	return v1alpha1.Grant{Address: addr, To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, UID: string(c.UID), Namespace: c.Namespace, Name: c.Name}}
}

// use has the node use a claim for a pod.
func (w *world) use(c *ipamclaims.IPAMClaim, pod *corev1.Pod) {
	w.t.Helper()
	create(w.t, &v1alpha1.IPSubLease{
		ObjectMeta: metav1.ObjectMeta{Name: protocol.UseName(protocol.UID(c.UID), 0)},
		Spec: v1alpha1.IPSubLeaseSpec{Protocol: 1, Node: w.node, Store: string(w.store), Term: 1, Use: &v1alpha1.Use{
			Claim: v1alpha1.ClaimReference{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}, Pod: refOf(pod), Interface: "net1",
		}},
	})
}

// request has the node ask for an address for a pod.
func (w *world) request(pod *corev1.Pod, granted ...v1alpha1.Granted) *v1alpha1.IPSubLease {
	w.t.Helper()
	s := &v1alpha1.IPSubLease{
		ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("request")},
		Spec: v1alpha1.IPSubLeaseSpec{Protocol: 1, Node: w.node, Store: string(w.store), Term: 1, Request: &v1alpha1.Request{
			Pod: refOf(pod), Interface: "net1", Wants: []v1alpha1.Want{{Pool: w.pool.Name, Ranges: []string{"10.40.0.1-10.40.15.254"}}},
		}},
	}
	create(w.t, s)
	s.Status.Granted = granted
	if len(granted) > 0 {
		setStatus(w.t, s)
	}
	return s
}

func refOf(pod *corev1.Pod) v1alpha1.PodReference {
	return v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}
