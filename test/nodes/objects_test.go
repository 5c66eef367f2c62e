package nodes_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// newFleet returns a fleet whose agents have the rights that they are shipped with, and a
// configuration that change has changed. After the test, when they are gone, it deletes the pods: a
// later pool of the same addresses, which may be on the same wire, would wait for those that show
// none.
func newFleet(t testing.TB, change ...func(*daemon.Config)) *fleet.Fleet {
	t.Helper()
	t.Cleanup(func() {
		if err := kc.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)); err != nil {
			t.Errorf("delete the pods: %v", err)
		}
	})
	f := fleet.New(t, accounts.Agent)
	f.Change = func(c *daemon.Config) {
		for _, change := range change {
			change(c)
		}
	}
	return f
}

// quick is a node's configuration for tests that wait for what takes its time.
func quick(c *daemon.Config) {
	c.Agent.Idle, c.Agent.PublishEvery, c.Agent.Wait = time.Second, 200*time.Millisecond, 2*time.Second
}

// waits is a configuration whose ADDs wait for so long at most.
func waits(wait time.Duration) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Agent.Wait = wait }
}

// idle is a configuration whose blocks go back when they were idle for so long.
func idle(after time.Duration) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Agent.Idle = after }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await reads an object until check has nothing against it.
func await[T any, O interface {
	*T
	client.Object
}](t testing.TB, within time.Duration, o O, check func() error) {
	t.Helper()
	key := client.ObjectKeyFromObject(o)
	eventually(t, within, func() error {
		*o = *new(T) // what is not there any more is not to stay
		if err := kc.Get(t.Context(), key, o); err != nil {
			return err
		}
		return check()
	})
}

// newPool makes a pool of a domain, which the controller opens.
func newPool(t testing.TB, name, domain string, ranges ...v1alpha1.Range) *v1alpha1.IPPool {
	t.Helper()
	controller(t, true)
	return fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: domain, Ranges: ranges}})
}

func cidr(text string) v1alpha1.Range { return v1alpha1.Range{CIDR: text} }

// readPool returns a pool as it is.
func readPool(t testing.TB, name string) *v1alpha1.IPPool {
	t.Helper()
	p := &v1alpha1.IPPool{}
	must(t, kc.Get(t.Context(), client.ObjectKey{Name: name}, p))
	return p
}

// says waits until a pool has a condition of this status whose message has words.
func says(t testing.TB, p *v1alpha1.IPPool, kind string, status metav1.ConditionStatus, words ...string) {
	t.Helper()
	await(t, 30*time.Second, p, func() error {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil || c.ObservedGeneration != p.Generation {
			return fmt.Errorf("pool %s: condition %s is %+v; want one of generation %d", p.Name, kind, c, p.Generation)
		}
		return fleet.Condition(p.Status.Conditions, kind, status, c.Reason, words...)
	})
}

