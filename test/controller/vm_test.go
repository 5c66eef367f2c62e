package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/kubevirt"
)

// machine is a virtual machine in a test, with one network "lan". The test plays
// its nodes: it attaches launcher pods, which makes uses, and detaches them.
type machine struct {
	t     *testing.T
	ns    string
	owner *unstructured.Unstructured // VirtualMachine, or an instance of its own
	claim *ipamclaims.IPAMClaim
	ips   []string
	uses  map[string]protocol.SubLease // by pod
}

// boot starts KubeVirt, a controller and a machine whose first pod is attached.
func boot(t *testing.T, owner func(ns string, networks []kubevirt.Network) *unstructured.Unstructured) *machine {
	t.Helper()
	start(t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- kubevirt.Run(ctx, cp.Config()) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("KubeVirt ends with %v", err)
		}
	})
	m := &machine{t: t, ns: namespace(t), uses: map[string]protocol.SubLease{}}
	eventually(t, 20*time.Second, func() error { // pods need it
		_, err := read(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.ns, Name: "default"}})
		return err
	})
	p := pool(t, "10.0.0.0/24", "fd00::/64")
	definition(t, m.ns, "lan-definition", "lan-network", ofPool(p.Name))
	m.owner = owner(m.ns, []kubevirt.Network{{Name: "lan", Definition: "lan-definition"}})
	fleet.Create(t, kc, m.owner)
	m.claim = claimOf(m.ns, kubevirt.ClaimName("vm", "lan"), "")
	m.ips = allocated(t, m.claim)
	if m.claim.Spec.Network != "lan-network" || len(m.ips) != 2 {
		t.Fatalf("claim of network %q has %v; want two addresses of lan-network", m.claim.Spec.Network, m.ips)
	}
	m.attach(m.pods(1)[0].Name, 0)
	return m
}

func aVM(ns string, networks []kubevirt.Network) *unstructured.Unstructured {
	return kubevirt.VM(ns, "vm", networks)
}

func aVMI(ns string, networks []kubevirt.Network) *unstructured.Unstructured {
	return kubevirt.VMI(ns, "vm", networks)
}

// pods waits until the machine has n launcher pods.
func (m *machine) pods(n int) (pods []corev1.Pod) {
	m.t.Helper()
	eventually(m.t, 20*time.Second, func() (err error) {
		pods, err = kubevirt.Launchers(m.t.Context(), kc, m.ns, "vm")
		if err == nil && len(pods) != n {
			err = fmt.Errorf("%d launcher pods; want %d", len(pods), n)
		}
		return err
	})
	return pods
}

// attach is what the agent of a node does at the ADD of a pod.
func (m *machine) attach(pod string, i int) {
	m.t.Helper()
	m.uses[pod] = use(m.t, m.claim, i, fmt.Sprint("node-", i), pod)
	m.owned(pod)
}

// detach is what it does at the DEL.
func (m *machine) detach(pod string) {
	m.t.Helper()
	unuse(m.t, m.uses[pod])
	delete(m.uses, pod)
}

// owned waits until the claim's status names pod.
func (m *machine) owned(pod string) {
	m.t.Helper()
	eventually(m.t, 10*time.Second, func() error {
		if _, err := read(m.claim); err != nil {
			return err
		}
		if got := m.claim.Status.OwnerPod; got == nil || got.Name != pod {
			return fmt.Errorf("ownerPod is %+v; want %s", got, pod)
		}
		return nil
	})
}

// kept checks, for a while, that the claim is there with its addresses.
func (m *machine) kept() {
	m.t.Helper()
	always(m.t, 1500*time.Millisecond, func() error {
		if got := granted(m.t, uidOf(m.claim)); len(got) != len(m.ips) {
			return fmt.Errorf("granted %v; want %v", got, m.ips)
		}
		return same(m.claim, m.ips)
	})
}

// vanished waits until the claim is gone, and its addresses stay as long as a pod
// has them.
func (m *machine) vanished() {
	m.t.Helper()
	fleet.Gone(m.t, kc, m.claim, time.Minute)
	for pod := range m.uses {
		always(m.t, time.Second, func() error {
			if got := granted(m.t, uidOf(m.claim)); len(got) != len(m.ips) {
				return fmt.Errorf("granted %v while pod %s has them; want %v", got, pod, m.ips)
			}
			return nil
		})
		m.detach(pod)
	}
	freed(m.t, uidOf(m.claim), 10*time.Second)
}

func (m *machine) delete(opts ...client.DeleteOption) {
	m.t.Helper()
	if err := kc.Delete(m.t.Context(), m.owner, opts...); err != nil {
		m.t.Fatal(err)
	}
}

