package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/cluster"
)

// When the pods and claims of all specs are gone, nothing of theirs is left: in the cluster no pod
// and no claim; on no node an attachment, a result, an interface, a DEL in the journal, a report on
// its way, an address of the default network, or an address that the agent's store has promised;
// then, when the pools are deleted, which waits for their leases, no lease, no sub-lease and no
// reservation of a stranger's address.
var _ = AfterSuite(func(ctx context.Context) {
	if c == nil {
		return // it has not started
	}
	settle(ctx)
	expectSmall()
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		var claims ipamclaims.IPAMClaimList
		g.Expect(kube.List(ctx, &pods, client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("metadata.namespace", "tenure-system")})).To(Succeed())
		g.Expect(kube.List(ctx, &claims)).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
		g.Expect(claims.Items).To(BeEmpty())
	}).Should(Succeed())
	for _, n := range c.Nodes {
		for _, dir := range []string{"/var/lib/tenure/journal", "/var/lib/tenure/agent/reports", "/var/lib/cni/tenure-attach/unsent"} {
			Eventually(func() ([]string, error) {
				left, err := entries(n, dir)
				return slices.DeleteFunc(left, delivered), err
			}).Should(BeEmpty(), "%s of %s", dir, n.Name)
		}
		Eventually(func() ([]string, error) { return strangers(ctx, n) }).Should(BeEmpty(), "what %s has of sandboxes that are gone", n.Name)
		Eventually(func() ([]string, error) { return ports(n, innerBridge) }).Should(BeEmpty(), "ports of %s on %s", innerBridge, n.Name)
	}
	Eventually(attachments).Should(BeZero(), "interfaces that have addresses by the agents' stores")
	_, err := c.Kubectl(ctx, "", "delete", "ippools", "--all", "--wait=false")
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		var leases v1alpha1.IPLeaseList
		var subs v1alpha1.IPSubLeaseList
		var pools v1alpha1.IPPoolList
		var strange v1alpha1.IPReservationList // made by Tenure: they go with their pools
		g.Expect(kube.List(ctx, &leases)).To(Succeed())
		g.Expect(kube.List(ctx, &subs)).To(Succeed())
		g.Expect(kube.List(ctx, &pools)).To(Succeed())
		g.Expect(kube.List(ctx, &strange, client.HasLabels{v1alpha1.LabelStranger})).To(Succeed())
		g.Expect(leases.Items).To(BeEmpty())
		g.Expect(subs.Items).To(BeEmpty())
		g.Expect(pools.Items).To(BeEmpty())
		g.Expect(strange.Items).To(BeEmpty())
	}).Should(Succeed())
})

// delivered reports whether a file is that of a report which its pod has got: it goes with
// the pod, of a static one ten minutes later. Tenure's own pods are still there.
func delivered(file string) bool { return strings.HasSuffix(file, ".shown") }

// expectSmall reports what memory Tenure's programs have after all specs. The bounds
// are twice what they are made for.
func expectSmall() {
	for program, bound := range map[string]int64{"tenured": 100 << 20, "tenure-controller": 200 << 20} {
		var most int64
		for _, n := range c.Nodes {
			has, err := memory(n, program)
			Expect(err).NotTo(HaveOccurred())
			most = max(most, has)
		}
		GinkgoWriter.Printf("%s has %d MiB\n", program, most>>20)
		Expect(most).To(And(BeNumerically(">", 0), BeNumerically("<", bound)), program)
	}
}

// strangers returns what a node has of sandboxes that its runtime does not know:
// attachments, results, and addresses and interfaces of the default network. The
// controller's pods, which are attached as well, are known.
func strangers(ctx context.Context, n *cluster.Node) (found []string, err error) {
	out, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "containers", "list", "--quiet", `labels."io.cri-containerd.kind"==sandbox`)
	if err != nil {
		return nil, err
	}
	known := strings.Fields(string(out))
	if len(known) == 0 {
		return nil, fmt.Errorf("%s has no sandbox, not even that of the agent", n.Name)
	}
	isOf := func(text string) bool {
		return slices.ContainsFunc(known, func(id string) bool { return strings.Contains(text, id) })
	}
	for _, dir := range []string{attachmentsDir, "/var/lib/cni/tenure-attach/results", resultsDir} {
		names, err := entries(n, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !isOf(name) {
				found = append(found, filepath.Join(dir, name))
			}
		}
	}
	const addressDir = "/var/lib/cni/networks/pods"
	names, err := entries(n, addressDir)
	if err != nil {
		return nil, err
	}
	holders := map[string]bool{} // sandboxes with an address, or one of each family
	for _, name := range names {
		if _, err := netip.ParseAddr(name); err != nil {
			continue // host-local's own notes
		}
		text, err := os.ReadFile(n.Path(filepath.Join(addressDir, name)))
		if err != nil {
			return nil, err
		}
		if holders[string(text)] = true; !isOf(string(text)) {
			found = append(found, fmt.Sprintf("address %s of %s", name, text))
		}
	}
	// Network namespaces are the runtime's: one that is killed in the middle leaves some,
	// without interfaces.
	links, err := ports(n, "cni0")
	if err == nil && len(links) != len(holders) {
		found = append(found, fmt.Sprintf("%d sandboxes with addresses of the default network, interfaces %v", len(holders), links))
	}
	return found, err
}

// ports returns the interfaces of a node that are ports of a bridge; none, if there is no
// such bridge.
func ports(n *cluster.Node, name string) (names []string, err error) {
	err = n.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		bridge := 0
		for _, l := range links {
			if l.Attrs().Name == name {
				bridge = l.Attrs().Index
			}
		}
		for _, l := range links {
			if bridge != 0 && l.Attrs().MasterIndex == bridge {
				names = append(names, l.Attrs().Name)
			}
		}
		return nil
	})
	return names, err
}

// attachmentsDir is where the meta-plugin notes on a node what it has attached.
const attachmentsDir = "/var/lib/cni/tenure-attach/attachments"

// resultsDir is where a node's runtime notes what plugins have answered.
const resultsDir = "/var/lib/cni/results"

// entries returns the names in a directory of a node; one that was never needed has
// none.
func entries(n *cluster.Node, dir string) ([]string, error) {
	found, err := os.ReadDir(n.Path(dir))
	if os.IsNotExist(err) {
		return nil, nil
	}
	var names []string
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names, err
}
