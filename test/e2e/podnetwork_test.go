package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var _ = Describe("PodNetworks", func() {
	var s site
	BeforeEach(func(ctx context.Context) { s = newSite(ctx) })

	It("P3, Q1, W1, W5 attach pods on both nodes, with the namespace's own parameters and the default routes that are asked for", onPlatforms, func(ctx context.Context) {
		four := s.podNetwork(ctx, "four", "{cidr: 10.80.0.0/24, gateway: 10.80.0.1}")
		six := s.podNetwork(ctx, "six", "{cidr: 'fd00:80::/64', gateway: 'fd00:80::1'}")
		s.apply(ctx, fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: InterfaceParameters
metadata: {name: small, namespace: %[1]s}
spec: {macvlan: {}, mtu: 1400}
---
apiVersion: tenure.dev/v1alpha1
kind: PodNetworkAttachment
metadata: {name: mine, namespace: %[1]s}
spec:
  podNetworkName: %[2]s
  parametersRefs: [{group: tenure.dev, kind: InterfaceParameters, name: small}]
`, s.namespace, six))
		list := fmt.Sprintf(`[{"podNetworkName": "default"}, {"podNetworkName": %q, "interfaceName": "net1", "isDefaultGW4": true},
			{"podNetworkAttachmentName": "mine", "isDefaultGW6": true}]`, four)
		pods := []*corev1.Pod{s.lists(ctx, "a", c.Nodes[0].Name, list), s.lists(ctx, "b", c.Nodes[1].Name, list)}
		awaitRunning(ctx, pods...)
		for _, p := range pods {
			has := addresses(ctx, p)
			Expect(has).To(HaveLen(3), "the interfaces of %s", p.Name)
			var ips []podnetwork.PodIP
			Expect(json.Unmarshal([]byte(p.Annotations[podnetwork.AnnotationIPs]), &ips)).To(Succeed())
			Expect(ips).To(ContainElements(
				podnetwork.PodIP{IP: netip.MustParseAddr(p.Status.PodIP), Network: "default", Interface: "eth0"},
				podnetwork.PodIP{IP: has["net1"].Addr(), Network: four, Interface: "net1"},
				podnetwork.PodIP{IP: has["net2"].Addr(), Network: six, Interface: "net2"},
			))
			Expect(status(p)["net1"].Gateway).To(Equal([]string{"10.80.0.1"}))
			Expect(status(p)["net2"].Gateway).To(Equal([]string{"fd00:80::1"}))
			Expect(status(p)["eth0"].Gateway).To(BeEmpty())
		}
		answer, err := ask(ctx, pods[0], addresses(ctx, pods[1])["net1"].Addr())
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ContainSubstring("net1 " + addresses(ctx, pods[1])["net1"].String()))
	})

	It("P8, P9, P11, W4 have pods wait that list one which is disabled, also while a kubelet is restarted, and stay while a pod lists them", func(ctx context.Context) {
		name := s.podNetwork(ctx, "lan", "{cidr: 10.81.0.0/24}")
		list := fmt.Sprintf(`[{"podNetworkName": "default"}, {"podNetworkName": %q}]`, name)
		first := s.lists(ctx, "first", "", list)
		awaitRunning(ctx, first)
		s.enable(ctx, name, false)
		second := s.lists(ctx, "second", "", list)
		third := s.lists(ctx, "third", c.Nodes[0].Name, list) // by nodeName: no gate
		Eventually(func() ([]string, error) { return told(ctx, third, "FailedCreatePodSandBox") }).Should(
			ContainElement(ContainSubstring("PodNetwork " + name + " is disabled")))
		Consistently(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(second), second)).To(Succeed())
			g.Expect(second.Status.Phase).To(Equal(corev1.PodPending))
		}).WithTimeout(3 * time.Second).Should(Succeed())
		kubelet := c.Nodes[0].Kubelet // it goes on with the ADD of the third
		Expect(kubelet.Kill()).To(Succeed())
		DeferCleanup(kubelet.Start)
		Expect(kubelet.Start(ctx)).To(Succeed())
		s.enable(ctx, name, true)
		awaitRunning(ctx, second, third)

		network := &v1alpha1.PodNetwork{}
		network.Name = name
		Expect(kube.Delete(ctx, network)).To(Succeed())
		stop(ctx, second)
		stop(ctx, third)
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(network), network)).To(Succeed(), "a pod lists it")
		stop(ctx, first)
		Eventually(func() bool {
			return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(network), network))
		}).Should(BeTrue(), "PodNetwork %s is gone", name)
	})
	It("W2, W4 refuse a wrong list at once, and hold pods back until their networks are there, also while no controller runs", func(ctx context.Context) {
		wrong := s.pod("wrong", "", "")
		wrong.Annotations = map[string]string{podnetwork.AnnotationNetworks: `[{"podNetworkname": "lan"}]`}
		Eventually(func() error { // a controller that is busy may not answer in time, and the pod is made
			p := wrong.DeepCopy()
			err := kube.Create(ctx, p)
			if err == nil {
				stop(ctx, p)
			}
			return err
		}).Should(MatchError(ContainSubstring(`key "podNetworkname" does not exist`)))

		list := fmt.Sprintf(`[{"podNetworkName": "default"}, {"podNetworkName": %q}]`, s.namespace+"-lan")
		first := s.lists(ctx, "first", "", list)
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
			g.Expect(first.Status.Conditions).To(ContainElement(And(
				HaveField("Type", Equal(corev1.PodConditionType("tenure.dev/NetworksReady"))), HaveField("Status", Equal(corev1.ConditionFalse)),
				HaveField("Message", ContainSubstring("PodNetwork "+s.namespace+"-lan does not exist")))))
		}).Should(Succeed())

		back := withoutControllers(ctx)
		second := s.lists(ctx, "second", "", list)
		Expect(second.Spec.SchedulingGates).To(ConsistOf(corev1.PodSchedulingGate{Name: "tenure.dev/pod-networks"}))
		back(ctx)
		s.podNetwork(ctx, "lan", "{cidr: 10.82.0.0/24}")
		awaitRunning(ctx, first, second)
	})
})

// podNetwork makes a PodNetwork with a pool of one range, on the cable of all nodes, and waits
// until it is Ready. It returns its name.
func (s site) podNetwork(ctx context.Context, name, ranges string) string {
	GinkgoHelper()
	name = s.namespace + "-" + name
	s.apply(ctx, fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %[1]s}
spec: {ranges: [%[3]s]}
---
apiVersion: tenure.dev/v1alpha1
kind: InterfaceParameters
metadata: {name: %[1]s, namespace: %[2]s}
spec: {macvlan: {master: eth1, mode: bridge}}
---
apiVersion: tenure.dev/v1alpha1
kind: PodNetwork
metadata: {name: %[1]s}
spec:
  provider: tenure.dev/attach
  parametersRefs:
  - {group: tenure.dev, kind: InterfaceParameters, name: %[1]s, namespace: %[2]s}
  - {group: tenure.dev, kind: IPPool, name: %[1]s}
`, name, s.namespace, ranges))
	network := &v1alpha1.PodNetwork{}
	Eventually(func(g Gomega) {
		g.Expect(kube.Get(ctx, client.ObjectKey{Name: name}, network)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(network.Status.Conditions, v1alpha1.NetworkReady)).To(BeTrue(), "%v", network.Status.Conditions)
	}).Should(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, network))).To(Succeed()) })
	return name
}

// enable sets whether new pods can be attached to a PodNetwork.
func (s site) enable(ctx context.Context, name string, enabled bool) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"spec": {"enabled": %t}}`, enabled)
	_, err := c.Kubectl(ctx, "", "patch", "podnetwork", name, "--type=merge", "--patch", patch)
	Expect(err).NotTo(HaveOccurred())
}

// lists creates a pod that lists PodNetworks.
func (s site) lists(ctx context.Context, name, node, list string) *corev1.Pod {
	GinkgoHelper()
	p := s.pod(name, node, "")
	p.Annotations = map[string]string{podnetwork.AnnotationNetworks: strings.TrimSpace(list)}
	Expect(kube.Create(ctx, p)).To(Succeed())
	return p
}

// apply applies a manifest.
func (s site) apply(ctx context.Context, text string) {
	GinkgoHelper()
	_, err := c.Kubectl(ctx, text, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}
