package e2e_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("Addresses", func() {
	var s site
	BeforeEach(func(ctx context.Context) { s = newSite(ctx) })

	It("of a pod that is deleted by force are nobody else's while its sandbox lives", inProof, func(ctx context.Context) {
		s.network(ctx, "tiny", "10.45.0.0/30", acrossNodes)
		first := s.run(ctx, "first", c.Nodes[0].Name, "tiny")
		second := s.run(ctx, "second", c.Nodes[1].Name, "tiny")
		had := apart(ctx, first, second)
		kubelet := c.Nodes[0].Kubelet
		Expect(kubelet.Kill()).To(Succeed())
		DeferCleanup(kubelet.Start)
		Expect(kube.Delete(ctx, first, client.GracePeriodSeconds(0))).To(Succeed())
		Expect(apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(first), first))).To(BeTrue(), "it is gone at once")
		third := s.start(ctx, "third", c.Nodes[1].Name, "tiny")
		Eventually(func() ([]string, error) { return told(ctx, third, "FailedCreatePodSandBox") }).Should(
			ContainElement(ContainSubstring("exhausted")))
		answer, err := ask(ctx, second, had["first"].Addr())
		Expect(err).NotTo(HaveOccurred(), "the pod that is gone still runs")
		Expect(answer).To(ContainSubstring("net1 " + had["first"].String()))
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(third), third)).To(Succeed())
		Expect(third.Status.Phase).To(Equal(corev1.PodPending))
		Expect(kubelet.Start(ctx)).To(Succeed()) // it ends what should not be there
		awaitRunning(ctx, third)
		Expect(apart(ctx, second, third)["third"]).To(Equal(had["first"]))
	})

	It("are enough for 40 pods that one node gets at once", inProof, func(ctx context.Context) {
		const count = 40
		settle(ctx)
		s.network(ctx, "lan", "10.46.0.0/24", acrossNodes)
		var pods []*corev1.Pod
		began := time.Now()
		for i := range count {
			pods = append(pods, s.start(ctx, fmt.Sprintf("pod-%d", i), c.Nodes[0].Name, "lan"))
		}
		awaitRunning(ctx, pods...)
		AddReportEntry(fmt.Sprintf("%d pods at once on one node run after", count), time.Since(began).Round(100*time.Millisecond))
		shown(pods...)
		began = time.Now()
		for _, p := range pods {
			Expect(kube.Delete(ctx, p)).To(Succeed())
		}
		for _, p := range pods {
			stop(ctx, p)
		}
		AddReportEntry(fmt.Sprintf("%d pods at once on one node are gone after", count), time.Since(began).Round(100*time.Millisecond))
	})
})
