package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var _ = Describe("The pods", func() {
	var s site
	BeforeEach(func(ctx context.Context) { s = newSite(ctx) })

	It("WB5, WB7 of a Deployment that is scaled up and down are what is recorded, to the last and to none", func(ctx context.Context) {
		s.network(ctx, "lan", "10.40.0.0/28", acrossNodes) // 14 usable
		s.deployment(ctx, "web", "lan", 0)
		const capacity = 14
		for _, replicas := range []int{5, capacity, 4, 9, 0} {
			s.kubectl(ctx, "scale", "deployment/web", fmt.Sprint("--replicas=", replicas))
			has := shown(s.settled(ctx, "web", replicas)...)
			Eventually(attachments).Should(Equal(replicas))
			if replicas == capacity || replicas == 0 { // it is published twice a minute
				Eventually(func() ([]netip.Addr, error) { return s.recorded(ctx, "lan") }).Should(
					ConsistOf(slices.Collect(maps.Values(has))), "of %d replicas", replicas)
			}
		}
	})

	It("of a Deployment are replaced in a pool that has one address more", func(ctx context.Context) {
		s.network(ctx, "lan", "10.41.0.0/29", acrossNodes) // 6 usable
		s.deployment(ctx, "web", "lan", 5)
		before := shown(s.settled(ctx, "web", 5)...)
		s.kubectl(ctx, "rollout", "restart", "deployment/web")
		s.kubectl(ctx, "rollout", "status", "--timeout=3m", "deployment/web")
		after := shown(s.settled(ctx, "web", 5)...)
		for name := range before {
			Expect(after).NotTo(HaveKey(name))
		}
	})

	It("WB6 of a StatefulSet have addresses of their own, and with a claim the same one for good", func(ctx context.Context) {
		s.network(ctx, "lan", "10.42.0.0/24", acrossNodes)
		s.claim(ctx, "db", "lan")
		claimed, _, _ := strings.Cut(s.granted(ctx, "db"), "/")
		s.statefulSet(ctx, "many", "lan", 3)
		s.statefulSet(ctx, "one", `[{"name": "lan", "ipam-claim-reference": "db"}]`, 1)
		has := shown(append(s.settled(ctx, "many", 3), s.settled(ctx, "one", 1)...)...)
		Expect(slices.Sorted(maps.Keys(has))).To(Equal([]string{"many-0", "many-1", "many-2", "one-0"}))
		Expect(has["one-0"].String()).To(Equal(claimed))
		again := [][]string{{"delete", "pod", "one-0"}, {"rollout", "restart", "statefulset/one"}, {"scale", "statefulset/one", "--replicas=0"}}
		for _, args := range again {
			uid := s.settled(ctx, "one", 1)[0].UID
			s.kubectl(ctx, args...)
			if args[0] == "scale" {
				s.settled(ctx, "one", 0)
				s.kubectl(ctx, "scale", "statefulset/one", "--replicas=1")
			}
			Eventually(func(g Gomega) {
				pods := s.look(ctx, g, "one", 1)
				g.Expect(pods[0].UID).NotTo(Equal(uid))
				g.Expect(status(pods[0])["net1"].IPs).To(Equal([]string{claimed}))
			}).Should(Succeed(), "after %v", args)
		}
	})
})

// kubectl runs kubectl in the site's namespace.
func (s site) kubectl(ctx context.Context, args ...string) {
	GinkgoHelper()
	_, err := c.Kubectl(ctx, "", append([]string{"-n", s.namespace}, args...)...)
	Expect(err).NotTo(HaveOccurred())
}

// template is that of a workload's pods, which run where the scheduler puts them.
func (s site) template(name, networks string) corev1.PodTemplateSpec {
	p := s.pod("", "", networks)
	p.Spec.Tolerations = nil
	p.Spec.TerminationGracePeriodSeconds = nil // none of theirs waits
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: p.Annotations}, Spec: p.Spec}
}

func (s site) deployment(ctx context.Context, name, networks string, replicas int32) {
	Expect(kube.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Template: s.template(name, networks), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	})).To(Succeed())
}

func (s site) statefulSet(ctx context.Context, name, networks string, replicas int32) {
	Expect(kube.Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Template: s.template(name, networks), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			PodManagementPolicy: appsv1.ParallelPodManagement,
		},
	})).To(Succeed())
}

// settled waits until a workload has n pods, all of which run and stay, and returns
// them.
func (s site) settled(ctx context.Context, name string, n int) (pods []*corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) { pods = s.look(ctx, g, name, n) }).Should(Succeed(), "%s has %d pods that run", name, n)
	return pods
}

// look checks that a workload has n pods, all of which run and stay.
func (s site) look(ctx context.Context, g Gomega, name string, n int) (pods []*corev1.Pod) {
	var list corev1.PodList
	g.Expect(kube.List(ctx, &list, client.InNamespace(s.namespace), client.MatchingLabels{"app": name})).To(Succeed())
	g.Expect(list.Items).To(HaveLen(n))
	for i := range list.Items {
		p := &list.Items[i]
		g.Expect(p.DeletionTimestamp).To(BeNil())
		expectRunning(g, p)
		pods = append(pods, p)
	}
	return pods
}

// recorded returns the addresses of a network that are in use, as the leases of its pool
// say: what nodes have published of their blocks, and what was granted of the cluster's.
func (s site) recorded(ctx context.Context, network string) (used []netip.Addr, err error) {
	var leases v1alpha1.IPLeaseList
	if err := kube.List(ctx, &leases); err != nil {
		return nil, err
	}
	for _, l := range leases.Items {
		if l.Spec.Pool != s.namespace+"-"+network {
			continue
		}
		for _, text := range l.Status.Allocations {
			address, _, _ := strings.Cut(text, " ")
			used = append(used, netip.MustParseAddr(address))
		}
		for _, g := range l.Spec.Grants {
			used = append(used, netip.MustParseAddr(g.Address))
		}
	}
	return used, nil
}

// attachments returns how many interfaces have addresses, as the agents say.
func attachments() (sum int, err error) {
	for _, n := range c.Nodes {
		value, err := metric(n, agentMetrics, "tenure_agent_attachments")
		if err != nil {
			return 0, err
		}
		sum += int(value)
	}
	return sum, nil
}
