package e2e_test

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/kubevirt"
	"github.com/tenure-ipam/tenure/test/programs"
)

// lan is the network of every machine.
const lan = "lan"

// A machine is a virtual machine with one network, or an instance without one, whose
// claim has an address.
type machine struct {
	site
	name    string
	object  *unstructured.Unstructured
	address string // with its prefix length
}

// machine makes a machine, which starts.
func (s site) machine(ctx context.Context, object *unstructured.Unstructured) machine {
	GinkgoHelper()
	Expect(kube.Create(ctx, object)).To(Succeed())
	m := machine{site: s, name: object.GetName(), object: object}
	m.address = m.claimed(ctx)
	return m
}

// launchers waits until the machine has n launcher pods, which run and stay, and have
// its address.
func (m machine) launchers(ctx context.Context, n int) (pods []corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var err error
		pods, err = kubevirt.Launchers(ctx, kube, m.namespace, m.name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(n))
		for i := range pods {
			g.Expect(pods[i].DeletionTimestamp).To(BeNil())
			expectRunning(g, &pods[i])
		}
	}).Should(Succeed(), "%d launcher pods of %s run", n, m.name)
	for i := range pods {
		Expect(addresses(ctx, &pods[i])[kubevirt.InterfaceName(lan)].String()).To(Equal(m.address))
	}
	return pods
}

// migrates has a live migration fail, and another succeed: both pods have the address
// while there are two, and the one that is left keeps it.
func (m machine) migrates(ctx context.Context) {
	GinkgoHelper()
	source := m.launchers(ctx, 1)[0]
	for _, ends := range []string{"target", "source"} {
		target, err := kubevirt.Migrate(ctx, kube, m.namespace, m.name)
		Expect(err).NotTo(HaveOccurred())
		both := m.launchers(ctx, 2)
		Expect(both[0].Spec.NodeName).NotTo(Equal(both[1].Spec.NodeName))
		stop(ctx, map[string]*corev1.Pod{"target": target, "source": &source}[ends])
		left := m.launchers(ctx, 1)[0]
		Expect(left.UID).To(Equal(map[string]*corev1.Pod{"target": &source, "source": target}[ends].UID))
	}
}

// halts stops the machine: it keeps its address.
func (m machine) halts(ctx context.Context) {
	GinkgoHelper()
	Expect(kubevirt.Halt(ctx, kube, m.namespace, m.name)).To(Succeed())
	m.launchers(ctx, 0)
	Expect(m.claimed(ctx)).To(Equal(m.address))
}

// claimed returns the address of the machine's claim.
func (m machine) claimed(ctx context.Context) string {
	return m.granted(ctx, kubevirt.ClaimName(m.name, lan))
}

// isRecorded reports whether the cluster has the machine's address down as used.
func (m machine) isRecorded(ctx context.Context) (bool, error) {
	used, err := m.recorded(ctx, lan)
	return slices.Contains(used, netip.MustParsePrefix(m.address).Addr()), err
}

// vanish waits until deleted machines have no claim and no address any more; an address
// must not be given back while a launcher pod is there that has it.
func vanish(ctx context.Context, machines ...machine) {
	GinkgoHelper()
	for _, m := range machines {
		Eventually(func(g Gomega) {
			still, err := m.isRecorded(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			pods, err := kubevirt.Launchers(ctx, kube, m.namespace, m.name)
			g.Expect(err).NotTo(HaveOccurred())
			if len(pods) > 0 && !still {
				StopTrying("the address of " + m.name + " is given back while pod " + pods[0].Name + " is there").Now()
			}
			g.Expect(pods).To(BeEmpty())
			var claim ipamclaims.IPAMClaim
			err = kube.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: kubevirt.ClaimName(m.name, lan)}, &claim)
			g.Expect(err).To(MatchError(apierrors.IsNotFound, "is not found"))
			g.Expect(still).To(BeFalse())
		}).WithTimeout(time.Minute).Should(Succeed(), "the claim and the address of %s are gone", m.name)
	}
}

// deleted deletes a machine whose address is in use.
func deleted(ctx context.Context, m machine, options ...client.DeleteOption) {
	GinkgoHelper()
	Expect(m.isRecorded(ctx)).To(BeTrue(), "the address of %s is in use", m.name)
	Expect(kube.Delete(ctx, m.object, options...)).To(Succeed())
}

// foreignFinalizer is that of somebody who holds an instance.
const foreignFinalizer = "example.com/foreign"

// foreground is how kubectl delete --cascade=foreground deletes.
var foreground = client.PropagationPolicy(metav1.DeletePropagationForeground)

