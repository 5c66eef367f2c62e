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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/neutron"
)

var _ = Describe("Neutron", func() {
	It("K3, K4, K5 gives pods on both nodes its addresses, and keeps one port for each, while kubelet, controllers and Neutron are killed", func(ctx context.Context) {
		s := newSite(ctx)
		w := s.neutron(ctx)
		red, blue := w.subnet("10.95.0.0/24", 4), w.subnet("fd00:95::/64", 6)
		s.apply(ctx, fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: InterfaceParameters
metadata: {name: %[1]s, namespace: tenure-system}
spec: {macvlan: {master: eth1, mode: bridge}}
---
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %[1]s-red}
spec: {source: {neutron: {subnetIDs: [%[2]s], interfaceParameters: %[1]s}}}
---
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %[1]s-blue}
spec: {source: {neutron: {subnetIDs: [%[3]s]}}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: red
  namespace: %[1]s
  annotations:
    openstack.org/kuryr-config: '{"subnetId": "%[2]s"}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: blue
  namespace: %[1]s
  annotations:
    tenure.dev/vif: '{"subnetId": "%[3]s", "interfaceParameters": {"macvlan": {"master": "eth1", "mode": "bridge"}}}'
`, s.namespace, red, blue))

		pods := []*corev1.Pod{s.start(ctx, "a", c.Nodes[0].Name, "red,blue"), s.start(ctx, "b", c.Nodes[1].Name, "red,blue")}
		awaitRunning(ctx, pods...)
		answer, err := ask(ctx, pods[0], addresses(ctx, pods[1])["eth1"].Addr())
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ContainSubstring("net2 " + addresses(ctx, pods[1])["net2"].String()))

		kubelet := c.Nodes[0].Kubelet
		DeferCleanup(kubelet.Start)
		for round, fault := range []func(){
			func() { Expect(kubelet.Kill()).To(Succeed()); Expect(kubelet.Start(ctx)).To(Succeed()) },
			func() { killControllers(ctx) },
			func() { Expect(w.Kill()).To(Succeed()); w.Start(GinkgoTB()) },
			func() { killControllers(ctx); Expect(w.Kill()).To(Succeed()); w.Start(GinkgoTB()) },
		} {
			for i := range 4 {
				pods = append(pods, s.start(ctx, fmt.Sprintf("p%d-%d", round, i), c.Nodes[i%2].Name, "red,blue"))
			}
			time.Sleep(time.Duration(round) * 150 * time.Millisecond) // another step each time
			fault()
		}
		awaitRunning(ctx, pods...)
		w.expectPorts(ctx, s, pods)
		for _, p := range pods {
			stop(ctx, p)
		}
		Eventually(func() []string { return s.claims(ctx) }).Should(BeEmpty(), "claims go with their pods")
		Eventually(w.ours).Should(BeEmpty(), "ports go with their claims")
	})
})

// openStack is a Neutron of a spec.
type openStack struct{ *neutron.Server }

// neutron starts a Neutron, and gives the controllers the credentials for it.
func (s site) neutron(ctx context.Context) openStack {
	GinkgoHelper()
	w := openStack{neutron.New(GinkgoTB(), neutron.Options{Host: cluster.Host})}
	clouds := fmt.Sprintf("clouds: {openstack: {auth_type: none, auth: {endpoint: %q}}}", w.URL())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tenure-neutron", Namespace: "tenure-system"}, StringData: map[string]string{"clouds.yaml": clouds}}
	Expect(kube.Create(ctx, secret)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(kube.Delete(ctx, secret)).To(Succeed()) })
	for _, args := range [][]string{{"rollout", "restart", "deployment/tenure-controller"}, {"rollout", "status", "--timeout=3m", "deployment/tenure-controller"}} {
		_, err := c.Kubectl(ctx, "", append([]string{"--namespace=tenure-system"}, args...)...)
		Expect(err).NotTo(HaveOccurred())
	}
	return w
}

// subnet makes a network with a subnet, and returns the subnet's ID.
func (w openStack) subnet(cidr string, version int) string {
	GinkgoHelper()
	return w.Network(GinkgoTB(), neutron.Network{Subnets: []neutron.Subnet{{CIDR: cidr, IPVersion: version}}}).Subnets[0].ID
}

// ours returns the ports that Tenure has made.
func (w openStack) ours() (all []neutron.Port) {
	for _, p := range w.Ports(GinkgoTB(), "") {
		if strings.HasPrefix(p.DeviceOwner, "tenure:") {
			all = append(all, p)
		}
	}
	return all
}

// expectPorts checks that each VIF of the pods has a port of its own with its addresses, and its
// interface the port's, and that there are no others.
func (w openStack) expectPorts(ctx context.Context, s site, pods []*corev1.Pod) {
	GinkgoHelper()
	Eventually(func() int { return len(w.ours()) }).Should(Equal(2*len(pods)), "ports for the interfaces of %d pods", len(pods))
	of := map[string]neutron.Port{}
	for _, p := range w.ours() {
		of[p.ID] = p
	}
	taken := map[netip.Addr]string{}
	for _, p := range pods {
		has := addresses(ctx, p)
		decided := s.decided(p)
		Expect(decided).To(HaveLen(2), "the VIFs of %s", p.Name)
		for name, v := range decided {
			port, ok := of[v.Port]
			Expect(ok).To(BeTrue(), "%s of %s has port %q", name, p.Name, v.Port)
			Expect(port.DeviceID).To(Equal(v.ClaimUID))
			Expect(port.MAC).To(Equal(v.MAC))
			Expect(status(p)[name].Mac).To(Equal(port.MAC), "%s of %s", name, p.Name)
			Expect(port.FixedIPs).To(HaveLen(1))
			Expect(has[name].Addr().String()).To(Equal(port.FixedIPs[0]["ip_address"]), "%s of %s", name, p.Name)
			Expect(taken).NotTo(HaveKey(has[name].Addr()), "%s has the address of another", p.Name)
			taken[has[name].Addr()] = p.Name
		}
	}
}

// withoutControllers ends the controllers, and returns what has them back, which is done when the
// spec ends as well.
func withoutControllers(ctx context.Context) (back func(context.Context)) {
	GinkgoHelper()
	controller := []string{"--namespace=tenure-system", "deployment/tenure-controller"}
	do := func(ctx context.Context, args ...string) {
		GinkgoHelper()
		_, err := c.Kubectl(ctx, "", append(args, controller...)...)
		Expect(err).NotTo(HaveOccurred())
	}
	back = func(ctx context.Context) { do(ctx, "scale", "--replicas=2") }
	DeferCleanup(func(ctx context.Context) {
		back(ctx)
		do(ctx, "rollout", "status", "--timeout=3m")
	})
	do(ctx, "scale", "--replicas=0")
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(kube.List(ctx, &pods, client.InNamespace("tenure-system"), client.MatchingLabels{"app.kubernetes.io/name": "tenure-controller"})).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	return back
}

// killControllers deletes the controllers' pods without notice.
func killControllers(ctx context.Context) {
	GinkgoHelper()
	Expect(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("tenure-system"),
		client.MatchingLabels{"app.kubernetes.io/name": "tenure-controller"}, client.GracePeriodSeconds(0))).To(Succeed())
}
