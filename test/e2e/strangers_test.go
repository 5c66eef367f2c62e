package e2e_test

import (
	"context"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var _ = Describe("A stranger on the segment", func() {
	It("keeps his address from pods until its reservation is deleted", func(ctx context.Context) {
		s := newSite(ctx)
		node := c.Nodes[0]
		s.network(ctx, "seg", "10.26.0.0/30", withinNode) // two addresses
		pool := s.pool(ctx, "seg")
		edited := client.MergeFrom(pool.DeepCopy())
		pool.Spec.DetectConflicts = true
		Expect(kube.Patch(ctx, pool, edited)).To(Succeed())
		first := s.run(ctx, "first", node.Name, "seg") // makes the bridge
		his := netip.MustParseAddr("10.26.0.1")
		if addresses(ctx, first)["net1"].Addr() == his {
			his = his.Next()
		}
		bridge := func(change func(netlink.Link, *netlink.Addr) error) {
			GinkgoHelper()
			Expect(node.Do(func() error {
				link, err := netlink.LinkByName(innerBridge)
				if err != nil {
					return err
				}
				a, err := netlink.ParseAddr(his.String() + "/30")
				if err != nil {
					return err
				}
				return change(link, a)
			})).To(Succeed())
		}
		bridge(netlink.AddrAdd)
		second := s.start(ctx, "second", node.Name, "seg")
		Eventually(func() ([]string, error) { return told(ctx, second, "AddressInUse") }).Should(ContainElement(ContainSubstring(his.String())))
		Eventually(func() ([]string, error) { return told(ctx, second, "FailedCreatePodSandBox") }).Should(ContainElement(ContainSubstring("is in use on the segment by")))
		kept := &v1alpha1.IPReservationList{}
		Eventually(func(g Gomega) {
			g.Expect(kube.List(ctx, kept, client.HasLabels{v1alpha1.LabelStranger})).To(Succeed())
			g.Expect(kept.Items).To(ConsistOf(HaveField("Spec.Address", his.String())))
			g.Expect(s.pool(ctx, "seg").Status.Conditions).To(ContainElement(And(
				HaveField("Type", v1alpha1.PoolStrangers), HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring(kept.Items[0].Name)))))
		}).Should(Succeed())
		bridge(netlink.AddrDel)
		Expect(kube.Delete(ctx, &kept.Items[0])).To(Succeed())
		awaitRunning(ctx, second)
		Expect(addresses(ctx, second)["net1"].Addr()).To(Equal(his))
		Eventually(func(g Gomega) string { return eventOf(ctx, g, pool, "AddressInUse") }).Should(ContainSubstring("kubectl delete ipreservation"))
		apart(ctx, []*corev1.Pod{first, second}...)
	})
})