var foreground = client.PropagationPolicy(metav1.DeletePropagationForeground)

// migrate starts a live migration and attaches the target.
func (m *machine) migrate() (source, target corev1.Pod) {
	m.t.Helper()
	source = m.pods(1)[0]
	time.Sleep(1100 * time.Millisecond) // creation times have whole seconds
	created, err := kubevirt.Migrate(m.t.Context(), kc, m.ns, "vm")
	if err != nil {
		m.t.Fatal(err)
	}
	m.attach(created.Name, 1)
	return source, *created
}

func testMigration(t *testing.T, m *machine) {
	source, target := m.migrate()
	m.kept()
	remove(t, &source)
	m.detach(source.Name)
	m.owned(target.Name)
	m.kept()

	// And back, to where the first name of a use is free again.
	source = m.pods(1)[0]
	time.Sleep(1100 * time.Millisecond)
	back, err := kubevirt.Migrate(t.Context(), kc, m.ns, "vm")
	if err != nil {
		t.Fatal(err)
	}
	m.attach(back.Name, 0)
	remove(t, &source)
	m.detach(source.Name)
	m.owned(back.Name)
	m.kept()
}

func TestVMLiveMigration(t *testing.T) { testMigration(t, boot(t, aVM)) }

func TestVMLiveMigrationOfAnInstance(t *testing.T) { testMigration(t, boot(t, aVMI)) }

// TestVMSourceDELLast: the source's DEL comes long after the migration.
func TestVMSourceDELLast(t *testing.T) {
	m := boot(t, aVM)
	source, target := m.migrate()
	remove(t, &source)
	m.owned(target.Name) // the newer use, though the older is still there
	m.kept()
	m.detach(source.Name)
	m.kept()
}

func TestVMMigrationFails(t *testing.T) {
	m := boot(t, aVM)
	source, target := m.migrate()
	remove(t, &target)
	m.detach(target.Name)
	m.owned(source.Name)
	m.kept()
}

// TestVMDeleted (N84).
func TestVMDeleted(t *testing.T) {
	m := boot(t, aVM)
	m.delete()
	m.vanished()
}

func TestVMDeletedForeground(t *testing.T) {
	m := boot(t, aVM)
	m.delete(foreground)
	m.vanished()
}

// halt stops the machine, and detaches its pod.
func (m *machine) halt() {
	m.t.Helper()
	pod := m.pods(1)[0].Name
	if err := kubevirt.Halt(m.t.Context(), kc, m.ns, "vm"); err != nil {
		m.t.Fatal(err)
	}
	m.pods(0)
	m.detach(pod)
	m.kept()
}

func TestVMStoppedThenDeleted(t *testing.T) {
	m := boot(t, aVM)
	m.halt()
	m.delete()
	m.vanished()
}

func TestVMStoppedThenDeletedForeground(t *testing.T) {
	m := boot(t, aVM)
	m.halt()
	m.delete(foreground)
	m.vanished()
}

func TestVMRestarted(t *testing.T) {
	m := boot(t, aVM)
	for range 3 {
		old := m.pods(1)[0]
		if err := kubevirt.Restart(t.Context(), kc, m.ns, "vm"); err != nil {
			t.Fatal(err)
		}
		fleet.Gone(t, kc, &old, 20*time.Second)
		m.detach(old.Name)
		next := m.pods(1)[0]
		if next.UID == old.UID {
			t.Fatal("the pod is the same")
		}
		m.attach(next.Name, 0)
		m.kept()
	}
	m.halt()
	if err := kubevirt.Start(t.Context(), kc, m.ns, "vm"); err != nil {
		t.Fatal(err)
	}
	m.attach(m.pods(1)[0].Name, 0)
	m.kept()
}

// TestVMForeignFinalizer (N85): an instance that somebody else holds keeps the claim,
// also when its machine is being deleted.
func TestVMForeignFinalizer(t *testing.T) {
	m := boot(t, func(ns string, networks []kubevirt.Network) *unstructured.Unstructured {
		return kubevirt.VM(ns, "vm", networks, "example.com/foreign")
	})
	pod := m.pods(1)[0]
	m.delete(foreground)
	fleet.Gone(t, kc, &pod, 30*time.Second)
	m.detach(pod.Name)
	eventually(t, 30*time.Second, func() error {
		if _, err := read(m.claim); err != nil {
			return err
		}
		if m.claim.DeletionTimestamp == nil {
			return fmt.Errorf("the claim is not being deleted")
		}
		return nil
	})
	m.kept()
	vmi := kubevirt.VMI(m.ns, "vm", nil)
	eventually(t, 20*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi); err != nil {
			return err
		}
		vmi.SetFinalizers(nil)
		err := kc.Update(t.Context(), vmi)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	m.vanished()
}

