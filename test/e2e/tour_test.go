package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

// followPage runs the commands of a page, from one heading to another, as a reader would, and
// deletes what they leave.
func followPage(ctx context.Context, page, from, to string, leaves ...string) {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	Expect(err).NotTo(HaveOccurred())
	_, tour, found := strings.Cut(string(text), "\n## "+from+"\n")
	Expect(found).To(BeTrue())
	if to != "" {
		tour, _, found = strings.Cut(tour, "\n## "+to)
		Expect(found).To(BeTrue())
	}
	lines := commands(tour)
	Expect(lines).NotTo(BeEmpty())

	bin := GinkgoT().TempDir()
	_, err = programs.Build(ctx, bin, "kubectl-tenure")
	Expect(err).NotTo(HaveOccurred())
	kubectl, err := programs.Find("kubectl")
	Expect(err).NotTo(HaveOccurred())
	_, err = c.Kubectl(ctx, cluster.Example, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error {
		for _, leaf := range leaves {
			_, err := c.Kubectl(ctx, "", append([]string{"delete", "--wait=false", "--ignore-not-found"}, strings.Fields(leaf)...)...)
			if err != nil {
				return err
			}
		}
		_, err := c.Kubectl(ctx, cluster.Example, "delete", "--timeout=2m", "-f", "-") // the next page makes it anew
		return err
	})
	for _, line := range lines {
		Eventually(func() (string, error) {
			cmd := exec.CommandContext(ctx, "bash", "-c", line)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+bin+":"+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
			said, err := cmd.CombinedOutput()
			GinkgoWriter.Printf("$ %s%s", line, said)
			return string(said), err
		}).WithPolling(often*10).ShouldNot(BeEmpty(), func() string { return line + "\n" + state(ctx) })
	}
}

// state tells what a cluster's pods are, and what has happened of late.
func state(ctx context.Context) string {
	var all strings.Builder
	for _, what := range []string{
		"pods,replicasets --all-namespaces --output=wide",
		"resourcequotas --all-namespaces --output=yaml",
		"events --all-namespaces --sort-by=.metadata.creationTimestamp",
	} {
		said, err := c.Kubectl(ctx, "", append([]string{"get"}, strings.Fields(what)...)...)
		fmt.Fprintln(&all, said, err)
	}
	return all.String()
}

var _ = DescribeTable("pages work line by line", followPage,
	Entry("docs/howto/racks.md", "howto/racks.md", "A range for some nodes", "A subnet for each node",
		"deployment/web statefulset/db", "ipamclaims/db-0.fabric ipamclaims/db-1.fabric ipamclaims/db-2.fabric", "net-attach-def/fabric", "ippool/fabric"),
	Entry("docs/getting-started.md", "getting-started.md", "A pod with an address", "The end, ", "pod/web", "pod/db-0", "ipamclaims/db-0"),
	Entry("docs/howto/fixed-addresses.md", "howto/fixed-addresses.md", "The pool", "", "namespace/shop", "ippool/shop"),
	Entry("docs/howto/statefulsets.md", "howto/statefulsets.md", "Ask for them", "Scale, update, delete", "statefulset/web", "ipamclaims/web-0.lan ipamclaims/web-1.lan ipamclaims/web-2.lan"),
	Entry("docs/howto/scheduling-and-quotas.md", "howto/scheduling-and-quotas.md", "A pool that is advertised", "What is published",
		"namespace/team", "ippool/team", "validatingadmissionpolicy/team-addresses validatingadmissionpolicybinding/team-addresses"),
	Entry("docs/howto/pod-networks.md", "howto/pod-networks.md", "Make a network", "Networks of others",
		"pod/client", "podnetworkattachment/storage-small", "podnetwork/storage", "ippool/storage",
		"interfaceparameters/small-frames", "--namespace=tenure-system interfaceparameters/storage"),
	Entry("docs/howto/names.md", "howto/names.md", "Name the pods of a StatefulSet", "What is published", "statefulset/db", "service/db"),
	Entry("docs/howto/vifs.md", "howto/vifs.md", "Make a network", "Turn them off", "pod/router", "net-attach-def/fabric", "ippool/fabric"),
)

// commands returns the commands of a page, which are indented or in a block of sh: one a line, or
// up to the END of what it reads.
func commands(page string) (all []string) {
	reads, block := false, ""
	for line := range strings.Lines(page) {
		if kind, ok := strings.CutPrefix(line, "```"); ok {
			block = strings.TrimSpace(kind) // empty where one ends
			continue
		}
		command, indented := strings.CutPrefix(line, "    ")
		switch {
		case block == "sh":
			command = line
		case block != "" || !indented:
			continue
		}
		if reads {
			all[len(all)-1] += command
			reads = command != "END\n"
			continue
		}
		all = append(all, command)
		reads = strings.Contains(command, "<<'END'")
	}
	return all
}
