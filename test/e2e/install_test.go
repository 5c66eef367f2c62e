package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

var _ = Describe("An installation from deploy/", func() {
	It("puts the plugins and the configuration on every node", func(ctx context.Context) {
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

	It("is not removed while a pod has its address, then is, nodes and all, and comes again", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { // as the other specs have it
			Expect(c.Upgrade(ctx, cluster.ImageTag)).To(Succeed())
		})
		s := newSite(ctx)
		s.network(ctx, "lan", "10.62.0.0/24", acrossNodes)
		// The controller makes its pool again as long as it runs.
		_, err := c.Kubectl(ctx, fmt.Sprintf(whereabouts, s.namespace), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		pods := []*corev1.Pod{s.run(ctx, "web", c.Nodes[0].Name, "lan"), s.run(ctx, "inline", c.Nodes[1].Name, "inline")}
		tool := installer(ctx)

		said, err := tool("uninstall")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring("nothing was removed"), ContainSubstring(s.namespace+"/web"), ContainSubstring(s.namespace+"/inline")))
		for _, p := range pods {
			stop(ctx, p)
		}
		said, err = tool("uninstall")
		Expect(err).NotTo(HaveOccurred(), said)
		Expect(said).To(ContainSubstring("Tenure is removed."))
		Expect(kube.Get(ctx, client.ObjectKey{Name: "tenure-system"}, &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "is not found"))
		for _, n := range c.Nodes {
			for _, file := range []string{"/opt/cni/bin/tenure*", "/etc/cni/net.d/00-tenure.conflist", "/var/lib/tenure/*", "/run/tenure/*", "/var/lib/cni/tenure-attach/*"} {
				Expect(filepath.Glob(n.Path(file))).To(BeEmpty(), "left on %s", n.Name)
			}
		}
		said, err = tool("uninstall")
		Expect(err).NotTo(HaveOccurred(), said)
		Expect(said).To(ContainSubstring("not installed"))

		names := []string{"-registry", cluster.ImagePrefix, "-tag", cluster.ImageTag}
		said, err = tool("install", append(names, "-attach")...)
		Expect(err).NotTo(HaveOccurred(), said)
		stop(ctx, s.run(ctx, "again", c.Nodes[1].Name, "inline"))
		said, err = tool("install", names...)
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("ATTACH=yes"))
		// As helm uninstall does it: nobody knows the nodes any more.
		_, err = c.Kubectl(ctx, "", "--namespace", "tenure-system", "delete", "daemonset/tenured")
		Expect(err).NotTo(HaveOccurred())
		said, err = tool("uninstall")
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("no agent is installed"))
	})
})

// whereabouts is a network in a namespace whose addresses are described inline.
const whereabouts = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: inline, namespace: %[1]s}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "%[1]s-inline", ` + acrossNodes + `,
     "ipam": {"type": "tenure", "range": "10.63.0.0/24", "network_name": "%[1]s-inline"}}
`

// installer returns what runs the program of make install and make uninstall on the
// cluster, and returns all that it says.
func installer(ctx context.Context) func(command string, args ...string) (said string, err error) {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	kubectl, err := programs.Find("kubectl")
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(GinkgoT().TempDir(), "install")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./deploy/install")
	build.Dir = root
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return func(command string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, append([]string{command}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		GinkgoWriter.Printf("%s %v:\n%s", command, args, out)
		return string(out), err
	}
}