func TestVMInstanceDeleted(t *testing.T) {
	m := boot(t, aVMI)
	m.delete()
	m.vanished()
}

func TestVMInstanceDeletedForeground(t *testing.T) {
	m := boot(t, aVMI)
	m.delete(foreground)
	m.vanished()
}

// TestMachineAsksForAddresses: the annotation of a machine's template names addresses for some
// of its interfaces. Two networks of one pool get each its own; what cannot be read is said, and
// counts once it is corrected.
func TestMachineAsksForAddresses(t *testing.T) {
	asks := `{"lan": ["10.0.0.77/24", "fd00::77"], "storage": ["10.0.0.78"]}`
	m := boot(t, func(ns string, networks []kubevirt.Network) *unstructured.Unstructured {
		vm := kubevirt.VM(ns, "vm", append(networks, kubevirt.Network{Name: "storage", Definition: "lan-definition"}))
		kubevirt.AskForAddresses(vm, asks)
		return vm
	})
	if want := []string{"10.0.0.77/24", "fd00::77/64"}; !slices.Equal(m.ips, want) {
		t.Errorf("vm.lan has %v; want %v", m.ips, want)
	}
	storage := claimOf(m.ns, kubevirt.ClaimName("vm", "storage"), "")
	if got := allocated(t, storage); len(got) != 2 || got[0] != "10.0.0.78/24" {
		t.Errorf("vm.storage has %v; want 10.0.0.78/24 and one more", got)
	}

	other := kubevirt.VM(m.ns, "restored", []kubevirt.Network{{Name: "lan", Definition: "lan-definition"}})
	kubevirt.AskForAddresses(other, "10.0.0.9")
	fleet.Create(t, kc, other)
	claim := claimOf(m.ns, kubevirt.ClaimName("restored", "lan"), "")
	failed(t, claim, claims.ReasonRequestInvalid, "network.kubevirt.io/addresses of VirtualMachine restored: it must be")
	fleet.Edit(t, kc, other, func() { kubevirt.AskForAddresses(other, asks) })
	touch(t, claim)
	failed(t, claim, claims.ReasonRequestedTaken, "10.0.0.77")
	fleet.Edit(t, kc, other, func() { kubevirt.AskForAddresses(other, `{"lan": ["10.0.0.79"]}`) })
	touch(t, claim)
	if got := allocated(t, claim); got[0] != "10.0.0.79/24" {
		t.Errorf("restored.lan has %v; want 10.0.0.79/24", got)
	}
}

// touch has the controller look at a claim now. It looks by itself every half minute, or minute,
// since it does not watch machines.
func touch(t *testing.T, c *ipamclaims.IPAMClaim) {
	t.Helper()
	fleet.Edit(t, kc, c, func() {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "example.com/touched", c.ResourceVersion)
	})
}

// TestMachineTakesItsClaimBack: a claim that was saved and applied again belongs to nobody. When
// the machine of its name is there it is the machine's, with the address that it had.
func TestMachineTakesItsClaimBack(t *testing.T) {
	m := boot(t, aVM)
	saved := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.ns, Name: kubevirt.ClaimName("back", "lan"), Labels: map[string]string{kubevirt.LabelVM: "back"},
			Annotations: map[string]string{workload.AnnotationRequested: "10.0.0.99/24"},
		},
		Spec: ipamclaims.IPAMClaimSpec{Network: "lan-network"},
	}
	stranger := saved.DeepCopy()
	stranger.Name, stranger.Annotations = "strangers", nil
	stranger.Labels[kubevirt.LabelVM] = "nobody"
	fleet.Create(t, kc, saved)
	fleet.Create(t, kc, stranger)
	if got := allocated(t, saved); got[0] != "10.0.0.99/24" {
		t.Fatalf("the claim has %v; want 10.0.0.99/24", got)
	}
	vm := kubevirt.VM(m.ns, "back", []kubevirt.Network{{Name: "lan", Definition: "lan-definition"}})
	fleet.Create(t, kc, vm)
	touch(t, saved)
	eventually(t, 20*time.Second, func() error {
		if _, err := read(saved); err != nil {
			return err
		}
		if o := saved.OwnerReferences; len(o) != 1 || o[0].UID != vm.GetUID() || o[0].Controller == nil || !*o[0].Controller {
			return fmt.Errorf("the claim belongs to %+v; want the machine", o)
		}
		return nil
	})
	if got := saved.Status.IPs; got[0] != "10.0.0.99/24" {
		t.Errorf("the claim has %v; want 10.0.0.99/24 still", got)
	}
	if _, err := read(stranger); err != nil || len(stranger.OwnerReferences) > 0 {
		t.Errorf("the claim of a machine that is not there belongs to %v, %v", stranger.OwnerReferences, err)
	}
}

