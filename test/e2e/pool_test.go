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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var _ = Describe("A pool", func() {
	// What follows by itself takes a second. Pods of other IPAMs would be waited for ten minutes.
	const soon = time.Minute

	It("is made larger while a pod has an address of it, and gives the added addresses at once", func(ctx context.Context) {
		s := newSite(ctx)
		s.network(ctx, "lan", "10.34.0.0/24", acrossNodes)
		first := s.run(ctx, "first", c.Nodes[0].Name, "lan")
		s.kubectl(ctx, "patch", "ippool", s.namespace+"-lan", "--type=merge", "-p", `{"spec":{"ranges":[{"cidr":"10.34.0.0/16"}]}}`)
		Eventually(func(g Gomega) {
			p := s.pool(ctx, "lan")
			g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
			g.Expect(meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolWithheld)).To(BeNil())
			g.Expect(p.Status.Withheld).To(BeEmpty())
		}).WithTimeout(soon).Should(Succeed(), "the pool gives what was added")
		added := s.run(ctx, "added", c.Nodes[1].Name, `[{"name": "lan", "ips": ["10.34.77.7"]}]`)
		Expect(addresses(ctx, added)).To(HaveKeyWithValue("net1", netip.MustParsePrefix("10.34.77.7/16")))
		stop(ctx, first)
		stop(ctx, added)
	})

	It("takes none of the pods that start at once on a node for those of another IPAM", func(ctx context.Context) {
		s := newSite(ctx)
		s.network(ctx, "lan", "10.101.0.0/16", acrossNodes)
		Eventually(func() bool {
			return meta.IsStatusConditionTrue(s.pool(ctx, "lan").Status.Conditions, v1alpha1.PoolReady)
		}).Should(BeTrue(), "the pool is open")
		expectNoForeign := func(g Gomega) {
			p := s.pool(ctx, "lan")
			g.Expect(meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolForeignAddresses)).To(BeNil())
			var leases v1alpha1.IPLeaseList
			g.Expect(kube.List(ctx, &leases)).To(Succeed())
			for _, l := range leases.Items {
				for _, grant := range l.Spec.Grants {
					g.Expect(l.Spec.Pool == p.Name && grant.To.Kind == v1alpha1.GranteePod).To(BeFalse(), "%s of %s is kept for %v", grant.Address, l.Name, grant.To)
				}
			}
		}
		pods := s.startMany(ctx, map[types.UID]string{}, "p", "lan", 30, c.Nodes[0].Name)
		looks := 0
		Eventually(func(g Gomega) {
			looks++ // each write of a definition has the controller look, also where what it sees has no cause
			s.kubectl(ctx, "annotate", "--overwrite", "net-attach-def", "lan", fmt.Sprintf("tenure.dev.test/look=%d", looks))
			expectNoForeign(Default)
			for _, p := range pods {
				g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				expectRunning(g, p)
			}
		}).WithPolling(200*time.Millisecond).Should(Succeed(), "all pods run")
		expectNoForeign(Default)
		said, err := c.Kubectl(ctx, "", "logs", "-n", "tenure-system", "-l", "app.kubernetes.io/name=tenure-controller", "--tail=-1")
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(said) {
			Expect(strings.Contains(line, "of another IPAM") && strings.Contains(line, s.namespace+"-lan")).To(BeFalse(), line)
		}
		s.kubectl(ctx, "delete", "pods", "--all", "--wait=false")
		Eventually(func() (int, error) {
			used, err := s.recorded(ctx, "lan")
			return len(used), err
		}).Should(BeZero(), "addresses that Tenure has given")
		expectNoForeign(Default)
	})

	It("gives nobody the address that a bridge takes for itself", func(ctx context.Context) {
		s := newSite(ctx)
		router := netip.MustParseAddr("10.35.0.1")
		s.network(ctx, "lan", "10.35.0.0/29", `"type": "bridge", "bridge": "br-router", "isDefaultGateway": true`)
		s.define(ctx, "wire", `{"type": "tenure", "pool": "`+s.namespace+`-lan"}`)
		Eventually(func() []string { return s.pool(ctx, "lan").Status.Gateways }).Should(ConsistOf(router.String()))
		pods := []*corev1.Pod{
			s.start(ctx, "behind", c.Nodes[0].Name, "lan"), s.start(ctx, "a", c.Nodes[0].Name, "wire"), s.start(ctx, "b", c.Nodes[0].Name, "wire"),
			s.start(ctx, "c", c.Nodes[1].Name, "wire"), s.start(ctx, "d", c.Nodes[1].Name, "wire"),
		}
		awaitRunning(ctx, pods...)
		var given []netip.Addr
		for _, p := range pods {
			given = append(given, addresses(ctx, p)["net1"].Addr())
		}
		Expect(given).To(ConsistOf(router.Next(), netip.MustParseAddr("10.35.0.3"), netip.MustParseAddr("10.35.0.4"), netip.MustParseAddr("10.35.0.5"), netip.MustParseAddr("10.35.0.6")))
		for _, p := range pods {
			stop(ctx, p)
		}
	})
})

// pool reads the pool of one of the site's networks.
func (s site) pool(ctx context.Context, network string) *v1alpha1.IPPool {
	GinkgoHelper()
	p := &v1alpha1.IPPool{}
	Expect(kube.Get(ctx, client.ObjectKey{Name: s.namespace + "-" + network}, p)).To(Succeed())
	return p
}

var _ = Describe("Definitions in whereabouts' form without a name", func() {
	It("serve, as many as there are: each that overlaps no other has a pool of its own", func(ctx context.Context) {
		s := newSite(ctx)
		var text strings.Builder
		for i := range 70 {
			fmt.Fprintf(&text, `---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: net-%[2]d, namespace: %[1]s}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "%[1]s-net-%[2]d", %[3]s, "ipam": {"type": "tenure", "range": "10.61.%[2]d.0/24"}}
`, s.namespace, i, acrossNodes)
		}
		_, err := c.Kubectl(ctx, text.String(), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		p := s.run(ctx, "last", "", "net-69")
		Expect(addresses(ctx, p)["net1"].Masked().String()).To(Equal("10.61.69.0/24"))
	})
})
