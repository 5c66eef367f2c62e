package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/vif"
)

var _ = Describe("VIFs", func() {
	var s site
	BeforeEach(func(ctx context.Context) { s = newSite(ctx) })

	It("K2, K3, K5, K8 give pods on both nodes two interfaces that the controller has decided, beside the default network", func(ctx context.Context) {
		s.vif(ctx, "red", "10.90.0.0/24")
		s.vif(ctx, "blue", "fd00:90::/64")
		pods := []*corev1.Pod{
			s.start(ctx, "a", c.Nodes[0].Name, "red,blue"),
			s.start(ctx, "b", c.Nodes[1].Name, `[{"name": "red", "interface": "lan0", "mac": "02:00:00:00:00:5e"}, {"name": "blue"}]`),
		}
		awaitRunning(ctx, pods...)
		names := [][]string{{"eth0", "net1", "net2"}, {"eth0", "lan0", "net2"}}
		for i, p := range pods {
			has, decided := addresses(ctx, p), s.decided(p)
			Expect(has).To(HaveLen(3), "the interfaces of %s", p.Name)
			Expect(decided).To(HaveLen(2), "the VIFs of %s", p.Name)
			for _, name := range names[i][1:] {
				Expect(decided[name].Addresses).To(Equal([]string{has[name].String()}), "%s of %s", name, p.Name)
				Expect(status(p)[name].Mac).To(Equal(decided[name].MAC), "%s of %s", name, p.Name)
				claim := &ipamclaims.IPAMClaim{}
				Expect(kube.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: decided[name].Claim}, claim)).To(Succeed())
				Expect(claim.Status.IPs).To(Equal(decided[name].Addresses))
			}
		}
		Expect(s.decided(pods[1])["lan0"].MAC).To(Equal("02:00:00:00:00:5e"))
		answer, err := ask(ctx, pods[0], addresses(ctx, pods[1])["lan0"].Addr())
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ContainSubstring("net2 " + addresses(ctx, pods[1])["net2"].String()))
	})

	It("K4, K6 let pods wait for a controller that is away, keep their addresses in a new sandbox, and lose and double none", inProof, func(ctx context.Context) {
		s.vif(ctx, "red", "10.91.0.0/28")
		first := s.run(ctx, "first", c.Nodes[0].Name, "red")
		back := withoutControllers(ctx)
		pods := []*corev1.Pod{first}
		for i := range 4 {
			pods = append(pods, s.start(ctx, fmt.Sprintf("p%d", i), c.Nodes[i%2].Name, "red"))
		}
		Eventually(func() ([]string, error) { return told(ctx, pods[1], "FailedCreatePodSandBox") }).Should(
			ContainElement(ContainSubstring("has not written interface net1")))
		kubelet := c.Nodes[0].Kubelet
		Expect(kubelet.Kill()).To(Succeed())
		DeferCleanup(kubelet.Start)
		back(ctx)
		Expect(kubelet.Start(ctx)).To(Succeed())
		awaitRunning(ctx, pods...)

		taken := map[netip.Prefix]string{}
		for _, p := range pods {
			has := addresses(ctx, p)["net1"]
			Expect(taken).NotTo(HaveKey(has), "%s has the address of another", p.Name)
			taken[has] = p.Name
			Expect(s.decided(p)["net1"].Addresses).To(Equal([]string{has.String()}), "%s has what was decided", p.Name)
		}
		Expect(s.claims(ctx)).To(HaveLen(len(pods)), "one claim for each interface")
		for _, p := range pods {
			stop(ctx, p)
		}
		Eventually(func() []string { return s.claims(ctx) }).Should(BeEmpty(), "claims go with their pods")
	})
})

// vif makes a network of the name whose interfaces the controller decides: on the cable of all
// nodes, with a pool of one range.
func (s site) vif(ctx context.Context, name, cidr string) {
	GinkgoHelper()
	s.apply(ctx, fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %[1]s-%[2]s}
spec: {ranges: [{cidr: '%[3]s'}]}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: %[2]s
  namespace: %[1]s
  annotations:
    tenure.dev/vif: '{"pool": "%[1]s-%[2]s", "interfaceParameters": {"macvlan": {"master": "eth1", "mode": "bridge"}}}'
`, s.namespace, name, cidr))
}

// decided returns what the controller has decided of a pod's interfaces.
func (s site) decided(p *corev1.Pod) vif.Map {
	GinkgoHelper()
	m, err := vif.ParseMap(p.Annotations[vif.AnnotationMap])
	Expect(err).NotTo(HaveOccurred())
	for name, v := range m {
		Expect(v.PodUID).To(Equal(string(p.UID)), "%s of %s", name, p.Name)
		Expect(strings.HasPrefix(v.Network, s.namespace+"/")).To(BeTrue(), "network %s", v.Network)
	}
	return m
}

// claims returns the names of the namespace's claims.
func (s site) claims(ctx context.Context) (names []string) {
	GinkgoHelper()
	var all ipamclaims.IPAMClaimList
	Expect(kube.List(ctx, &all, client.InNamespace(s.namespace))).To(Succeed())
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names
}
