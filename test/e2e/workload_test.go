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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
)

var _ = Describe("The pods", func() {
	var s site
	BeforeEach(func(ctx context.Context) { s = newSite(ctx) })

	It("of a Deployment that is scaled up and down are what is recorded, to the last and to none", inProof, func(ctx context.Context) {
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

	It("of a StatefulSet have addresses of their own, and with a claim the same one for good", func(ctx context.Context) {
		s.network(ctx, "lan", "10.42.0.0/24", acrossNodes)
		s.claim(ctx, "db", "lan")
		claimed, _, _ := strings.Cut(s.granted(ctx, "db"), "/")
		s.statefulSet(ctx, "many", "lan", 3, nil)
		s.statefulSet(ctx, "one", `[{"name": "lan", "ipam-claim-reference": "db"}]`, 1, nil)
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

	It("of a StatefulSet that asks for claims keep their addresses, whatever happens to them", onPlatforms, func(ctx context.Context) {
		const n = 4
		s.network(ctx, "lan", "10.66.0.0/24", acrossNodes)
		asks := map[string]string{workload.AnnotationClaims: "lan", workload.AnnotationRequested: "10.66.0.10-10.66.0.13"}
		s.statefulSet(ctx, "db", "lan", n, asks)
		want := map[string]netip.Addr{}
		for i, at := 0, netip.MustParseAddr("10.66.0.10"); i < n; i, at = i+1, at.Next() {
			want[fmt.Sprint("db-", i)] = at
			Expect(s.granted(ctx, fmt.Sprintf("db-%d.lan", i))).To(Equal(netip.PrefixFrom(at, 24).String()))
		}
		pods := s.settled(ctx, "db", n)
		Expect(shown(pods...)).To(Equal(want))
		other := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName != pods[0].Spec.NodeName })
		Expect(other).To(BeNumerically(">", 0), "they run on both nodes")
		drained := pods[other].Spec.NodeName

		for _, step := range []struct {
			name string
			do   func()
			gone []string // pods that are replaced
		}{
			{name: "a rolling update", do: func() { s.kubectl(ctx, "rollout", "restart", "statefulset/db") }, gone: []string{"db-0", "db-1", "db-2", "db-3"}},
			{name: "scaling down and up", do: func() {
				s.kubectl(ctx, "scale", "statefulset/db", "--replicas=1")
				s.settled(ctx, "db", 1)
				s.kubectl(ctx, "scale", "statefulset/db", fmt.Sprint("--replicas=", n))
			}, gone: []string{"db-1", "db-2", "db-3"}},
			{name: "a kill by force", do: func() { s.kubectl(ctx, "delete", "pod", "db-0", "--grace-period=0", "--force") }, gone: []string{"db-0"}},
			{name: "a drain", do: func() {
				DeferCleanup(func(ctx context.Context) error {
					_, err := c.Kubectl(ctx, "", "uncordon", drained)
					return err
				})
				_, err := c.Kubectl(ctx, "", "drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m")
				Expect(err).NotTo(HaveOccurred())
			}},
			{name: "its deletion, and another of its name", do: func() {
				s.kubectl(ctx, "delete", "statefulset/db")
				s.settled(ctx, "db", 0)
				s.statefulSet(ctx, "db", "lan", n, map[string]string{workload.AnnotationClaims: "lan"})
			}, gone: []string{"db-0", "db-1", "db-2", "db-3"}},
		} {
			By(step.name)
			before := map[string]types.UID{}
			for _, p := range pods {
				before[p.Name] = p.UID
			}
			step.do()
			Eventually(func(g Gomega) {
				pods = s.look(ctx, g, "db", n)
				for _, p := range pods {
					if slices.Contains(step.gone, p.Name) {
						g.Expect(p.UID).NotTo(Equal(before[p.Name]))
					}
				}
			}).Should(Succeed(), "%s", step.name)
			Expect(shown(pods...)).To(Equal(want), "%s", step.name)
		}
		for _, p := range pods[1:] {
			answer, err := ask(ctx, pods[0], want[p.Name])
			Expect(err).NotTo(HaveOccurred())
			Expect(answer).To(ContainSubstring("net1 " + want[p.Name].String()))
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

// statefulSet makes one whose template has these annotations, too.
func (s site) statefulSet(ctx context.Context, name, networks string, replicas int32, annotations map[string]string) {
	template := s.template(name, networks)
	maps.Copy(template.Annotations, annotations)
	Expect(kube.Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Template: template, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			PodManagementPolicy: appsv1.ParallelPodManagement, ServiceName: name,
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
