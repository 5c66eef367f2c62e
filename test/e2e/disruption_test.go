package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/process"
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
	It("the agents and the controllers, while pods come and go and claims are made", func(ctx context.Context) {
		before := burst(ctx, "before")
		awaitRunning(ctx, before...)
		had := apart(ctx, before...)
		rolled := make(chan error, 1)
		go func() {
			rolled <- func() error {
				for _, verb := range [][]string{{"restart"}, {"status", "--timeout=5m"}} {
					for _, what := range []string{"daemonset/tenured", "deployment/tenure-controller"} {
						if _, err := c.Kubectl(ctx, "", append([]string{"-n", "tenure-system", "rollout", verb[0], what}, verb[1:]...)...); err != nil {
							return err
						}
					}
				}
				return nil
			}()
		}()
		during, claims := s.load(ctx, rolled)
		after := burst(ctx, "after")
		awaitRunning(ctx, append(during, after...)...)
		has := apart(ctx, append(append(before, during...), after...)...)
		for name, at := range had {
			Expect(has).To(HaveKeyWithValue(name, at))
		}
		granted := map[string]string{}
		for name, at := range has {
			granted[at.String()] = name
		}
		for _, claim := range claims {
			at := s.granted(ctx, claim)
			Expect(granted).NotTo(HaveKey(at))
			granted[at] = claim
		}
	})

	DescribeTable("a node's",
		func(ctx context.Context, which func(*cluster.Node) *process.Process) {
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
		Entry("kubelet", func(n *cluster.Node) *process.Process { return n.Kubelet }),
		Entry("containerd", func(n *cluster.Node) *process.Process { return n.Containerd }),
	)

	It("a node's containerd and kubelet, in the middle of ADDs", inProof, func(ctx context.Context) {
		n := c.Nodes[0]
		var pods []*corev1.Pod
		for i := range 20 {
			pods = append(pods, s.start(ctx, fmt.Sprintf("pod-%d", i), n.Name, "lan"))
		}
		// Each is killed when some more attachments have been made, while others are.
		attached := func() (int, error) {
			names, err := entries(n, attachmentsDir)
			return len(names), err
		}
		for _, service := range []*process.Process{n.Containerd, n.Kubelet, n.Containerd} {
			already, err := attached()
			Expect(err).NotTo(HaveOccurred())
			Eventually(attached).WithPolling(5 * time.Millisecond).Should(BeNumerically(">=", min(already+3, len(pods))))
			Expect(service.Restart(ctx)).To(Succeed())
		}
		awaitRunning(ctx, pods...)
		apart(ctx, pods...)
	})

	It("a node, by its power switch", inProof, func(ctx context.Context) {
		pods := burst(ctx, "pod")
		awaitRunning(ctx, pods...)
		had := apart(ctx, pods...)
		whole := netip.MustParsePrefix("10.31.0.0/24")
		s.apply(ctx, fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %s-rail}
spec: {perNode: {prefixLength: 27}, ranges: [{cidr: %v}]}
`, s.namespace, whole))
		s.define(ctx, "rail", `{"type": "tenure", "pool": "`+s.namespace+`-rail"}`)
		subnets := s.expectSubnets(ctx, "before", whole)
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
		Expect(s.expectSubnets(ctx, "after", whole)).To(Equal(subnets), "the nodes' own subnets")
	})

	It("the API server, while a pod's sandbox dies", func(ctx context.Context) {
		settle(ctx) // else a pod of an earlier spec could answer for one of these
		pods := burst(ctx, "pod")
		awaitRunning(ctx, pods...)
		had := apart(ctx, pods...)
		victim := pods[0]
		Expect(c.StopAPIServer()).To(Succeed())
		DeferCleanup(c.StartAPIServer)
		old := killSandbox(ctx, victim)
		// The kubelet makes another one, which is attached without the API server.
		Eventually(func() []string { return sandboxes(ctx, victim) }).Should(ContainElement(Not(Equal(old))))
		// Those that run go on.
		from, to := pods[1], pods[2] // on different nodes
		answer, err := c.Node(from.Spec.NodeName).Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "exec", "--exec-id", "probe",
			strings.TrimPrefix(from.Status.ContainerStatuses[0].ContainerID, "containerd://"), "/pod", "get", had[to.Name].Addr().String()+":8080")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(ContainSubstring("net1 " + had[to.Name].String()))
		Expect(c.StartAPIServer(ctx)).To(Succeed())
		awaitRestarted(ctx, victim)
		has := apart(ctx, pods...)
		for _, p := range pods[1:] {
			Expect(has).To(HaveKeyWithValue(p.Name, had[p.Name]))
		}
		after := burst(ctx, "after")
		awaitRunning(ctx, after...)
		apart(ctx, append(pods, after...)...)
	})
})
