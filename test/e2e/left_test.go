package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/cluster"
)

// When the pods and claims of all specs are gone, nothing of theirs is left: on no
// node an attachment, an interface, a DEL in the journal, or an address of the default
// network; in the cluster no lease and no sub-lease, so that the pools can be deleted.
var _ = AfterSuite(func(ctx context.Context) {
	if c == nil {
		return // it has not started
	}
	for _, n := range c.Nodes {
		for _, dir := range []string{"/var/lib/tenure/journal", "/var/lib/tenure/agent/reports", "/var/lib/cni/tenure-attach/unsent"} {
			Eventually(func() ([]string, error) { return entries(n, dir) }).Should(BeEmpty(), "%s of %s", dir, n.Name)
		}
		Eventually(func() ([]string, error) { return strangers(ctx, n) }).Should(BeEmpty(), "what %s has of sandboxes that are gone", n.Name)
		Eventually(func() ([]string, error) { return ports(n) }).Should(BeEmpty(), "ports of %s on %s", innerBridge, n.Name)
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

// strangers returns the attachments, and the addresses of the default network, of
// sandboxes that the node's runtime does not know. The controller's pods, which are
// attached as well, are known.
func strangers(ctx context.Context, n *cluster.Node) (found []string, err error) {
	out, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "containers", "list", "--quiet", `labels."io.cri-containerd.kind"==sandbox`)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for id := range strings.FieldsSeq(string(out)) {
		known[id] = true
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("%s has no sandbox, not even that of the agent", n.Name)
	}
	const addressDir = "/var/lib/cni/networks/pods"
	addresses, err := entries(n, addressDir)
	if err != nil {
		return nil, err
	}
	for _, name := range addresses {
		if !strings.HasPrefix(name, "10.244.") {
			continue // host-local's own notes
		}
		text, err := os.ReadFile(n.Path(filepath.Join(addressDir, name)))
		if err != nil {
			return nil, err
		}
		if id := strings.Fields(string(text)); len(id) == 0 || !known[id[0]] {
			found = append(found, fmt.Sprintf("address %s of %v", name, id))
		}
	}
	attachments, err := entries(n, attachmentsDir)
	for _, name := range attachments {
		if id, _, _ := strings.Cut(name, "."); !known[id] {
			found = append(found, "attachment "+name)
		}
	}
	return found, err
}

// ports returns the interfaces of a node that are ports of the specs' bridge.
func ports(n *cluster.Node) (names []string, err error) {
	err = n.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		bridge := 0
		for _, l := range links {
			if l.Attrs().Name == innerBridge {
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
