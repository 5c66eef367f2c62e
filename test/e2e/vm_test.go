package e2e_test

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/kubevirt"
	"github.com/tenure-ipam/tenure/test/programs"
)

// KubeVirt's controller is test/kubevirt; its launcher pods are real.
var _ = Describe("A virtual machine", Ordered, func() {
	const vm, network = "vm", "lan"
	var s site
	var address string

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
		s = newSite(ctx)
		s.network(ctx, network, "10.50.0.0/24", acrossNodes+`, "allowPersistentIPs": true`)
		Expect(kube.Create(ctx, kubevirt.VM(s.namespace, vm, []kubevirt.Network{{Name: network, Definition: network}}))).To(Succeed())
		address = s.granted(ctx, kubevirt.ClaimName(vm, network))
	})

	// launchers waits until the machine has n launcher pods, which run and stay, and have
	// its address.
	launchers := func(ctx context.Context, n int) (pods []corev1.Pod) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			var err error
			pods, err = kubevirt.Launchers(ctx, kube, s.namespace, vm)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods).To(HaveLen(n))
			for i := range pods {
				g.Expect(pods[i].DeletionTimestamp).To(BeNil())
				expectRunning(g, &pods[i])
			}
		}).Should(Succeed(), "%d launcher pods run", n)
		for i := range pods {
			Expect(addresses(ctx, &pods[i])[kubevirt.InterfaceName(network)].String()).To(Equal(address))
		}
		return pods
	}

	It("VM1, VM1b, VM1c keeps its address when a migration fails, and when one succeeds", func(ctx context.Context) {
		source := launchers(ctx, 1)[0]
		for _, ends := range []string{"target", "source"} {
			target, err := kubevirt.Migrate(ctx, kube, s.namespace, vm)
			Expect(err).NotTo(HaveOccurred())
			both := launchers(ctx, 2)
			Expect(both[0].Spec.NodeName).NotTo(Equal(both[1].Spec.NodeName))
			stop(ctx, map[string]*corev1.Pod{"target": target, "source": &source}[ends])
			left := launchers(ctx, 1)[0]
			Expect(left.UID).To(Equal(map[string]*corev1.Pod{"target": &source, "source": target}[ends].UID))
		}
	})

	It("VM6 keeps its address when it is restarted", func(ctx context.Context) {
		before := launchers(ctx, 1)[0]
		Expect(kubevirt.Restart(ctx, kube, s.namespace, vm)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(&before), &corev1.Pod{}))
		}).Should(BeTrue())
		Expect(launchers(ctx, 1)[0].UID).NotTo(Equal(before.UID))
	})

	It("VM4 keeps its address while it is stopped", func(ctx context.Context) {
		Expect(kubevirt.Halt(ctx, kube, s.namespace, vm)).To(Succeed())
		launchers(ctx, 0)
		Expect(s.granted(ctx, kubevirt.ClaimName(vm, network))).To(Equal(address))
		Expect(kubevirt.Start(ctx, kube, s.namespace, vm)).To(Succeed())
		launchers(ctx, 1)
	})

	It("VM2 gives its address back when it is deleted", func(ctx context.Context) {
		bare, _, _ := strings.Cut(address, "/")
		Expect(s.recorded(ctx, network)).To(ContainElement(HaveField("String()", bare)))
		Expect(kube.Delete(ctx, kubevirt.VM(s.namespace, vm, nil))).To(Succeed())
		Eventually(func(g Gomega) {
			var claims ipamclaims.IPAMClaimList
			g.Expect(kube.List(ctx, &claims, client.InNamespace(s.namespace))).To(Succeed())
			g.Expect(claims.Items).To(BeEmpty())
			g.Expect(s.recorded(ctx, network)).NotTo(ContainElement(HaveField("String()", bare)))
		}).WithTimeout(time.Minute).Should(Succeed())
		launchers(ctx, 0)
	})
})
