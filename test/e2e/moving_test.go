package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods whose addresses are of other IPAMs run, attached by stock Multus, and go on to run
// while their networks become Tenure's.
var _ = Describe("Moving in", Ordered, func() {
	var s site
	var o *observer
	BeforeAll(func(ctx context.Context) {
		settle(ctx) // what Tenure's meta-plugin has attached, it detaches
		before := onDisk()
		DeferCleanup(func(ctx context.Context) {
			settle(ctx)
			Expect(c.RemoveWhereabouts(ctx)).To(Succeed())
			Expect(c.RemoveMultus(ctx)).To(Succeed())
			Expect(onDisk()).To(Equal(before), "what is in the nodes' directories of the CNI")
			Expect(ofOthers(ctx)).To(BeEmpty(), "objects of Multus and of whereabouts")
		})
		Expect(c.InstallMultus(ctx)).To(Succeed())
		Expect(c.InstallWhereabouts(ctx)).To(Succeed())
	})
	BeforeEach(func(ctx context.Context) {
		s = newSite(ctx)
		o = observe()
	})

	It("by hand: with the word changed in the definitions, no address is given to a second pod", onPlatforms, func(ctx context.Context) {
		s.define(ctx, "lan", `{"type": "whereabouts", "range": "10.60.0.0/26"}`)
		s.define(ctx, "shelf", `{"type": "host-local", "ranges": [[{"subnet": "10.61.0.0/28"}]]}`)
		all := map[types.UID]string{}
		old := append(s.startMany(ctx, all, "old", "lan", 32), s.startMany(ctx, all, "file", "shelf", 8, c.Nodes[0].Name)...)
		awaitRunning(ctx, old...)
		o.expectNoFault(all, old...)

		s.change(ctx, "lan", "whereabouts", "tenure")
		s.change(ctx, "shelf", "host-local", "tenure")
		fresh := append(s.startMany(ctx, all, "new", "lan", 10), s.startMany(ctx, all, "filed", "shelf", 4)...)
		awaitRunning(ctx, fresh...)
		o.expectNoFault(all, append(old, fresh...)...)

		// What goes makes room, as the other IPAM's and as Tenure's.
		for _, p := range old[:8] {
			Expect(kube.Delete(ctx, p)).To(Succeed())
		}
		later := s.startMany(ctx, all, "later", "lan", 8)
		awaitRunning(ctx, later...)
		o.expectNoFault(all, append(append(old[8:], fresh...), later...)...)

		s.kubectl(ctx, "delete", "pods", "--all", "--wait=false")
		s.expectNothingLeft(ctx, "lan", "shelf")
		o.expectNoFault(all)
	})

	It("by import and back by export, while pods come and go and all that takes part is killed", inProof, func(ctx context.Context) {
		s.define(ctx, "lan", `{"type": "whereabouts", "range": "10.62.0.0/26"}`)
		s.define(ctx, "part", `{"type": "whereabouts", "range": "10.62.0.0/26", "range_start": "10.62.0.40"}`)
		all := map[types.UID]string{}
		old := append(s.startMany(ctx, all, "old", "lan", 16), s.startMany(ctx, all, "part", "part", 4)...)
		awaitRunning(ctx, old...)
		o.expectNoFault(all, old...)

		kill := []func(context.Context) error{killAll("tenured"), killAll("tenure-controller"), killAPIServer}
		kubectl := newMover(ctx)
		stop := s.churn(ctx, all, "lan")
		kubectl.runUnderFire(ctx, kill, "import", "--from", "whereabouts", "--apply")
		running := stop()
		fresh := append(s.startMany(ctx, all, "new", "lan", 6), s.startMany(ctx, all, "newpart", "part", 2)...)
		awaitRunning(ctx, append(fresh, running...)...)
		o.expectNoFault(all, append(append(old, running...), fresh...)...)

		for _, p := range old[:8] { // what they had is free, and may be whereabouts' again
			Expect(kube.Delete(ctx, p)).To(Succeed())
		}
		kubectl.runUnderFire(ctx, kill, "export", "--to", "whereabouts", "--apply")
		back := append(s.startMany(ctx, all, "back", "lan", 6), s.startMany(ctx, all, "backpart", "part", 2)...)
		awaitRunning(ctx, back...)
		o.expectNoFault(all, append(append(append(old[8:], running...), fresh...), back...)...)

		s.kubectl(ctx, "delete", "pods", "--all", "--wait=false")
		s.expectNothingLeft(ctx, "lan", "part")
		o.expectNoFault(all)
	})
})

