package e2e_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

// An installer is the program of make install and make uninstall, for the cluster.
type installer struct{ program, root, path string }

// installedAs are the arguments that name the images.
var installedAs = []string{"-registry", cluster.ImagePrefix, "-tag", cluster.ImageTag}

// newInstaller compiles the program.
func newInstaller(ctx context.Context) installer {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	kubectl, err := programs.Find("kubectl")
	Expect(err).NotTo(HaveOccurred())
	i := installer{program: filepath.Join(GinkgoT().TempDir(), "install"), root: root, path: filepath.Dir(kubectl) + ":" + os.Getenv("PATH")}
	build := exec.CommandContext(ctx, "go", "build", "-o", i.program, "./deploy/install")
	build.Dir = root
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return i
}

func (i installer) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, i.program, args...)
	cmd.Dir = i.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+i.path)
	GinkgoWriter.Println(args)
	return cmd
}

// run runs it and returns all that it says.
func (i installer) run(ctx context.Context, command string, args ...string) (said string, err error) {
	out, err := i.command(ctx, append([]string{command}, args...)...).CombinedOutput()
	GinkgoWriter.Println(string(out))
	return string(out), err
}

// breakOff runs it and kills it, with what it has started, as soon as it says at.
func (i installer) breakOff(ctx context.Context, at, command string, args ...string) {
	GinkgoHelper()
	cmd := i.command(ctx, append([]string{command}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	cmd.Stderr = cmd.Stdout
	Expect(cmd.Start()).To(Succeed())
	said := false
	for lines := bufio.NewScanner(out); !said && lines.Scan(); {
		GinkgoWriter.Println(lines.Text())
		said = strings.Contains(lines.Text(), at)
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
	manifest, err := i.command(ctx, append([]string{"manifest", "-attach"}, installedAs...)...).Output()
	Expect(err).NotTo(HaveOccurred())
	left, err := c.Kubectl(ctx, string(manifest), "get", "--ignore-not-found", "--output=name", "-f", "-")
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
