package e2e_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

// An installer runs make's targets install, uninstall and manifest for the cluster.
type installer struct{ root, path string }

// installedAs are the variables that name the images.
var installedAs = []string{"REGISTRY=" + cluster.ImagePrefix, "TAG=" + cluster.ImageTag}

func newInstaller() installer {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	kubectl, err := programs.Find("kubectl")
	Expect(err).NotTo(HaveOccurred())
	return installer{root: root, path: filepath.Dir(kubectl) + ":" + os.Getenv("PATH")}
}

func (i installer) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory", "ARGS="}, args...)...)
	cmd.Dir = i.root
	// What the make that runs these tests was told is not for this one.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+i.path, "MAKEFLAGS=")
	GinkgoWriter.Println(args)
	return cmd
}

// run runs it and returns all that it says.
func (i installer) run(ctx context.Context, target string, args ...string) (said string, err error) {
	out, err := i.command(ctx, append([]string{target}, args...)...).CombinedOutput()
	GinkgoWriter.Println(string(out))
	return string(out), err
}

// helm runs helm on the cluster.
func (i installer) helm(ctx context.Context, args ...string) (said string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(i.root, "bin/tools/helm"), append(args, "--kubeconfig", c.Kubeconfig())...)
	out, err := cmd.CombinedOutput()
	GinkgoWriter.Println(args, string(out))
	return string(out), err
}

// breakOff runs it and kills it, with what it has started, as soon as it says one of at.
func (i installer) breakOff(ctx context.Context, at []string, target string, args ...string) {
	GinkgoHelper()
	cmd := i.command(ctx, append([]string{target}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	cmd.Stderr = cmd.Stdout
	Expect(cmd.Start()).To(Succeed())
	said := false
	for lines := bufio.NewScanner(out); !said && lines.Scan(); {
		GinkgoWriter.Println(lines.Text())
		said = slices.ContainsFunc(at, func(a string) bool { return strings.Contains(lines.Text(), a) })
	}
	if said {
		Expect(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)).To(Succeed())
	}
	err = cmd.Wait()
	Expect(said).To(BeTrue(), "it says %q before it ends with %v", at, err)
}

// expectRemoved checks that of what is installed nothing is left in the cluster, and that
// the definitions of others are as they were.
func (i installer) expectRemoved(ctx context.Context) {
	GinkgoHelper()
	said, err := i.run(ctx, "manifest", append(installedAs, "ATTACH=yes")...)
	Expect(err).NotTo(HaveOccurred(), said)
	left, err := c.Kubectl(ctx, "", "get", "--ignore-not-found", "--output=name", "-f", filepath.Join(i.root, "bin/tenure.yaml"))
	if !meta.IsNoMatchError(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(left).To(BeEmpty())
	_, err = c.Kubectl(ctx, "", "get", "--output=name", "-f", filepath.Join(i.root, "deploy/crds/upstream"))
	Expect(err).NotTo(HaveOccurred(), "the definitions of others")
}

// expectClean checks that nothing of Tenure's is left on nodes but empty directories.
func expectClean(nodes ...*cluster.Node) {
	GinkgoHelper()
	for _, n := range nodes {
		for _, file := range []string{
			"/opt/cni/bin/tenure*", "/opt/cni/bin/.tenure*", "/etc/cni/net.d/00-tenure.conflist", "/var/lib/tenure/*", "/run/tenure/*", "/var/lib/cni/tenure-attach/*",
		} {
			Expect(filepath.Glob(n.Path(file))).To(BeEmpty(), "left on %s", n.Name)
		}
	}
}
