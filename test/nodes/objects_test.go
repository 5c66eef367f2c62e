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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// world is one test's network: a pool, its definition, and two nodes.
type world struct {
	t       *testing.T
	name    string // of pool and network
	fleet   *fleet.Fleet
	a, b    *fleet.Node
	sandbox int
}

// newWorld makes a pool and a network of it, with the definition in a namespace
// under a name that is not the network's, and starts two nodes.
func newWorld(t *testing.T, name, namespace string, cidrs ...string) *world {
	t.Helper()
	var ranges []v1alpha1.Range
	for _, c := range cidrs {
		ranges = append(ranges, v1alpha1.Range{CIDR: c})
	}
	return newWorldOf(t, name, namespace, ranges...)
}

// newWorldOf is newWorld with these ranges.
func newWorldOf(t *testing.T, name, namespace string, ranges ...v1alpha1.Range) *world {
	t.Helper()
	controller(t, true)
	fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Ranges: ranges, Domain: name}})
	w := &world{t: t, name: name}
	t.Cleanup(w.leave)
	w.fleet = fleet.New(t, cp.Config())
	w.define(namespace, "definition-of-"+name)
	w.a, w.b = w.fleet.Start(name+"-a"), w.fleet.Start(name+"-b")
	return w
}

// leave deletes the pods of the world's nodes, whose agents are gone by then: a later pool of the
// same addresses, which may be on the same wire, would wait for those that show none.
func (w *world) leave() {
	var pods corev1.PodList
	if err := kc.List(context.Background(), &pods); err != nil {
		w.t.Errorf("list pods: %v", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if n := pod.Spec.NodeName; n != w.name+"-a" && n != w.name+"-b" {
			continue
		}
		if err := kc.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			w.t.Errorf("delete pod %s: %v", pod.Name, err)
		}
	}
}

// define makes a definition of the network.
func (w *world) define(namespace, definition string) {
	w.t.Helper()
	fleet.Create(w.t, kc, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: definition},
		Spec: nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(
			`{"cniVersion":"1.1.0","name":%q,"type":"bridge","allowPersistentIPs":true,"ipam":{"type":"tenure","pool":%q}}`, w.name, w.name)},
	})
}

// waitUpTo starts the agents anew: their ADDs wait for so long at most.
func (w *world) waitUpTo(wait time.Duration) {
	w.t.Helper()
	for _, n := range []**fleet.Node{&w.a, &w.b} {
		(*n).Stop()
		(*n).Config().Agent.Wait = wait
		*n = w.fleet.Start((*n).Name)
	}
}

// claim makes a claim of the network, as a workload's controller does.
func (w *world) claim(name string, owners ...metav1.OwnerReference) *ipamclaims.IPAMClaim {
	w.t.Helper()
	c := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owners},
		Spec:       ipamclaims.IPAMClaimSpec{Network: w.name},
	}
	fleet.Create(w.t, kc, c)
	return c
}

// owner is a reference to one of KubeVirt's objects. The API server does not know
// the kind, so the garbage collector leaves alone what has such an owner.
func owner(kind, name string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: kind, Name: name, UID: types.UID(kind + "-" + name), Controller: &yes}
}

// statefulSet makes a StatefulSet, so that the garbage collector finds what owns
// its pods and claims. No controller makes pods of it.
func statefulSet(t *testing.T, name string) metav1.OwnerReference {
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
func replicaSet(t *testing.T, name string) metav1.OwnerReference {
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

// pod makes a real pod on a node and returns its interface net1, with a sandbox
// of its own. claim is the element's reference; extra are more of its keys, as
// JSON.
func (w *world) pod(n *fleet.Node, name, claim, extra string, owners ...metav1.OwnerReference) fleet.Interface {
	w.t.Helper()
	element := fmt.Sprintf(`[{"name":"definition-of-%s","interface":"net1"`, w.name)
	if claim != "" {
		element += fmt.Sprintf(`,"ipam-claim-reference":%q`, claim)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, OwnerReferences: owners,
			Annotations: map[string]string{kube.AnnotationNetworks: element + extra + "}]"},
		},
		Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	fleet.Create(w.t, kc, pod)
	i := fleet.Interface{
		Network: w.name, IfName: "net1", Namespace: "default", Pod: name, PodUID: string(pod.UID),
		IPAM: map[string]any{"type": "tenure", "pool": w.name},
	}
	if claim != "" {
		i.Top = map[string]any{fleet.ClaimKey: claim}
	}
	return w.sandboxed(i)
}

// sandboxed gives i a new sandbox, with a file in place of its network namespace.
func (w *world) sandboxed(i fleet.Interface) fleet.Interface {
	w.t.Helper()
	w.sandbox++
	i.Sandbox = fmt.Sprintf("%s-%d", w.name, w.sandbox)
	i.Netns = filepath.Join(w.t.TempDir(), i.Sandbox)
	if err := os.WriteFile(i.Netns, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return i
}

// end deletes a pod and, as the runtime does, its sandbox.
func (w *world) end(n *fleet.Node, i fleet.Interface) {
	w.t.Helper()
	if err := n.Del(i); err != nil {
		w.t.Fatalf("DEL of %s: %v", i.Pod, err)
	}
	if err := os.Remove(i.Netns); err != nil {
		w.t.Fatal(err)
	}
	fleet.Delete(w.t, kc, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Pod}})
}

// add is an ADD that must succeed.
func (w *world) add(n *fleet.Node, i fleet.Interface) []netip.Prefix {
	w.t.Helper()
	res, err := n.Insist(i)
	if err != nil {
		w.t.Fatalf("ADD of %s on %s: %v", i.Pod, n.Name, err)
	}
	var addrs []netip.Prefix
	for _, ip := range res.IPs {
		addrs = append(addrs, ip.Address)
	}
	return addrs
}

// same adds and wants these addresses.
func (w *world) same(n *fleet.Node, i fleet.Interface, want []netip.Prefix) {
	w.t.Helper()
	if got := w.add(n, i); !slices.Equal(got, want) {
		w.t.Errorf("%s on %s got %v; want %v", i.Pod, n.Name, got, want)
	}
}

// allocated waits until a claim's status has addresses, and returns them.
func allocated(t *testing.T, c *ipamclaims.IPAMClaim) []netip.Prefix {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if len(c.Status.IPs) == 0 {
			return fmt.Errorf("claim %s has no addresses: %v", c.Name, c.Status.Conditions)
		}
		return nil
	})
	return kube.ClaimOf(c).IPs
}

// granted returns the addresses of a pool that are granted to anybody.
func (w *world) granted() []netip.Addr {
	w.t.Helper()
	leases, err := api.LeasesOfPool(w.t.Context(), protocol.PoolName(w.name))
	if err != nil {
		w.t.Fatal(err)
	}
	var addrs []netip.Addr
	for _, l := range leases {
		for _, g := range l.Grants {
			addrs = append(addrs, g.Addr)
		}
	}
	return addrs
}

// nothingGranted waits until no address of the pool is granted.
func (w *world) nothingGranted(within time.Duration) {
	w.t.Helper()
	eventually(w.t, within, func() error {
		if left := w.granted(); len(left) > 0 {
			return fmt.Errorf("%v are still granted", left)
		}
		return nil
	})
}

func podOf(i fleet.Interface) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Pod}}
}
