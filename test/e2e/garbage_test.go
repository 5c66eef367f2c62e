package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
)

var _ = Describe("The agent", func() {
	It("frees the address of a pod that its runtime has lost, for one that waits for it, and counts that", inProof, func(ctx context.Context) {
		settle(ctx) // all that the agent frees is counted
		s := newSite(ctx)
		s.network(ctx, "tiny", "10.64.0.0/30", acrossNodes) // 2 usable
		n := c.Nodes[0]
		lost, alive := s.start(ctx, "lost", n.Name, "tiny"), s.start(ctx, "alive", n.Name, "tiny")
		awaitRunning(ctx, lost, alive)
		had := apart(ctx, lost, alive)
		waits := s.start(ctx, "waits", c.Nodes[1].Name, "tiny")
		Eventually(func() ([]string, error) { return told(ctx, waits, "FailedCreatePodSandBox") }).Should(ContainElement(ContainSubstring("exhausted")))
		const freed = "tenure_agent_garbage_freed_total"
		before, err := metric(n, agentMetrics, freed)
		Expect(err).NotTo(HaveOccurred(), "it says what it has freed from the start")

		sandbox := lose(ctx, n, lost)
		DeferCleanup(func(ctx context.Context) { detachLate(ctx, n, lost, sandbox) })
		awaitRunning(ctx, waits)
		Eventually(func() (float64, error) { return metric(n, agentMetrics, freed) }).Should(Equal(before + 1))
		has := apart(ctx, alive, waits)
		Expect(has).To(Equal(map[string]netip.Prefix{"alive": had["alive"], "waits": had["lost"]}))
	})
})

// lose has a pod end in such a way that nobody will ever detach it: its kubelet is away,
// its runtime forgets it, and the cluster does. It returns the pod's sandbox.
func lose(ctx context.Context, n *cluster.Node, p *corev1.Pod) (sandbox string) {
	GinkgoHelper()
	ctr := func(args ...string) string {
		GinkgoHelper()
		out, err := n.Run(ctx, "ctr", append([]string{"--namespace", "k8s.io"}, args...)...)
		Expect(err).NotTo(HaveOccurred())
		return string(out)
	}
	Expect(n.Kubelet.Kill()).To(Succeed())
	DeferCleanup(n.Kubelet.Start) // also where this ends before it does so
	sandbox = sandboxes(ctx, p)[0]
	netns := netnsOf(ctx, n, sandbox)
	for id := range strings.FieldsSeq(ctr("containers", "list", "--quiet", fmt.Sprintf(`labels."io.kubernetes.pod.uid"==%s,labels."io.cri-containerd.kind"==container`, p.UID))) {
		if _, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "delete", "--force", id); err != nil {
			Expect(err).To(MatchError(ContainSubstring("not found")), "containerd sees that the task has ended, too, and may be first to delete it")
		}
		ctr("containers", "delete", id)
	}
	ctr("sandboxes", "remove", "--force", sandbox)
	Expect(n.Containerd.Restart(ctx)).To(Succeed()) // what it has in memory goes too
	Expect(sandboxes(ctx, p)).To(BeEmpty())
	Expect(n.Do(func() error {
		if err := unix.Unmount(netns, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", netns, err)
		}
		return os.Remove(netns)
	})).To(Succeed())
	Expect(kube.Delete(ctx, p, client.GracePeriodSeconds(0))).To(Succeed())
	Expect(n.Kubelet.Start(ctx)).To(Succeed())
	return sandbox
}

// detachLate is the DEL that never came: of what is not Tenure's, the address of the
// default network, nobody else takes care.
func detachLate(ctx context.Context, n *cluster.Node, p *corev1.Pod, sandbox string) {
	GinkgoHelper()
	Expect(n.Do(func() error {
		text, err := os.ReadFile("/etc/cni/net.d/00-tenure.conflist")
		if err != nil {
			return err
		}
		list, err := libcni.NetworkConfFromBytes(text)
		if err != nil {
			return err
		}
		args := [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name}, {"K8S_POD_UID", string(p.UID)}}
		runtime := libcni.NewCNIConfigWithCacheDir([]string{"/opt/cni/bin"}, "/var/lib/cni", nil)
		if err := runtime.DelNetworkList(ctx, list, &libcni.RuntimeConf{ContainerID: sandbox, IfName: "eth0", Args: args}); err != nil {
			return err
		}
		return os.Remove(filepath.Join(resultsDir, "cni-loopback-"+sandbox+"-lo"))
	})).To(Succeed())
}