// KubeVirt's controller is test/kubevirt; its launcher pods are real.
var _ = Describe("A virtual machine", Ordered, func() {
	var s site
	// All start at once, each for the specs that name it. The last two have no machine.
	var vm, whole, halted, held, instance, alone machine

	BeforeAll(func(ctx context.Context) {
		root, err := programs.Root()
		Expect(err).NotTo(HaveOccurred())
		definitions := filepath.Join(root, "test/kubevirt/crds")
		for _, args := range [][]string{{"apply", "-f", definitions}, {"wait", "--for=condition=Established", "--timeout=1m", "-f", definitions}} {
			_, err := c.Kubectl(ctx, "", args...)
			Expect(err).NotTo(HaveOccurred())
		}
		running, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- kubevirt.Run(running, c.Config()) }()
		DeferCleanup(func() error {
			stop()
			return <-ended
		})
		DeferCleanup(settle) // that controller's finalizers go before it does
		s = newSite(ctx)
		s.network(ctx, lan, "10.50.0.0/24", acrossNodes+`, "allowPersistentIPs": true`)
		networks := []kubevirt.Network{{Name: lan, Definition: lan}}
		vm = s.machine(ctx, kubevirt.VM(s.namespace, "vm", networks))
		whole = s.machine(ctx, kubevirt.VM(s.namespace, "whole", networks))
		halted = s.machine(ctx, kubevirt.VM(s.namespace, "halted", networks))
		held = s.machine(ctx, kubevirt.VM(s.namespace, "held", networks, foreignFinalizer))
		instance = s.machine(ctx, kubevirt.VMI(s.namespace, "instance", networks))
		alone = s.machine(ctx, kubevirt.VMI(s.namespace, "alone", networks))
	})

	It("VM1, VM1b, VM1c keeps its address when a migration fails, and when one succeeds", func(ctx context.Context) {
		vm.migrates(ctx)
	})

	It("VM6 keeps its address when it is restarted", func(ctx context.Context) {
		before := vm.launchers(ctx, 1)[0]
		Expect(kubevirt.Restart(ctx, kube, s.namespace, vm.name)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(&before), &corev1.Pod{}))
		}).Should(BeTrue())
		Expect(vm.launchers(ctx, 1)[0].UID).NotTo(Equal(before.UID))
	})

	It("VM4 keeps its address while it is stopped", func(ctx context.Context) {
		vm.halts(ctx)
		Expect(kubevirt.Start(ctx, kube, s.namespace, vm.name)).To(Succeed())
		vm.launchers(ctx, 1)
	})

	It("VM2, VM3, VM5 gives its address back when it is deleted: running, in the foreground, and in the foreground when it has been stopped", func(ctx context.Context) {
		for _, m := range []machine{vm, whole} {
			m.launchers(ctx, 1)
		}
		halted.launchers(ctx, 1)
		halted.halts(ctx)
		deleted(ctx, vm)
		deleted(ctx, whole, foreground)
		deleted(ctx, halted, foreground)
		vanish(ctx, vm, whole, halted)
	})

	It("VM7 keeps its address, deleted in the foreground, as long as somebody holds its instance", func(ctx context.Context) {
		pod := held.launchers(ctx, 1)[0]
		deleted(ctx, held, foreground)
		claim := ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: kubevirt.ClaimName(held.name, lan)}}
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(&pod), &pod)).To(MatchError(apierrors.IsNotFound, "is not found"))
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(&claim), &claim)).To(Succeed())
			g.Expect(claim.DeletionTimestamp).NotTo(BeNil())
		}).Should(Succeed(), "the pod is gone, and the claim waits")
		Consistently(func() (bool, error) { return held.isRecorded(ctx) }).WithTimeout(2 * time.Second).WithPolling(often).Should(BeTrue())
		Expect(held.claimed(ctx)).To(Equal(held.address))
		let := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		Expect(kube.Patch(ctx, kubevirt.VMI(s.namespace, held.name, nil), let)).To(Succeed())
		vanish(ctx, held)
	})

	It("VM8 that is an instance alone keeps its address when a migration fails, and when one succeeds", func(ctx context.Context) {
		instance.migrates(ctx)
	})

	It("VM9, VM10 that is an instance alone gives its address back when it is deleted, in the foreground too", func(ctx context.Context) {
		instance.launchers(ctx, 1)
		alone.launchers(ctx, 1)
		deleted(ctx, instance)
		deleted(ctx, alone, foreground)
		vanish(ctx, instance, alone)
	})
})
