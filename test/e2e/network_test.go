package e2e_test

import (
	"context"
	"net/netip"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("Pods", func() {
	var s site
	BeforeEach(func(ctx context.Context) { s = newSite(ctx) })

	It("are attached to one, two and three networks beside their own, and reach each other", onPlatforms, func(ctx context.Context) {
		ranges := map[string]string{"net1": "10.20.0.0/24", "net2": "10.21.0.0/24", "net3": "fd00:22::/64"}
		s.network(ctx, "lan", ranges["net1"], acrossNodes)
		s.network(ctx, "inner", ranges["net2"], withinNode)
		s.network(ctx, "six", ranges["net3"], acrossNodes)
		pods := []*corev1.Pod{
			s.start(ctx, "one", c.Nodes[0].Name, "lan"),
			s.start(ctx, "two", c.Nodes[1].Name, "lan,inner"),
			s.start(ctx, "three", c.Nodes[0].Name, "lan,inner,six"),
		}
		awaitRunning(ctx, pods...)
		seen := map[netip.Addr]string{}
		for i, p := range pods {
			has := addresses(ctx, p)
			Expect(has).To(HaveLen(i+2), "the interfaces of %s", p.Name)
			Expect(has).To(HaveKeyWithValue("eth0", HaveField("Addr().String()", p.Status.PodIP)))
			for name, prefix := range has {
				Expect(seen).NotTo(HaveKey(prefix.Addr()))
				seen[prefix.Addr()] = p.Name
				Expect(status(p)).To(HaveKeyWithValue(name, HaveField("IPs", ContainElement(prefix.Addr().String()))))
				if in, ours := ranges[name]; ours {
					Expect(status(p)[name].IPs).To(HaveLen(1))
					Expect(netip.MustParsePrefix(in)).To(Equal(prefix.Masked()))
				}
			}
		}
		for _, at := range []*corev1.Pod{pods[0], pods[2]} { // on the other node, by the cable
			answer, err := ask(ctx, pods[1], addresses(ctx, at)["net1"].Addr())
			Expect(err).NotTo(HaveOccurred())
			Expect(answer).To(ContainSubstring("net1 " + addresses(ctx, at)["net1"].String()))
		}
	})

	It("have the address of their claim, also the next pod on another node", onPlatforms, func(ctx context.Context) {
		s.network(ctx, "lan", "10.23.0.0/24", acrossNodes)
		claim := &ipamclaims.IPAMClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "postgres"},
			Spec:       ipamclaims.IPAMClaimSpec{Network: s.namespace + "-lan", Interface: "net1"},
		}
		Expect(kube.Create(ctx, claim)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
			g.Expect(claim.Status.IPs).To(HaveLen(1))
		}).Should(Succeed())
		const selects = `[{"name": "lan", "ipam-claim-reference": "postgres"}]`
		for _, n := range c.Nodes {
			p := s.run(ctx, "db", n.Name, selects)
			Expect(addresses(ctx, p)["net1"].String()).To(Equal(claim.Status.IPs[0]))
			stop(ctx, p)
		}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		Expect(claim.Status.IPs).To(HaveLen(1))
	})

	It("have the addresses that they ask for, and are told who has one that is taken", onPlatforms, func(ctx context.Context) {
		s.network(ctx, "lan", "10.24.0.0/24", acrossNodes)
		const selects = `[{"name": "lan", "ips": ["10.24.0.77"]}]`
		first := s.run(ctx, "first", c.Nodes[0].Name, selects)
		Expect(addresses(ctx, first)["net1"].String()).To(Equal("10.24.0.77/24"))
		then := time.Now().UTC().Format(time.RFC3339Nano)
		second := s.start(ctx, "second", c.Nodes[1].Name, selects)
		Eventually(func() ([]string, error) { return told(ctx, second, "FailedCreatePodSandBox") }).Should(
			ContainElement(And(ContainSubstring("10.24.0.77"), ContainSubstring("first"))))
		stop(ctx, first)
		awaitRunning(ctx, second)
		Expect(addresses(ctx, second)["net1"].String()).To(Equal("10.24.0.77/24"))
		tool := newMover(ctx)
		had := func(pod *corev1.Pod) types.GomegaMatcher { return ContainSubstring(s.namespace + "/" + pod.Name + " ") }
		Expect(tool.answer(ctx, "who", "10.24.0.77", "--at", then)).To(And(had(first), Not(had(second)), ContainSubstring(first.Spec.NodeName)))
		Eventually(func() (string, error) { return tool.answer(ctx, "who", "10.24.0.77", "--since", "1h") }).Should(And(had(first), had(second), ContainSubstring("still")))
		s.expectOnPage(ctx, tool.servesPage(ctx), "lan", netip.MustParseAddr("10.24.0.77"), first, second)
	})

	It("wait while the pool is exhausted, are told so, get the last address when it comes free, and one again when they are killed", func(ctx context.Context) {
		s.network(ctx, "tiny", "10.25.0.0/30", acrossNodes)
		first := s.run(ctx, "first", c.Nodes[0].Name, "tiny")
		second := s.run(ctx, "second", c.Nodes[1].Name, "tiny")
		third := s.start(ctx, "third", c.Nodes[0].Name, "tiny")
		Eventually(func() ([]string, error) { return told(ctx, third, "FailedCreatePodSandBox") }).Should(
			ContainElement(ContainSubstring("exhausted")))
		free := addresses(ctx, second)["net1"]
		Expect(free.Addr()).NotTo(Equal(addresses(ctx, first)["net1"].Addr()))
		stop(ctx, second)
		awaitRunning(ctx, third)
		Expect(addresses(ctx, third)["net1"]).To(Equal(free))
		killSandbox(ctx, first)
		awaitRestarted(ctx, first)
		apart(ctx, first, third)
	})
})
