package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var _ = Describe("A subnet for each node", func() {
	It("gives pods its length, router and a route to all, stays when agents are killed and no pod is left, and says what is wrong with another", func(ctx context.Context) {
		s := newSite(ctx)
		pinned, whole := netip.MustParsePrefix("10.86.0.96/27"), netip.MustParsePrefix("10.86.0.0/24")
		pool := func(name, perNode string) string {
			return fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %s-%s}
spec: {perNode: %s, ranges: [{cidr: %v}]}
`, s.namespace, name, perNode, whole)
		}
		s.apply(ctx, pool("rail", fmt.Sprintf("{prefixLength: 27, pinned: [{node: %s, cidr: %v}]}", c.Nodes[1].Name, pinned)))
		s.define(ctx, "rail", `{"type": "tenure", "pool": "`+s.namespace+`-rail"}`)

		By("an address and a route of the node's subnet")
		subnets := s.expectSubnets(ctx, "before", whole)
		Expect(subnets[1]).To(Equal(pinned))

		By("the same when the agents were killed and no pod is left, and a route to what the pool has then")
		killAgents(ctx)
		whole = netip.MustParsePrefix("10.86.0.0/23")
		s.kubectl(ctx, "patch", "ippool", s.namespace+"-rail", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"ranges":[{"cidr":"%v"}]}}`, whole))
		Expect(s.expectSubnets(ctx, "after", whole)).To(Equal(subnets))

		By("what cannot be is refused")
		for _, tt := range []struct{ name, perNode, why string }{
			{"rail", "{prefixLength: 28}", "must not change: nodes have subnets of this length; make another pool"},
			{"twice", "{prefixLength: 27, pinned: [{node: a, cidr: 10.86.0.0/27}, {node: a, cidr: 10.86.0.32/27}]}", "Duplicate value"},
		} {
			_, err := c.Kubectl(ctx, pool(tt.name, tt.perNode), "apply", "-f", "-")
			Expect(err).To(MatchError(ContainSubstring(tt.why)), tt.perNode)
		}
		for name, tt := range map[string]struct{ perNode, why string }{
			"wide":    {"{prefixLength: 16}", "spec.perNode.prefixLength: subnets of /16 do not fit into spec.ranges[0].cidr"},
			"foreign": {"{prefixLength: 27, pinned: [{node: a, cidr: 10.9.0.0/27}]}", "spec.perNode.pinned[0].cidr: 10.9.0.0/27 is no subnet of the pool"},
			"shared":  {"{prefixLength: 27, pinned: [{node: a, cidr: 10.86.0.0/27}, {node: b, cidr: 10.86.0.0/27}]}", "is pinned to node a as well"},
		} {
			s.apply(ctx, pool(name, tt.perNode))
			Eventually(func() []metav1.Condition { return s.pool(ctx, name).Status.Conditions }).Should(
				ContainElement(And(HaveField("Type", v1alpha1.PoolReady), HaveField("Message", ContainSubstring(tt.why)))), tt.perNode)
		}
	})
})

// expectSubnets runs two pods on each node, and checks that what they have is of one subnet of
// /27, which is no other node's, and that whole is reached by its first address. It returns the
// subnets when the pods have gone.
func (s site) expectSubnets(ctx context.Context, name string, whole netip.Prefix) (subnets []netip.Prefix) {
	GinkgoHelper()
	var pods []*corev1.Pod
	for i := range 2 * len(c.Nodes) {
		pods = append(pods, s.start(ctx, fmt.Sprint(name, i), c.Nodes[i%len(c.Nodes)].Name, "rail"))
	}
	awaitRunning(ctx, pods...)
	has := apart(ctx, pods...)
	for i, p := range pods {
		sub := has[p.Name].Masked()
		if i < len(c.Nodes) {
			Expect(subnets).NotTo(ContainElement(sub))
			subnets = append(subnets, sub)
		}
		Expect(sub).To(Equal(subnets[i%len(c.Nodes)]), "what %s on node %s has", p.Name, p.Spec.NodeName)
		Expect(sub.Bits()).To(Equal(27))
		routes, err := c.Kubectl(ctx, "", "exec", "-n", p.Namespace, p.Name, "--", "/pod", "routes")
		Expect(err).NotTo(HaveOccurred())
		Expect(routes).To(ContainSubstring("%v via %v dev net1", whole, sub.Addr().Next()))
		Expect(kube.Delete(ctx, p)).To(Succeed())
	}
	for _, p := range pods {
		stop(ctx, p)
	}
	return subnets
}

// killAgents kills the agents of all nodes, and waits until they run again.
func killAgents(ctx context.Context) {
	GinkgoHelper()
	agents := func(g Gomega) map[string]string { // containers by node
		var pods corev1.PodList
		g.Expect(kube.List(ctx, &pods, client.InNamespace("tenure-system"), client.MatchingLabels{"app.kubernetes.io/name": "tenured"})).To(Succeed())
		of := map[string]string{}
		for _, p := range pods.Items {
			for _, s := range p.Status.ContainerStatuses {
				if s.Name == "tenured" && s.Ready {
					of[p.Spec.NodeName] = strings.TrimPrefix(s.ContainerID, "containerd://")
				}
			}
		}
		g.Expect(of).To(HaveLen(len(c.Nodes)))
		return of
	}
	before := agents(Default)
	for node, id := range before {
		_, err := c.Node(node).Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id)
		Expect(err).NotTo(HaveOccurred())
	}
	Eventually(func(g Gomega) {
		for node, id := range agents(g) {
			g.Expect(id).NotTo(Equal(before[node]), "a new agent on node %s", node)
		}
	}).Should(Succeed())
}
