package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/node/missed"
	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/test/cluster"
)

// takeAway renames a node's configuration of tenure-attach as soon as it is there, as Cilium does,
// until stop is called.
func takeAway(n *cluster.Node) (stop func()) {
	conf := n.Path("/etc/cni/net.d/00-tenure.conflist")
	ctx, cancel := context.WithCancel(context.Background())
	var rival sync.WaitGroup
	rival.Go(func() {
		for ctx.Err() == nil {
			_ = os.Rename(conf, conf+".cilium_bak") // most often there is none
			time.Sleep(time.Millisecond)
		}
	})
	return func() {
		cancel()
		rival.Wait()
		_ = os.Remove(conf + ".cilium_bak") // there is none where it was stopped before
	}
}

// asked returns what kubectl tenure says, and its exit code.
func asked(ctx context.Context, m mover, args ...string) (said string, code int) {
	cmd := exec.CommandContext(ctx, m.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its code tells
	return out.String(), cmd.ProcessState.ExitCode()
}

var _ = Describe("Another program on a node", func() {
	It("takes the configuration of tenure-attach away: pods that run without their networks are told, and so is the node", func(ctx context.Context) {
		s, n, m := newSite(ctx), c.Nodes[0], newMover(ctx)
		s.network(ctx, "lan", "10.58.0.0/28", withinNode)
		stop(ctx, s.run(ctx, "before", n.Name, "lan")) // its pool is open
		stopRival := takeAway(n)
		DeferCleanup(stopRival)
		Eventually(func(g Gomega) {
			var node corev1.Node
			g.Expect(kube.Get(ctx, client.ObjectKey{Name: n.Name}, &node)).To(Succeed())
			g.Expect(told(ctx, &node, ready.ReasonTaken)).To(ContainElement(And(ContainSubstring("00-tenure.conflist.cilium_bak"), ContainSubstring("cni.exclusive=false"))))
		}).Should(Succeed(), "the node is told")
		// From then on the agent knows who takes it.
		var pods, without []*corev1.Pod
		for i := range 3 {
			pods = append(pods, s.start(ctx, fmt.Sprintf("web-%d", i), n.Name, "lan"))
		}
		for _, p := range pods {
			Eventually(func(g Gomega) {
				g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
				if p.Annotations[npwg.AnnotationStatus] == "" {
					g.Expect(told(ctx, p, missed.ReasonNotAttached)).To(ContainElement(And(ContainSubstring(s.namespace+"/lan"), ContainSubstring(".cilium_bak"))))
				}
			}).Should(Succeed(), "pod %s has its network, or is told", p.Name)
			if p.Annotations[npwg.AnnotationStatus] == "" {
				without = append(without, p)
			}
		}
		Expect(without).NotTo(BeEmpty(), "pods that run without their network")
		stopRival()

		Eventually(func(g Gomega) {
			said, code := asked(ctx, m, "check", "--apart=1s")
			g.Expect(code).To(Equal(3))
			for _, p := range without {
				g.Expect(said).To(MatchRegexp("NotAttached.*" + p.Name))
			}
		}).Should(Succeed(), "check finds them")
		failsAsAJob(ctx, without)
		isBundled(ctx, m, without)
		said, code := asked(ctx, m, "--namespace", s.namespace, "pod", without[0].Name)
		Expect(code).To(Equal(3), said)
		Expect(said).To(And(ContainSubstring("without tenure-attach"), ContainSubstring(".cilium_bak")))
		for _, p := range pods {
			stop(ctx, p)
		}
		Expect(addresses(ctx, s.run(ctx, without[0].Name, n.Name, "lan"))).To(HaveKey("net1"))
	})

	It("removes Tenure's plugins, or replaces their directory: they are back", func(ctx context.Context) {
		s, n := newSite(ctx), c.Nodes[1]
		s.network(ctx, "lan", "10.59.0.0/28", withinNode)
		bin := n.Path("/opt/cni/bin")
		ours := []string{filepath.Join(bin, "tenure"), filepath.Join(bin, "tenure-attach")}
		back := func() {
			GinkgoHelper()
			for _, path := range ours {
				Eventually(path).Should(BeARegularFile())
			}
		}
		for _, path := range ours {
			Expect(os.Remove(path)).To(Succeed())
		}
		back()
		stop(ctx, s.run(ctx, "removed", n.Name, "lan"))

		// As an upgrade of the node does: others' plugins are in the new directory.
		Expect(os.Rename(bin, bin+".old")).To(Succeed())
		Expect(os.Mkdir(bin, 0o755)).To(Succeed())
		entries, err := os.ReadDir(bin + ".old")
		Expect(err).NotTo(HaveOccurred())
		for _, e := range entries {
			if name := e.Name(); !strings.HasPrefix(strings.TrimPrefix(name, "."), "tenure") {
				Expect(os.Rename(filepath.Join(bin+".old", name), filepath.Join(bin, name))).To(Succeed())
			}
		}
		back()
		Expect(os.RemoveAll(bin + ".old")).To(Succeed())
		stop(ctx, s.run(ctx, "replaced", n.Name, "lan"))
	})
})
