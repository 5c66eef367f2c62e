package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

var _ = It("docs/getting-started.md works line by line", func(ctx context.Context) {
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(root, "docs", "getting-started.md"))
	Expect(err).NotTo(HaveOccurred())
	_, tour, found := strings.Cut(string(text), "\n## A pod with an address\n")
	Expect(found).To(BeTrue())
	tour, _, found = strings.Cut(tour, "\n## The end, ")
	Expect(found).To(BeTrue())
	var lines []string
	for line := range strings.Lines(tour) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			lines = append(lines, command)
		}
	}
	Expect(lines).NotTo(BeEmpty())

	bin := GinkgoT().TempDir()
	_, err = programs.Build(ctx, bin, "kubectl-tenure")
	Expect(err).NotTo(HaveOccurred())
	kubectl, err := programs.Find("kubectl")
	Expect(err).NotTo(HaveOccurred())
	_, err = c.Kubectl(ctx, cluster.Example, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "", "delete", "pod/web", "pod/db-0", "ipamclaims/db-0", "--ignore-not-found")
		if err != nil {
			return err
		}
		_, err = c.Kubectl(ctx, cluster.Example, "delete", "--wait=false", "-f", "-")
		return err
	})
	for _, line := range lines {
		Eventually(func() (string, error) {
			cmd := exec.CommandContext(ctx, "bash", "-c", line)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+bin+":"+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
			said, err := cmd.CombinedOutput()
			GinkgoWriter.Printf("$ %s%s", line, said)
			return string(said), err
		}).WithPolling(often*10).ShouldNot(BeEmpty(), line)
	}
})
