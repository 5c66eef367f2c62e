package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A pool that is advertised", func() {
	It("has as many pods scheduled as it has addresses, the others as addresses come free, also after a node was rebooted, and what nodes have was zeroed, or dropped", inProof, func(ctx context.Context) {
		s := newSite(ctx)
		s.network(ctx, "lan", "10.36.0.0/28", acrossNodes)
		a := advertised{s, s.namespace + "-lan", 14}
		a.set(ctx, true)
		Eventually(a.expectPublished).WithContext(ctx).Should(Succeed(), "nodes publish what is free")

		for i := range 40 {
			p := s.pod(fmt.Sprintf("p%d", i), "", "lan")
			one := corev1.ResourceList{a.resource(): resource.MustParse("1")}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
			Expect(kube.Create(ctx, p)).To(Succeed())
		}
		all := a.awaitPods(ctx, "40 pods ask")
		Expect(all).To(HaveLen(40))
		Expect(failedOf(all)).To(BeEmpty())

		// A kubelet that starts on an empty disk may zero such resources. Whether it does hangs on
		// what it does first, so they are dropped here, and zeroed on the other node.
		node := c.Nodes[0]
		zeroed := func() int {
			said, err := os.ReadFile(node.Kubelet.Log)
			Expect(err).NotTo(HaveOccurred())
			return strings.Count(string(said), "Zero out resource capacity")
		}
		before := zeroed()
		Expect(node.Kubelet.Kill()).To(Succeed())
		_, err := node.Run(ctx, "rm", "-rf", "/var/lib/kubelet/device-plugins")
		Expect(err).NotTo(HaveOccurred())
		Expect(node.PowerOff()).To(Succeed())
		DeferCleanup(func(ctx context.Context) error { return c.Boot(ctx, node) })
		ended := 0
		for i := range all {
			if p := &all[i]; p.Spec.NodeName == c.Nodes[1].Name && ended < 3 {
				Expect(kube.Delete(ctx, p)).To(Succeed())
				ended++
			}
		}
		Expect(ended).To(Equal(3))
		Expect(c.Boot(ctx, node)).To(Succeed())
		a.overwrite(ctx, c.Nodes[0].Name, "null")
		a.overwrite(ctx, c.Nodes[1].Name, `"0"`)
		all = a.awaitPods(ctx, "three have ended meanwhile")
		rejected := failedOf(all)
		Expect(rejected).To(Or(BeEmpty(), HaveEach("OutOf"+string(a.resource()))))
		GinkgoWriter.Printf("the kubelet has zeroed what its node has %d times; kubelets have rejected %d pods\n", zeroed()-before, len(rejected))

		a.set(ctx, false)
		Eventually(func(g Gomega) {
			_, nodes := a.published(ctx, g)
			g.Expect(nodes).To(BeZero())
		}).WithTimeout(time.Minute).Should(Succeed(), "nodes publish nothing")
		Expect(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.namespace), client.GracePeriodSeconds(1))).To(Succeed())
	})
})

// advertised is a pool of a site, with so many addresses.
type advertised struct {
	site
	pool      string
	addresses int
}

func (a advertised) resource() corev1.ResourceName {
	return corev1.ResourceName("tenure.dev/" + a.pool)
}

// set says whether the pool is advertised.
func (a advertised) set(ctx context.Context, on bool) {
	GinkgoHelper()
	a.kubectl(ctx, "patch", "ippool", a.pool, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"advertise":%v}}`, on))
}

// overwrite has a node publish something else, as its kubelet may.
func (a advertised) overwrite(ctx context.Context, node, instead string) {
	GinkgoHelper()
	body := fmt.Sprintf(`{"status":{"capacity":{"%[1]s":%[2]s},"allocatable":{"%[1]s":%[2]s}}}`, a.resource(), instead)
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	Expect(kube.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)))).To(Succeed())
}

// published returns what nodes publish together, and how many of them something.
func (a advertised) published(ctx context.Context, g Gomega) (sum int64, nodes int) {
	for _, n := range c.Nodes {
		var o corev1.Node
		g.Expect(kube.Get(ctx, client.ObjectKey{Name: n.Name}, &o)).To(Succeed())
		if q, ok := o.Status.Allocatable[a.resource()]; ok {
			g.Expect(o.Status.Capacity[a.resource()]).To(Equal(q), "capacity of %s", n.Name)
			sum, nodes = sum+q.Value(), nodes+1
		}
	}
	return sum, nodes
}

// expectPublished checks that all nodes publish something, and together what the pool has.
func (a advertised) expectPublished(g Gomega, ctx context.Context) { //nolint:revive // Gomega wants it first
	sum, nodes := a.published(ctx, g)
	g.Expect([]int{int(sum), nodes}).To(Equal([]int{a.addresses, len(c.Nodes)}), "what nodes publish")
}

// awaitPods waits until all addresses are of pods that run, and all other pods wait for the
// scheduler. It returns the pods.
func (a advertised) awaitPods(ctx context.Context, what string) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Eventually(func(g Gomega) {
		a.expectPublished(g, ctx)
		g.Expect(kube.List(ctx, &list, client.InNamespace(a.namespace))).To(Succeed())
		running, waiting := 0, 0
		for i := range list.Items {
			p := &list.Items[i]
			switch {
			case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
			case p.Spec.NodeName == "":
				waiting++
				g.Expect(p.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodScheduled), HaveField("Reason", corev1.PodReasonUnschedulable),
					HaveField("Message", ContainSubstring("Insufficient "+string(a.resource()))))))
			default:
				g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning), p.Name)
				running++
			}
		}
		g.Expect(running).To(Equal(a.addresses), "pods that run; %d wait", waiting)
	}).WithPolling(500*time.Millisecond).Should(Succeed(), what)
	return list.Items
}

// failedOf returns the reasons for which pods have failed.
func failedOf(pods []corev1.Pod) (reasons []string) {
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodFailed {
			reasons = append(reasons, pods[i].Status.Reason)
		}
	}
	return reasons
}
