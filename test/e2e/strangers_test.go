package e2e_test

import (
	"context"
	"net"
	"net/netip"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var _ = DescribeTable("A stranger on the segment keeps his address from pods until its reservation is deleted", func(ctx context.Context, cidr, plugin string, on int, ifName string) {
	s := newSite(ctx)
	s.network(ctx, "seg", cidr, plugin) // two addresses
	pool := s.pool(ctx, "seg")
	edited := client.MergeFrom(pool.DeepCopy())
	pool.Spec.DetectConflicts = true
	Expect(kube.Patch(ctx, pool, edited)).To(Succeed())
	first := s.run(ctx, "first", c.Nodes[0].Name, "seg") // makes the bridge
	his := netip.MustParsePrefix(cidr).Addr().Next()
	if addresses(ctx, first)["net1"].Addr() == his {
		his = his.Next()
	}
	machine := func(change func(netlink.Link, *netlink.Addr) error) error {
		return c.Nodes[on].Do(func() error {
			link, err := netlink.LinkByName(ifName)
			if err != nil {
				return err
			}
			return change(link, &netlink.Addr{IPNet: &net.IPNet{IP: his.AsSlice(), Mask: net.CIDRMask(30, 32)}})
		})
	}
	Expect(machine(netlink.AddrAdd)).To(Succeed())
	left := false
	DeferCleanup(func() error {
		if left {
			return nil
		}
		return machine(netlink.AddrDel)
	})
	second := s.start(ctx, "second", c.Nodes[0].Name, "seg")
	Eventually(func() ([]string, error) { return told(ctx, second, "AddressInUse") }).Should(ContainElement(ContainSubstring(his.String())))
	Eventually(func() ([]string, error) { return told(ctx, second, "FailedCreatePodSandBox") }).Should(ContainElement(ContainSubstring("is in use on the segment by")))
	kept := &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: "stranger-" + pool.Name + "-" + strings.ReplaceAll(his.String(), ".", "-")}}
	Eventually(func(g Gomega) {
		g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
		g.Expect(s.pool(ctx, "seg").Status.Conditions).To(ContainElement(And(
			HaveField("Type", v1alpha1.PoolStrangers), HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring(kept.Name)))))
	}).Should(Succeed())
	Expect(machine(netlink.AddrDel)).To(Succeed())
	left = true
	Expect(kube.Delete(ctx, kept)).To(Succeed())
	awaitRunning(ctx, second)
	Expect(addresses(ctx, second)["net1"].Addr()).To(Equal(his))
	Eventually(told).WithArguments(ctx, pool, "AddressInUse").Should(ContainElement(ContainSubstring("kubectl delete ipreservation")))
	apart(ctx, []*corev1.Pod{first, second}...)
},
	Entry("on the node's bridge", "10.26.0.0/30", withinNode, 0, innerBridge),
	Entry("on another machine, by macvlan", "10.27.0.0/30", acrossNodes, 1, "eth1"),
)