// TestVMMovesToAnotherNetwork: a machine whose network is changed to another definition, as
// KubeVirt does it: its claim stays, and the target of the migration names it. The machine has a
// second claim, of the new network, for as long as it is there.
func TestVMMovesToAnotherNetwork(t *testing.T) {
	m := boot(t, aVM)
	p := pool(t, "10.1.0.0/24")
	definition(t, m.ns, "wan-definition", "wan-network", ofPool(p.Name))
	source := m.pods(1)[0]
	plug := []kubevirt.Network{{Name: "lan", Definition: "wan-definition"}}
	if err := kubevirt.Plug(t.Context(), kc, m.ns, "vm", plug); err != nil {
		t.Fatal(err)
	}
	target, err := kubevirt.Migrate(t.Context(), kc, m.ns, "vm")
	if err != nil {
		t.Fatal(err)
	}
	second := claimOf(m.ns, workload.MachineClaimName(m.claim.Name, "wan-network"), "")
	got := allocated(t, second)
	if len(got) != 1 || second.Spec.Network != "wan-network" || len(second.Finalizers) > 0 || second.Labels[kubevirt.LabelVM] != "vm" {
		t.Errorf("the second claim has %v of network %q, finalizers %v, labels %v", got, second.Spec.Network, second.Finalizers, second.Labels)
	}
	if o := second.OwnerReferences; len(o) != 1 || o[0].UID != m.owner.GetUID() {
		t.Errorf("the second claim belongs to %+v; want the machine", o)
	}
	used := use(t, second, 0, "node-1", target.Name)
	remove(t, &source)
	m.detach(source.Name)
	m.kept()
	m.delete()
	m.vanished()
	fleet.Gone(t, kc, second, time.Minute)
	always(t, time.Second, func() error {
		if held := granted(t, uidOf(second)); len(held) != 1 {
			return fmt.Errorf("granted %v while pod %s has it", held, target.Name)
		}
		return nil
	})
	unuse(t, used)
	freed(t, uidOf(second), 10*time.Second)
}

// TestClaimsByPodNameOfANamespace: a namespace's label asks for claims in the names of all its pods
// that name networks, also of those that are there when it is set; pods whose names pass get none.
func TestClaimsByPodNameOfANamespace(t *testing.T) {
	start(t)
	ns := namespace(t)
	eventually(t, 20*time.Second, func() error { // pods need it
		_, err := read(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}})
		return err
	})
	definition(t, ns, "lan", "lan-network", ofPool(pool(t, "10.2.0.0/24").Name))
	// As good as an operator's object.
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cluster"}}
	fleet.Create(t, kc, owner)
	controls := *metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	asks := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: name, OwnerReferences: []metav1.OwnerReference{controls},
				Annotations: map[string]string{kubevirt.AnnotationNetworks: "lan", workload.AnnotationClaims: "lan"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
	}
	fleet.Create(t, kc, asks("cluster-1"))
	passing := asks("cluster-x2k4p")
	passing.GenerateName = "cluster-"
	fleet.Create(t, kc, passing)
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	fleet.Edit(t, kc, o, func() {
		o.Labels[workload.ClaimsBy] = workload.ByPodName
	})
	claim := claimOf(ns, "cluster-1.lan", "")
	got := allocated(t, claim)
	if o := claim.OwnerReferences; len(got) != 1 || len(o) != 1 || o[0].UID != owner.UID {
		t.Errorf("the claim has %v, and belongs to %+v; want one address, and the pods' owner", got, o)
	}
	fleet.Create(t, kc, asks("cluster-2"))
	allocated(t, claimOf(ns, "cluster-2.lan", ""))
	if _, err := read(claimOf(ns, "cluster-x2k4p.lan", "")); !apierrors.IsNotFound(err) {
		t.Errorf("a claim of a pod whose name was made by chance: %v; want none", err)
	}
	// One that a person deletes is made again while its pod is there, and all go with the owner.
	remove(t, claim)
	freed(t, uidOf(claim), 10*time.Second)
	allocated(t, claimOf(ns, "cluster-1.lan", ""))
	remove(t, owner)
	fleet.Gone(t, kc, claimOf(ns, "cluster-1.lan", ""), time.Minute)
	fleet.Gone(t, kc, claimOf(ns, "cluster-2.lan", ""), time.Minute)
}
