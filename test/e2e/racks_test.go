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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
)

// rackLabel is the one that says in which rack a node is.
const rackLabel = "test.tenure.dev/rack"

var _ = Describe("Racks", func() {
	It("have a subnet each, for pods and claims; a full one keeps its own pods waiting alone, and a node that is put into another gives of that", func(ctx context.Context) {
		s := newSite(ctx)
		a, b := c.Nodes[0].Name, c.Nodes[1].Name
		ofA, ofB := netip.MustParsePrefix("10.88.0.0/29"), netip.MustParsePrefix("10.89.0.0/24")
		relabel(ctx, a, "=a")
		relabel(ctx, b, "=b")
		DeferCleanup(func(ctx context.Context) { relabel(ctx, a, "-"); relabel(ctx, b, "-") })
		s.racks(ctx, "fabric", ofA, ofB)
		s.define(ctx, "fabric", `{"type": "tenure", "pool": "`+s.namespace+`-fabric"}`)

		By("an address and a route of the node's rack")
		first, other := s.start(ctx, "first", a, "fabric"), s.start(ctx, "other", b, "fabric")
		awaitRunning(ctx, first, other)
		for p, of := range map[*corev1.Pod]netip.Prefix{first: ofA, other: ofB} {
			Expect(addresses(ctx, p)["net1"].Masked()).To(Equal(of), "what %s has", p.Name)
			routes, err := c.Kubectl(ctx, "", "exec", "-n", p.Namespace, p.Name, "--", "/pod", "routes")
			Expect(err).NotTo(HaveOccurred())
			Expect(routes).To(ContainSubstring("198.18.0.0/15 via %v dev net1", of.Addr().Next()))
		}

		By("claims of the racks that their pods come to, and one of a rack by its annotation")
		s.statefulSet(ctx, "db", "fabric", 2, map[string]string{workload.AnnotationClaims: "fabric"})
		inA := 2 // of five: the first pod, and the claim that follows
		for name, has := range shown(s.settled(ctx, "db", 2)...) {
			Expect(s.granted(ctx, name+".fabric")).To(HavePrefix(has.String() + "/"))
			if ofA.Contains(has) {
				inA++
			}
		}
		Expect(kube.Create(ctx, &ipamclaims.IPAMClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "named", Annotations: map[string]string{workload.AnnotationTopology: rackLabel + "=a"}},
			Spec:       ipamclaims.IPAMClaimSpec{Network: s.namespace + "-fabric"},
		})).To(Succeed())
		Expect(ofA.Contains(netip.MustParsePrefix(s.granted(ctx, "named")).Addr())).To(BeTrue())

		By("a full rack beside one with room, and a claim of another rack")
		var fill []*corev1.Pod
		for i := inA; i < 5; i++ {
			fill = append(fill, s.start(ctx, fmt.Sprint("fill-", i), a, "fabric"))
		}
		awaitRunning(ctx, fill...)
		full, wrong := s.start(ctx, "full", a, "fabric"), s.start(ctx, "wrong", b, `[{"name": "fabric", "ipam-claim-reference": "named"}]`)
		Expect(addresses(ctx, s.run(ctx, "room", b, "fabric"))["net1"].Masked()).To(Equal(ofB))
		for p, why := range map[*corev1.Pod]string{
			full:  "is exhausted for nodes with " + rackLabel + "=a: 5 of 5 in use",
			wrong: "whose range is for nodes with " + rackLabel + "=a, and this node has " + rackLabel + "=b: schedule the pod where the claim's addresses are",
		} {
			Eventually(func() ([]string, error) { return told(ctx, p, "FailedCreatePodSandBox") }).Should(ContainElement(ContainSubstring(why)), p.Name)
		}
		stop(ctx, full)

		By("a node that is put into the other rack")
		relabel(ctx, a, "=b")
		Eventually(func() []v1alpha1.SelectorStatus { return s.pool(ctx, "fabric").Status.Selectors }).Should(
			ContainElement(And(HaveField("Selector", rackLabel+"=b"), HaveField("Nodes", int32(2)))))
		Expect(addresses(ctx, s.run(ctx, "moved", a, "fabric"))["net1"].Masked()).To(Equal(ofB))
		Expect(addresses(ctx, first)["net1"].Masked()).To(Equal(ofA), "a pod keeps what it has")
	})
})

// racks makes a pool that has a range, a gateway and a route for the nodes of each of two racks.
func (s site) racks(ctx context.Context, name string, ofA, ofB netip.Prefix) {
	GinkgoHelper()
	s.apply(ctx, fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %[1]s-%[7]s}
spec:
  ranges:
  - {cidr: %[2]v, gateway: %[3]v, nodeSelector: {matchLabels: {%[6]s: a}}}
  - {cidr: %[4]v, gateway: %[5]v, nodeSelector: {matchLabels: {%[6]s: b}}}
  routes:
  - {dst: 198.18.0.0/15}
`, s.namespace, ofA, ofA.Addr().Next(), ofB, ofB.Addr().Next(), rackLabel, name))
}

// relabel gives a node another rack, "=a", or takes the label away, "-".
func relabel(ctx context.Context, node, rack string) {
	GinkgoHelper()
	_, err := c.Kubectl(ctx, "", strings.Fields("label --overwrite node "+node+" "+rackLabel+rack)...)
	Expect(err).NotTo(HaveOccurred())
}