// define makes the definition of a network of this ipam section.
func define(t testing.TB, namespace, definition, network, ipam string) {
	t.Helper()
	fleet.Create(t, kc, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: definition},
		Spec: nad.NetworkAttachmentDefinitionSpec{
			Config: fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"bridge","allowPersistentIPs":true,"ipam":%s}`, network, ipam),
		},
	})
}

// makePod makes a pod that is bound to a node. No kubelet runs it.
func makePod(t testing.TB, node, namespace, name string, annotations map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
	t.Helper()
	return fleet.Create(t, kc, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners, Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	})
}

// ofPod is i of a pod.
func ofPod(pod *corev1.Pod, i fleet.Interface) fleet.Interface {
	i.Namespace, i.Pod, i.PodUID = pod.Namespace, pod.Name, string(pod.UID)
	return i
}

func podOf(i fleet.Interface) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Pod}}
}

// endPod ends a pod as kubelet and runtime do: DEL, network namespace, object.
func endPod(t testing.TB, n *fleet.Node, i fleet.Interface) {
	t.Helper()
	if err := n.Del(i); err != nil {
		t.Errorf("DEL of %s on %s: %v", i.Pod, n.Name, err)
	}
	if err := os.Remove(i.Netns); err != nil {
		t.Error(err)
	}
	if err := kc.Delete(t.Context(), podOf(i), client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
}

// onPool is interface ifName of sandbox on a network of its own name over a pool, of no pod.
func onPool(pool, sandbox, ifName string) fleet.Interface {
	return fleet.Interface{Network: "net-" + pool, Sandbox: sandbox, IfName: ifName, IPAM: map[string]any{"type": "tenure", "pool": pool}}
}

// static is interface net1 of onPool that asks for addresses by name.
func static(pool, sandbox string, ips ...string) fleet.Interface {
	return naming(onPool(pool, sandbox, "net1"), ips...)
}

// naming is i that asks for addresses by name.
func naming(i fleet.Interface, ips ...string) fleet.Interface {
	i.Top = map[string]any{"runtimeConfig": map[string]any{"ips": ips}}
	return i
}

// file stands in for a network namespace whose coming and going matters.
func file(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, nil, 0o600))
	return path
}

func addresses(res *agentapi.Result) []netip.Prefix {
	var addrs []netip.Prefix
	for _, ip := range res.IPs {
		addrs = append(addrs, ip.Address)
	}
	return addrs
}

// mustAdd is an ADD that must succeed.
func mustAdd(t testing.TB, n *fleet.Node, i fleet.Interface) []netip.Prefix {
	t.Helper()
	res, err := n.Insist(i)
	if err != nil {
		t.Fatalf("ADD of %s %s of pod %q on %s: %v", i.Sandbox, i.IfName, i.Pod, n.Name, err)
	}
	return addresses(res)
}

// same adds and wants these addresses.
func same(t testing.TB, n *fleet.Node, i fleet.Interface, want []netip.Prefix) {
	t.Helper()
	if got := mustAdd(t, n, i); !slices.Equal(got, want) {
		t.Errorf("ADD of %s %s of pod %q on %s got %v; want %v", i.Sandbox, i.IfName, i.Pod, n.Name, got, want)
	}
}

// retried is an ADD that is tried again as a kubelet does, until it succeeds.
func retried(t testing.TB, within time.Duration, n *fleet.Node, i fleet.Interface) (addrs []netip.Prefix) {
	t.Helper()
	eventually(t, within, func() error {
		res, err := n.Add(i)
		if err == nil {
			addrs = addresses(res)
		}
		return err
	})
	return addrs
}

func mustDel(t testing.TB, n *fleet.Node, i fleet.Interface) {
	t.Helper()
	if err := n.Del(i); err != nil {
		t.Fatalf("DEL of %s %s on %s: %v", i.Sandbox, i.IfName, n.Name, err)
	}
}

func leasesOf(t testing.TB, pool string) map[string]protocol.Lease {
	t.Helper()
	list, err := api.LeasesOfPool(t.Context(), protocol.PoolName(pool))
	if err != nil {
		t.Fatal(err)
	}
	leases := map[string]protocol.Lease{}
	for _, l := range list {
		leases[l.Name] = l
	}
	return leases
}

func noLeases(t testing.TB, pool string) func() error {
	return func() error {
		l, err := api.LeasesOfPool(t.Context(), protocol.PoolName(pool))
		if err == nil && len(l) > 0 {
			err = fmt.Errorf("%d leases of %s are left, such as %+v", len(l), pool, l[0])
		}
		return err
	}
}

// allocated waits until a claim's status has addresses, and returns them.
func allocated(t testing.TB, c *ipamclaims.IPAMClaim) []netip.Prefix {
	t.Helper()
	await(t, 20*time.Second, c, func() error {
		if len(c.Status.IPs) == 0 {
			return fmt.Errorf("claim %s has no addresses: %v", c.Name, c.Status.Conditions)
		}
		return nil
	})
	return kube.ClaimOf(c).IPs
}

// claimSays waits until a claim says of its addresses that they are allocated, or are not, with a
// reason and words.
func claimSays(t testing.TB, c *ipamclaims.IPAMClaim, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	await(t, 20*time.Second, c, func() error {
		return fleet.Condition(c.Status.Conditions, kube.ConditionIPsAllocated, status, reason, words...)
	})
}

// owner is a reference to one of KubeVirt's objects. The API server does not know
// the kind, so the garbage collector leaves alone what has such an owner.
func owner(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: kind, Name: name, UID: types.UID(kind + "-" + name), Controller: new(true)}
}

// statefulSet makes a StatefulSet, so that the garbage collector finds what owns
// its pods and claims. No controller makes pods of it.
func statefulSet(t testing.TB, name string) metav1.OwnerReference {
	t.Helper()
	labels := map[string]string{"app": name}
	o := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       appsv1.StatefulSetSpec{ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels)},
	}
	fleet.Create(t, kc, o)
	return *metav1.NewControllerRef(o, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
}

// replicaSet makes a ReplicaSet, likewise.
func replicaSet(t testing.TB, name string) metav1.OwnerReference {
	t.Helper()
	labels := map[string]string{"app": name}
	o := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels)},
	}
	fleet.Create(t, kc, o)
	return *metav1.NewControllerRef(o, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

func template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}
