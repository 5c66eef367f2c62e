package e2e_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

// hourly is what installs the CronJob of check. Its two looks are not far apart here.
const hourly = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
components: [%[1]s/deploy/check]
images:
- {name: tenure-controller, newName: %[2]stenure-controller, newTag: %[3]s}
patches:
- target: {kind: CronJob, name: tenure-check}
  patch: |
    - {op: replace, path: /spec/jobTemplate/spec/template/spec/containers/0/args, value: [check, --apart=1s]}
`

// failsAsAJob has check run in the cluster by its CronJob: the Job fails, and its log names the
// pods that run without their networks.
func failsAsAJob(ctx context.Context, without []*corev1.Pod) {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	from, err := filepath.Rel(dir, root) // kustomize refuses absolute paths
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, hourly, from, cluster.ImagePrefix, cluster.ImageTag), 0o600)).To(Succeed())
	_, err = c.Kubectl(ctx, "", "apply", "-k", dir)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "", "delete", "-k", dir)
		return err
	})
	_, err = c.Kubectl(ctx, "", "--namespace=tenure-system", "create", "job", "--from=cronjob/tenure-check", "look-now")
	Expect(err).NotTo(HaveOccurred())
	_, err = c.Kubectl(ctx, "", "--namespace=tenure-system", "wait", "job/look-now", "--for=condition=Failed", "--timeout=2m")
	Expect(err).NotTo(HaveOccurred())
	said, err := c.Kubectl(ctx, "", "--namespace=tenure-system", "logs", "job/look-now")
	Expect(err).NotTo(HaveOccurred())
	for _, p := range without {
		Expect(said).To(MatchRegexp("WRONG NotAttached.*" + p.Name))
	}
	code, err := c.Kubectl(ctx, "", "--namespace=tenure-system", "get", "pods", "--selector=job-name=look-now",
		"--output=jsonpath={.items[*].status.containerStatuses[*].state.terminated.exitCode}")
	Expect(err).NotTo(HaveOccurred())
	Expect(code).To(Equal("3"))
}

// isBundled has kubectl tenure write a bundle: what agents say on their nodes' loopbacks is in it,
// and what was found.
func isBundled(ctx context.Context, m mover, without []*corev1.Pod) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "b.tar.gz")
	said, code := asked(ctx, m, "bundle", "--file="+file)
	Expect(code).To(Equal(0), said)
	f, err := os.Open(file)
	Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	gz, err := gzip.NewReader(f)
	Expect(err).NotTo(HaveOccurred())
	all := map[string]string{} // texts by the first part of the file's name in the bundle
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		Expect(err).NotTo(HaveOccurred())
		text, err := io.ReadAll(r)
		Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(h.Name, "/")
		part, _, _ := strings.Cut(name, "/")
		all[part] += string(text)
	}
	Expect(all["errors.txt"]).NotTo(ContainSubstring("metrics of"))
	for _, p := range without {
		Expect(all["pods.yaml"]).To(ContainSubstring("name: " + p.Name))
	}
	Expect(all["check.json"]).To(ContainSubstring(`"NotAttached"`))
	Expect(all["logs"]).To(And(ContainSubstring("tenured starts"), ContainSubstring("tenure-controller starts")))
	Expect(all["metrics"]).To(And(ContainSubstring("\ntenure_agent_serving 1\n"), ContainSubstring("\ntenure_pool_addresses{")))
	for _, n := range c.Nodes {
		Expect(all["store-checks.txt"]).To(MatchRegexp(n.Name + ": .*store_faults 0"))
	}
}
