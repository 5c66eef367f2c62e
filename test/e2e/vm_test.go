package e2e_test

import (
	"context"
	"fmt"
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

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/test/cluster"
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

// release takes the finalizers off a machine's instance.
func release(ctx context.Context, m machine) error {
	let := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	return kube.Patch(ctx, kubevirt.VMI(m.object.GetNamespace(), m.name, nil), let)
}

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
		// Where its spec is not run.
		DeferCleanup(func(ctx context.Context) error { return client.IgnoreNotFound(release(ctx, held)) })
		instance = s.machine(ctx, kubevirt.VMI(s.namespace, "instance", networks))
		alone = s.machine(ctx, kubevirt.VMI(s.namespace, "alone", networks))
	})

	It("keeps its address when a migration fails, and when one succeeds", func(ctx context.Context) {
		vm.migrates(ctx)
	})

	It("keeps its address when it is restarted", func(ctx context.Context) {
		before := vm.launchers(ctx, 1)[0]
		Expect(kubevirt.Restart(ctx, kube, s.namespace, vm.name)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(&before), &corev1.Pod{}))
		}).Should(BeTrue())
		Expect(vm.launchers(ctx, 1)[0].UID).NotTo(Equal(before.UID))
	})

	It("keeps its address while it is stopped", func(ctx context.Context) {
		vm.halts(ctx)
		Expect(kubevirt.Start(ctx, kube, s.namespace, vm.name)).To(Succeed())
		vm.launchers(ctx, 1)
	})

	It("gives its address back when it is deleted: running, in the foreground, and in the foreground when it has been stopped", func(ctx context.Context) {
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

	It("keeps its address, deleted in the foreground, as long as somebody holds its instance", func(ctx context.Context) {
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
		Expect(release(ctx, held)).To(Succeed())
		vanish(ctx, held)
	})

	It("that is an instance alone keeps its address when a migration fails, and when one succeeds", func(ctx context.Context) {
		instance.migrates(ctx)
	})

	It("that is an instance alone gives its address back when it is deleted, in the foreground too", func(ctx context.Context) {
		instance.launchers(ctx, 1)
		alone.launchers(ctx, 1)
		deleted(ctx, instance)
		deleted(ctx, alone, foreground)
		vanish(ctx, instance, alone)
	})

	It("has the addresses that it asks for on two networks of one pool, also when one is unplugged and plugged again; whoever asks for them later waits", func(ctx context.Context) {
		_, err := c.Kubectl(ctx, fmt.Sprintf(storage, s.namespace, acrossNodes, lan), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		both := []kubevirt.Network{{Name: lan, Definition: lan}, {Name: "storage", Definition: "storage"}}
		asks := func(name string) *unstructured.Unstructured {
			object := kubevirt.VM(s.namespace, name, both)
			kubevirt.AskForAddresses(object, `{"lan": ["10.50.0.70/24"], "storage": ["10.50.0.71"]}`)
			return object
		}
		m := s.machine(ctx, asks("two"))
		Expect(m.address).To(Equal("10.50.0.70/24"))
		stored := func(p *corev1.Pod) string {
			return addresses(ctx, p)[kubevirt.InterfaceName("storage")].String()
		}
		Expect(stored(&m.launchers(ctx, 1)[0])).To(Equal("10.50.0.71/24"))

		By("restoring it under another name")
		restored := asks("restored")
		Expect(kube.Create(ctx, restored)).To(Succeed())
		Eventually(func(g Gomega) {
			var claim ipamclaims.IPAMClaim
			g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: kubevirt.ClaimName("restored", lan)}, &claim)).To(Succeed())
			g.Expect(claim.Status.Conditions).To(ContainElement(HaveField("Reason", claims.ReasonRequestedTaken)))
		}).Should(Succeed())

		for _, plugged := range [][]kubevirt.Network{both[:1], both} {
			By(fmt.Sprintf("having %d networks", len(plugged)))
			Expect(kubevirt.Plug(ctx, kube, s.namespace, m.name, plugged)).To(Succeed())
			source := m.launchers(ctx, 1)[0]
			_, err := kubevirt.Migrate(ctx, kube, s.namespace, m.name)
			Expect(err).NotTo(HaveOccurred())
			m.launchers(ctx, 2)
			stop(ctx, &source)
			left := m.launchers(ctx, 1)[0]
			if len(plugged) > 1 {
				Expect(stored(&left)).To(Equal("10.50.0.71/24"))
			}
			Expect(s.granted(ctx, kubevirt.ClaimName(m.name, "storage"))).To(Equal("10.50.0.71/24"))
		}
		Expect(kube.Delete(ctx, m.object)).To(Succeed())
		again := machine{site: s, name: "restored", object: restored, address: m.address}
		again.launchers(ctx, 1)
		Expect(kube.Delete(ctx, restored)).To(Succeed())
		vanish(ctx, again)
	})

	It("migrates within its rack; to another rack the target is refused, and the source goes on", inProof, func(ctx context.Context) {
		s := newSite(ctx)
		for _, n := range c.Nodes {
			relabel(ctx, n.Name, "=a")
			DeferCleanup(func(ctx context.Context) { relabel(ctx, n.Name, "-") })
		}
		s.racks(ctx, lan, netip.MustParsePrefix("10.51.0.0/24"), netip.MustParsePrefix("10.52.0.0/24"))
		s.apply(ctx, fmt.Sprintf(storage, s.namespace, acrossNodes, lan))
		m := s.machine(ctx, kubevirt.VM(s.namespace, "racked", []kubevirt.Network{{Name: lan, Definition: "storage"}}))
		Expect(m.address).To(HavePrefix("10.51.0."))
		first := m.launchers(ctx, 1)[0]
		_, err := kubevirt.Migrate(ctx, kube, s.namespace, m.name)
		Expect(err).NotTo(HaveOccurred())
		m.launchers(ctx, 2)
		stop(ctx, &first)

		source := m.launchers(ctx, 1)[0]
		Expect(source.Spec.NodeName).NotTo(Equal(first.Spec.NodeName))
		other := c.Nodes[slices.IndexFunc(c.Nodes, func(n *cluster.Node) bool { return n.Name != source.Spec.NodeName })]
		relabel(ctx, other.Name, "=b")
		Eventually(func() []v1alpha1.SelectorStatus { return s.pool(ctx, lan).Status.Selectors }).Should(
			ContainElement(And(HaveField("Selector", rackLabel+"=b"), HaveField("Nodes", int32(1)))))
		target, err := kubevirt.Migrate(ctx, kube, s.namespace, m.name)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() ([]string, error) { return told(ctx, target, "FailedCreatePodSandBox") }).Should(ContainElement(ContainSubstring(
			"whose range is for nodes with " + rackLabel + "=a, and this node has " + rackLabel + "=b: schedule the pod where the claim's addresses are")))
		Expect(addresses(ctx, &source)[kubevirt.InterfaceName(lan)].String()).To(Equal(m.address), "what the source has")
		var claim ipamclaims.IPAMClaim
		Expect(kube.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: kubevirt.ClaimName(m.name, lan)}, &claim)).To(Succeed())
		Expect(claim.Status.OwnerPod).To(HaveField("Name", source.Name), "the claim is the source's still")
		stop(ctx, target)
		Expect(m.launchers(ctx, 1)[0].UID).To(Equal(source.UID))
		Expect(m.claimed(ctx)).To(Equal(m.address))
		Expect(kube.Delete(ctx, m.object)).To(Succeed())
		vanish(ctx, m)
	})

	It("is one of ten that migrate at once", func(ctx context.Context) {
		var all []machine
		for i := range 10 {
			all = append(all, s.machine(ctx, kubevirt.VM(s.namespace, fmt.Sprint("many-", i), []kubevirt.Network{{Name: lan, Definition: lan}})))
		}
		var sources []*corev1.Pod
		for _, m := range all {
			sources = append(sources, &m.launchers(ctx, 1)[0])
		}
		for _, m := range all {
			_, err := kubevirt.Migrate(ctx, kube, s.namespace, m.name)
			Expect(err).NotTo(HaveOccurred())
		}
		for _, m := range all {
			m.launchers(ctx, 2)
		}
		for _, source := range sources {
			Expect(kube.Delete(ctx, source)).To(Succeed())
		}
		for i, m := range all {
			stop(ctx, sources[i])
			m.launchers(ctx, 1)
			Expect(kube.Delete(ctx, m.object)).To(Succeed())
		}
		vanish(ctx, all...)
	})
})

// storage is a second network, of the pool of another.
const storage = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: storage, namespace: %[1]s}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "%[1]s-storage", %[2]s, "allowPersistentIPs": true, "ipam": {"type": "tenure", "pool": "%[1]s-%[3]s"}}
`
