package e2e_test

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
})
