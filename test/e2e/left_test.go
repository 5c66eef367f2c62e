package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/cluster"
)

// When the pods and claims of all specs are gone, nothing of Tenure's is left: on no
// node an attachment, a DEL in the journal, or a result; in the cluster no lease and no
// sub-lease, so that the pools can be deleted.
var _ = AfterSuite(func(ctx context.Context) {
	if c == nil {
		return // it has not started
	}
	for _, n := range c.Nodes {
		for _, dir := range []string{"/var/lib/tenure/journal", "/var/lib/tenure/agent/reports", "/var/lib/cni/tenure-attach/unsent"} {
			Eventually(func() ([]string, error) { return entries(n, dir) }).Should(BeEmpty(), "%s of %s", dir, n.Name)
		}
		// What the pods of the controller have, which is attached as well, stays.
		Eventually(func() ([]string, error) {
			attached, err := entries(n, "/var/lib/cni/tenure-attach/attachments")
			return slices.DeleteFunc(attached, func(name string) bool { return !strings.Contains(name, ".damaged") }), err
		}).Should(BeEmpty(), "damaged journals of %s", n.Name)
	}
	_, err := c.Kubectl(ctx, "", "delete", "ippools", "--all", "--wait=false")
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		var leases v1alpha1.IPLeaseList
		var subs v1alpha1.IPSubLeaseList
		var pools v1alpha1.IPPoolList
		g.Expect(kube.List(ctx, &leases)).To(Succeed())
		g.Expect(kube.List(ctx, &subs)).To(Succeed())
		g.Expect(kube.List(ctx, &pools)).To(Succeed())
		g.Expect(leases.Items).To(BeEmpty())
		g.Expect(subs.Items).To(BeEmpty())
		g.Expect(pools.Items).To(BeEmpty())
	}).Should(Succeed())
})

// entries returns the names in a directory of a node; one that was never needed has
// none.
func entries(n *cluster.Node, dir string) ([]string, error) {
	found, err := os.ReadDir(n.Path(dir))
	if os.IsNotExist(err) {
		return nil, nil
	}
	var names []string
	for _, e := range found {
		names = append(names, filepath.Base(e.Name()))
	}
	return names, err
}
