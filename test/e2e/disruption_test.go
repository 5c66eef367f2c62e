package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
)

var _ = Describe("Pods and their addresses, whatever is restarted:", func() {
	var s site
	BeforeEach(func(ctx context.Context) {
		s = newSite(ctx)
		s.network(ctx, "lan", "10.30.0.0/24", acrossNodes)
	})

	// burst starts pods on both nodes, and returns them.
	burst := func(ctx context.Context, name string) (pods []*corev1.Pod) {
		for i := range 8 {
			pods = append(pods, s.start(ctx, fmt.Sprintf("%s-%d", name, i), c.Nodes[i%len(c.Nodes)].Name, "lan"))
		}
		return pods
	}
	// apart checks that every pod has an address of its own, and returns them.
	apart := func(ctx context.Context, pods ...*corev1.Pod) map[string]netip.Prefix {
		GinkgoHelper()
		has, by := map[string]netip.Prefix{}, map[netip.Prefix]string{}
		for _, p := range pods {
			at := addresses(ctx, p)["net1"]
			Expect(at.IsValid()).To(BeTrue(), "%s has an address of lan", p.Name)
			Expect(by).NotTo(HaveKey(at))
			has[p.Name], by[at] = at, p.Name
		}
		return has
	}

	It("the agents, while pods are created", func(ctx context.Context) {
		before := burst(ctx, "before")
		awaitRunning(ctx, before...)
		had := apart(ctx, before...)
		_, err := c.Kubectl(ctx, "", "-n", "tenure-system", "rollout", "restart", "daemonset/tenured")
		Expect(err).NotTo(HaveOccurred())
		during := burst(ctx, "during")
		_, err = c.Kubectl(ctx, "", "-n", "tenure-system", "rollout", "status", "--timeout=3m", "daemonset/tenured")
		Expect(err).NotTo(HaveOccurred())
		after := burst(ctx, "after")
		awaitRunning(ctx, append(during, after...)...)
		has := apart(ctx, append(append(before, during...), after...)...)
		for name, at := range had {
			Expect(has).To(HaveKeyWithValue(name, at))
		}
	})

	DescribeTable("a node's",
		func(ctx context.Context, which func(*cluster.Node) *cluster.Service) {
			before := burst(ctx, "before")
			awaitRunning(ctx, before...)
			had := apart(ctx, before...)
			n := c.Nodes[0]
			Expect(which(n).Kill()).To(Succeed())
			DeferCleanup(which(n).Start) // also where this ends before it does so
			during := burst(ctx, "during")
			for _, p := range before[4:] { // half of them on the node without
				Expect(kube.Delete(ctx, p)).To(Succeed())
			}
			Expect(which(n).Start(ctx)).To(Succeed())
			for _, p := range before[4:] {
				stop(ctx, p)
			}
			awaitRunning(ctx, during...)
			has := apart(ctx, append(before[:4], during...)...)
			for _, p := range before[:4] {
				Expect(has).To(HaveKeyWithValue(p.Name, had[p.Name]))
			}
		},
		Entry("kubelet", func(n *cluster.Node) *cluster.Service { return n.Kubelet }),
		Entry("containerd", func(n *cluster.Node) *cluster.Service { return n.Containerd }),
	)

	It("a node, by its power switch", func(ctx context.Context) {
		pods := burst(ctx, "pod")
		awaitRunning(ctx, pods...)
		had := apart(ctx, pods...)
		n := c.Nodes[1]
		Expect(n.PowerOff()).To(Succeed())
		DeferCleanup(func(ctx context.Context) error { return c.Boot(ctx, n) })
		Expect(c.Boot(ctx, n)).To(Succeed())
		for _, p := range pods {
			restarts := map[bool]int32{true: 1}[p.Spec.NodeName == n.Name]
			Eventually(func(g Gomega) {
				g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				g.Expect(p.Status.ContainerStatuses[0].RestartCount).To(BeNumerically(">=", restarts))
				g.Expect(p.Status.ContainerStatuses[0].Ready).To(BeTrue())
			}).Should(Succeed(), "pod %s runs again", p.Name)
		}
		has := apart(ctx, pods...)
		for _, p := range pods {
			if p.Spec.NodeName != n.Name {
				Expect(has).To(HaveKeyWithValue(p.Name, had[p.Name]))
			}
		}
	})

	It("the API server, while a pod's sandbox dies", func(ctx context.Context) {
		pods := burst(ctx, "pod")
		awaitRunning(ctx, pods...)
		had := apart(ctx, pods...)
		n, victim := c.Nodes[0], pods[0]
		sandboxes := func() []string {
			out, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "containers", "list",
				fmt.Sprintf(`labels."io.kubernetes.pod.uid"==%s,labels."io.cri-containerd.kind"==sandbox`, victim.UID))
			Expect(err).NotTo(HaveOccurred())
			var ids []string
			for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n")[1:] {
				ids = append(ids, strings.Fields(line)[0])
			}
			return ids
		}
		old := sandboxes()
		Expect(old).To(HaveLen(1))
		Expect(c.StopAPIServer()).To(Succeed())
		DeferCleanup(c.StartAPIServer)
		_, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", fmt.Sprint(int(syscall.SIGKILL)), old[0])
		Expect(err).NotTo(HaveOccurred())
		// The kubelet makes another one, which is attached without the API server.
		Eventually(sandboxes).Should(ContainElement(Not(Equal(old[0]))))
		Expect(c.StartAPIServer(ctx)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(victim), victim)).To(Succeed())
			g.Expect(victim.Status.ContainerStatuses[0].RestartCount).To(BeNumerically(">", 0))
			g.Expect(victim.Status.ContainerStatuses[0].Ready).To(BeTrue())
		}).Should(Succeed())
		has := apart(ctx, pods...)
		for _, p := range pods[1:] {
			Expect(has).To(HaveKeyWithValue(p.Name, had[p.Name]))
		}
		after := burst(ctx, "after")
		awaitRunning(ctx, after...)
		apart(ctx, append(pods, after...)...)
	})
})
