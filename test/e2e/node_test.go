package e2e_test

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var _ = Describe("A node", func() {
	var s site
	BeforeEach(func(ctx context.Context) {
		settle(ctx) // what happens to a node happens to all pods on it
		s = newSite(ctx)
	})

	It("is drained as the disruption budget allows, and gives its blocks back", inProof, func(ctx context.Context) {
		// 6 usable: where they are short, no block is kept for a minute.
		s.network(ctx, "lan", "10.43.0.0/29", acrossNodes)
		n := c.Nodes[1]
		s.deployment(ctx, "web", "lan", 4)
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: new(intstr.FromInt32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			},
		}
		Expect(kube.Create(ctx, budget)).To(Succeed())
		shown(s.settled(ctx, "web", 4)...)
		Expect(s.blocksOf(ctx, "lan", n.Name)).NotTo(BeEmpty())
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
			g.Expect(budget.Status.DisruptionsAllowed).To(BeEquivalentTo(1))
		}).Should(Succeed(), "the budget knows of the pods")
		DeferCleanup(func(ctx context.Context) error {
			_, err := c.Kubectl(ctx, "", "uncordon", n.Name)
			return err
		})
		_, err := c.Kubectl(ctx, "", "drain", n.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m")
		Expect(err).NotTo(HaveOccurred())
		pods := s.settled(ctx, "web", 4)
		shown(pods...)
		for _, p := range pods {
			Expect(p.Spec.NodeName).NotTo(Equal(n.Name))
		}
		Eventually(func() ([]string, error) { return s.blocksOf(ctx, "lan", n.Name) }).Should(BeEmpty(), "the blocks of a node that needs none")
	})

	It("is deleted while its pods run, and added again: what still runs keeps its addresses until it is ended", inProof, func(ctx context.Context) {
		const capacity = 14
		s.network(ctx, "lan", "10.44.0.0/28", acrossNodes)
		on := func(name string, node, count int) (pods []*corev1.Pod) {
			for i := range count {
				pods = append(pods, s.start(ctx, fmt.Sprintf("%s-%d", name, i), c.Nodes[node].Name, "lan"))
			}
			return pods
		}
		// All addresses are taken: what the forgotten pods have is what others lack.
		there := on("there", 1, 3)
		here := on("here", 0, capacity-len(there))
		awaitRunning(ctx, append(here, there...)...)
		had := apart(ctx, append(here, there...)...)
		// The kubelet, as long as it runs, ends what the cluster forgets.
		n := c.Nodes[1]
		Expect(n.Kubelet.Kill()).To(Succeed())
		Expect(kube.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}})).To(Succeed())
		DeferCleanup(func(ctx context.Context) error { return c.Boot(ctx, n) })
		// As the control plane does by itself, a minute or two later.
		_, err := c.Kubectl(ctx, "", "delete", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+n.Name, "--force", "--grace-period=0")
		Expect(err).NotTo(HaveOccurred())
		more := on("more", 0, 1)
		Eventually(func() ([]string, error) { return told(ctx, more[0], "FailedCreatePodSandBox") }).Should(
			ContainElement(ContainSubstring("exhausted")), "the addresses of pods that may still run are nobody else's")
		for _, p := range there {
			answer, err := ask(ctx, here[0], had[p.Name].Addr())
			Expect(err).NotTo(HaveOccurred(), "a pod that the cluster has forgotten still runs")
			Expect(answer).To(ContainSubstring("net1 " + had[p.Name].String()))
		}
		for name, at := range apart(ctx, here...) {
			Expect(at).To(Equal(had[name]))
		}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(more[0]), more[0])).To(Succeed())
		Expect(more[0].Status.Phase).To(Equal(corev1.PodPending), "it waits as long as they run")
		// A kubelet makes its Node when it starts; kube-proxy has ended without one.
		Expect(c.Boot(ctx, n)).To(Succeed())
		again := on("again", 1, len(there)-len(more))
		awaitRunning(ctx, append(more, again...)...)
		apart(ctx, slices.Concat(here, more, again)...)
	})
})

// blocksOf returns the blocks of a network that a node holds.
func (s site) blocksOf(ctx context.Context, network, node string) (blocks []string, err error) {
	var leases v1alpha1.IPLeaseList
	err = kube.List(ctx, &leases)
	for _, l := range leases.Items {
		if l.Spec.Pool == s.namespace+"-"+network && l.Spec.Holder.Node == node {
			blocks = append(blocks, l.Spec.Block)
		}
	}
	return blocks, err
}
