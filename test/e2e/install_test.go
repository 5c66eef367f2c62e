package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/process"
)

var _ = Describe("An installation from deploy/", func() {
	It("puts the plugins and the configuration on every node", onPlatforms, func(ctx context.Context) {
		for _, n := range c.Nodes {
			for _, file := range []string{"/opt/cni/bin/tenure", "/opt/cni/bin/tenure-attach", "/etc/cni/net.d/00-tenure.conflist"} {
				info, err := os.Stat(n.Path(file))
				Expect(err).NotTo(HaveOccurred())
				Expect(info.Mode().IsRegular()).To(BeTrue())
			}
			left, err := filepath.Glob(n.Path("/opt/cni/bin/.*.new"))
			Expect(err).NotTo(HaveOccurred())
			Expect(left).To(BeEmpty())
		}
	})

	It("is not removed while a pod has its address, then is, nodes and all, as often as that is broken off, and comes again", inProof, onPlatforms, func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { // as the other specs have it
			Expect(c.Upgrade(ctx, cluster.ImageTag)).To(Succeed())
		})
		settle(ctx)
		s := newSite(ctx)
		s.network(ctx, "lan", "10.62.0.0/30", acrossNodes) // a small pool's leases come back at once
		// The controller makes its pool again as long as it runs.
		_, err := c.Kubectl(ctx, fmt.Sprintf(whereabouts, s.namespace), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		pods := []*corev1.Pod{s.start(ctx, "web", c.Nodes[0].Name, "lan"), s.start(ctx, "inline", c.Nodes[1].Name, "inline")}
		awaitRunning(ctx, pods...)
		t := newInstaller()

		said, err := t.run(ctx, "uninstall")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring("Nothing was removed"), ContainSubstring(s.namespace+"/web"), ContainSubstring(s.namespace+"/inline")))
		for _, p := range pods {
			stop(ctx, p)
		}
		// What a run did after it said this, and before it was killed, the next one finds done.
		for _, at := range [][]string{
			{"ending tenure-controller"}, {"ending tenured", "of 2 nodes are clean"}, {"of 2 nodes are clean", "This removes "}, {"This removes "}, {" deleted"},
		} {
			t.breakOff(ctx, at, "uninstall")
		}
		said, err = t.run(ctx, "uninstall")
		Expect(err).NotTo(HaveOccurred(), said)
		t.expectRemoved(ctx)
		expectClean(c.Nodes...)
		said, err = t.run(ctx, "uninstall")
		Expect(err).NotTo(HaveOccurred(), said)
		Expect(said).To(ContainSubstring("Tenure is not installed"))

		said, err = t.run(ctx, "install", append(installedAs, "ATTACH=yes")...)
		Expect(err).NotTo(HaveOccurred(), said)
		stop(ctx, s.run(ctx, "again", c.Nodes[1].Name, "inline"))
		said, err = t.run(ctx, "install", installedAs...)
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("keep attach.enabled=true"))
		// Neither Helm nor kubectl removes anything while Tenure is on the nodes.
		before, err := c.Kubectl(ctx, "", "get", "crd,all", "--namespace", "tenure-system", "--output=name")
		Expect(err).NotTo(HaveOccurred())
		said, err = t.helm(ctx, "uninstall", "tenure", "--namespace", "tenure-system")
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("Run kubectl tenure uninstall first"))
		Expect(c.Kubectl(ctx, "", "get", "crd,all", "--namespace", "tenure-system", "--output=name")).To(Equal(before))
		for _, what := range []string{"daemonset/tenured", "namespace/tenure-system", "crd/ippools.tenure.dev"} {
			_, err = c.Kubectl(ctx, "", "--namespace", "tenure-system", "delete", what)
			Expect(err).To(MatchError(ContainSubstring("Run kubectl tenure uninstall first")))
		}
	})

	It("is removed by force while pods and a claim have addresses, but for a node that is dead, which is cleaned when it is back", inProof, func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { // as the other specs have it
			Expect(c.Upgrade(ctx, cluster.ImageTag)).To(Succeed())
		})
		live, dead := c.Nodes[0], c.Nodes[1]
		settle(ctx)
		s := newSite(ctx)
		s.network(ctx, "lan", "10.65.0.0/29", acrossNodes)
		s.granted(ctx, s.claim(ctx, "db", "lan"))
		there, lost := s.start(ctx, "there", live.Name, "lan"), s.start(ctx, "lost", dead.Name, "lan")
		awaitRunning(ctx, there, lost)
		had := addresses(ctx, there)["net1"]
		t := newInstaller()
		for _, service := range []*process.Process{dead.Kubelet, dead.Containerd} {
			Expect(service.Kill()).To(Succeed())
			DeferCleanup(service.Start) // the runtime first
		}
		Eventually(func() (corev1.ConditionStatus, error) { return readiness(ctx, dead) }).Should(Equal(corev1.ConditionUnknown))

		uses := []types.GomegaMatcher{
			ContainSubstring("claim " + s.namespace + "/db has "), ContainSubstring("pod " + s.namespace + "/there"), ContainSubstring("pod " + s.namespace + "/lost"),
		}
		said, err := t.run(ctx, "uninstall")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(append(uses, ContainSubstring("Nothing was removed"))...))
		Expect(kube.Get(ctx, client.ObjectKey{Name: s.namespace + "-lan"}, &v1alpha1.IPPool{})).To(Succeed())
		said, err = t.run(ctx, "uninstall", "FORCE=1", "WAIT=30s")
		Expect(err).NotTo(HaveOccurred(), said)
		Expect(said).To(And(append(uses, ContainSubstring("not clean: "+dead.Name+": the node is not Ready"), ContainSubstring("When it is back, install"))...))
		t.expectRemoved(ctx)
		expectClean(live)
		Expect(dead.Path("/etc/cni/net.d/00-tenure.conflist")).To(BeARegularFile())

		// Who has an address keeps it, others do without, and all of them end.
		claim := &ipamclaims.IPAMClaim{}
		Expect(kube.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "db"}, claim)).To(Succeed())
		Expect(claim.Status.IPs).To(HaveLen(1))
		Expect(addresses(ctx, there)["net1"]).To(Equal(had))
		plain := s.start(ctx, "plain", live.Name, "")
		Eventually(func() (corev1.PodPhase, error) {
			err := kube.Get(ctx, client.ObjectKeyFromObject(plain), plain)
			return plain.Status.Phase, err
		}).Should(Equal(corev1.PodRunning))
		record := live.Path(filepath.Join(resultsDir, "tenure-"+sandboxes(ctx, there)[0]+"-eth0"))
		stop(ctx, there)
		stop(ctx, plain)
		Expect(os.Remove(record)).To(Succeed(), "what the runtime keeps of a pod that outlives tenure-attach")

		// What was said to be done when the node is back.
		Expect(dead.Containerd.Start(ctx)).To(Succeed())
		Expect(dead.Kubelet.Start(ctx)).To(Succeed())
		said, err = t.run(ctx, "install", append(installedAs, "ATTACH=yes")...)
		Expect(err).NotTo(HaveOccurred(), said)
		stop(ctx, lost)
		said, err = t.run(ctx, "uninstall")
		Expect(err).NotTo(HaveOccurred(), said)
		t.expectRemoved(ctx)
		expectClean(c.Nodes...)
	})
})

// readiness returns what a node's condition Ready says.
func readiness(ctx context.Context, n *cluster.Node) (corev1.ConditionStatus, error) {
	var node corev1.Node
	err := kube.Get(ctx, client.ObjectKey{Name: n.Name}, &node)
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status, err
		}
	}
	return "", err
}

// whereabouts is a network in a namespace whose addresses are described inline.
const whereabouts = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: inline, namespace: %[1]s}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "%[1]s-inline", ` + acrossNodes + `,
     "ipam": {"type": "tenure", "range": "10.63.0.0/30", "network_name": "%[1]s-inline"}}
`