// define applies a definition of a network across nodes with the given IPAM's section.
func (s site) define(ctx context.Context, name, ipam string) {
	GinkgoHelper()
	_, err := c.Kubectl(ctx, fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "%[1]s-%[2]s", %[3]s, "ipam": %[4]s}
`, s.namespace, name, acrossNodes, ipam), "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// change changes the one word in a definition that says whose its addresses are.
func (s site) change(ctx context.Context, name, from, to string) {
	GinkgoHelper()
	text, err := c.Kubectl(ctx, "", "get", "net-attach-def", "-n", s.namespace, name, "-o", "json")
	Expect(err).NotTo(HaveOccurred())
	const word = `\"type\": \"%s\"`
	from, to = fmt.Sprintf(word, from), fmt.Sprintf(word, to)
	Expect(strings.Count(text, from)).To(BeNumerically(">=", 1), text)
	_, err = c.Kubectl(ctx, strings.ReplaceAll(text, from, to), "replace", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// startMany creates pods on a network, on the given nodes in turn or on all, and notes
// their names.
func (s site) startMany(ctx context.Context, names map[types.UID]string, name, network string, count int, nodes ...string) (pods []*corev1.Pod) {
	GinkgoHelper()
	if len(nodes) == 0 {
		for _, n := range c.Nodes {
			nodes = append(nodes, n.Name)
		}
	}
	for i := range count {
		p := s.start(ctx, fmt.Sprintf("%s-%d", name, i), nodes[i%len(nodes)], network)
		names[p.UID] = p.Name
		pods = append(pods, p)
	}
	return pods
}

// onDisk returns what is in the directories of the nodes where Multus and whereabouts are
// installed, and what they make.
func onDisk() (names []string) {
	GinkgoHelper()
	for _, n := range c.Nodes {
		for _, dir := range []string{"/etc/cni/net.d", "/opt/cni/bin", "/var/lib/cni"} {
			found, err := entries(n, dir)
			Expect(err).NotTo(HaveOccurred())
			for _, name := range found {
				if name != "tenure-attach" || dir == "/opt/cni/bin" { // its state comes with a node's first pod
					names = append(names, n.Name+":"+filepath.Join(dir, name))
				}
			}
		}
	}
	return names
}

// ofOthers returns the objects outside the specs' namespaces whose names are those of
// Multus or of whereabouts.
func ofOthers(ctx context.Context) (names []string) {
	GinkgoHelper()
	const kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,serviceaccounts,configmaps,leases,daemonsets,deployments,pods"
	text, err := c.Kubectl(ctx, "", "get", kinds, "-n", "kube-system", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	for name := range strings.FieldsSeq(text) {
		if strings.Contains(name, "multus") || strings.Contains(name, "whereabouts") {
			names = append(names, name)
		}
	}
	return names
}

// expectNothingLeft waits until no IPAM has an address of the site's networks.
func (s site) expectNothingLeft(ctx context.Context, networks ...string) {
	GinkgoHelper()
	Eventually(func() ([]string, error) { return whereaboutsRecords(ctx) }).Should(BeEmpty(), "records of whereabouts")
	for _, network := range networks {
		for _, n := range c.Nodes {
			dir := filepath.Join("/var/lib/cni/networks", s.namespace+"-"+network)
			Eventually(func() ([]string, error) {
				files, err := entries(n, dir)
				return hostLocalAddresses(files), err
			}).Should(BeEmpty(), "%s of %s", dir, n.Name)
		}
		Eventually(func() (int, error) {
			used, err := s.recorded(ctx, network)
			return len(used), err
		}).Should(BeZero(), "addresses of %s that Tenure has given", network)
	}
	Eventually(attachments).Should(BeZero(), "interfaces that have addresses by the agents' stores")
}

// hostLocalAddresses are the addresses that host-local has given, out of the names in its
// directory of a network, where it has notes of its own.
func hostLocalAddresses(files []string) (addresses []string) {
	for _, file := range files {
		if strings.ContainsAny(file, ".:") && !strings.HasPrefix(file, "last_reserved_ip") {
			addresses = append(addresses, file)
		}
	}
	return addresses
}

// whereaboutsRecords returns what whereabouts has noted of any pod: allocations of its
// pools, and addresses that are reserved across its pools.
func whereaboutsRecords(ctx context.Context) (found []string, err error) {
	for _, kind := range []string{"ippools.whereabouts.cni.cncf.io", "overlappingrangeipreservations.whereabouts.cni.cncf.io"} {
		text, err := c.Kubectl(ctx, "", "get", kind, "--all-namespaces", "-o", "json")
		if err != nil {
			return nil, err
		}
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Spec     struct {
					PodRef      string
					Allocations map[string]struct{ PodRef string }
				}
			}
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, fmt.Errorf("read %s: %w", kind, err)
		}
		for _, item := range list.Items {
			if item.Spec.PodRef != "" {
				found = append(found, item.Metadata.Name+" "+item.Spec.PodRef)
			}
			for offset, a := range item.Spec.Allocations {
				found = append(found, item.Metadata.Name+" "+offset+" "+a.PodRef)
			}
		}
	}
	return found, nil
}
