package e2e_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
)

var _ = Describe("An upgrade", func() {
	It("by one version, and the way back: while pods come and go none fails, and none has another's address", inProof, onPlatforms, func(ctx context.Context) {
		s := newSite(ctx)
		had := s.stay(ctx)
		DeferCleanup(func(ctx context.Context) { // also where this ends before it does so
			Expect(c.Upgrade(ctx, cluster.ImageTag)).To(Succeed())
		})

		old := installed()
		s.upgrade(ctx, had, cluster.NextTag)
		for file, next := range installed() {
			Expect(next).NotTo(Equal(old[file]), "the next version's plugin is at %s", file)
		}
		between := s.run(ctx, "between", c.Nodes[0].Name, "lan") // made by the next version, ended by this one
		had[between] = addresses(ctx, between)["net1"]
		s.upgrade(ctx, had, cluster.ImageTag)
		Expect(installed()).To(Equal(old))
		s.leave(ctx, had)
	})

	It("from an earlier version: while pods come and go none fails, and none has another's address", inProof, func(ctx context.Context) {
		if cluster.Earlier() == "" {
			Skip("make test-upgrade says from which version")
		}
		s := newSite(ctx)
		had := s.stay(ctx)
		old := installed()
		s.upgrade(ctx, had, cluster.ImageTag)
		for file, next := range installed() {
			Expect(next).NotTo(Equal(old[file]), "this version's plugin is at %s", file)
		}
		for _, w := range []string{cluster.Agents, cluster.Controllers} { // one of them is one version behind
			s.exchange(ctx, had, w, cluster.EarlierTag)
			s.exchange(ctx, had, w, cluster.ImageTag)
		}
		s.leave(ctx, had)
	})
})

// stay starts pods of lan on every node, which stay, and returns their addresses.
func (s site) stay(ctx context.Context) map[*corev1.Pod]netip.Prefix {
	GinkgoHelper()
	s.network(ctx, "lan", "10.60.0.0/24", acrossNodes)
	had := map[*corev1.Pod]netip.Prefix{}
	for i := range 2 * len(c.Nodes) {
		had[s.start(ctx, fmt.Sprintf("stay-%d", i), c.Nodes[i%len(c.Nodes)].Name, "lan")] = netip.Prefix{}
	}
	for p := range had {
		awaitRunning(ctx, p)
		had[p] = addresses(ctx, p)["net1"]
	}
	return had
}

// upgrade goes to the version of a tag while pods of lan come and go beside those that stay.
func (s site) upgrade(ctx context.Context, stay map[*corev1.Pod]netip.Prefix, tag string) {
	GinkgoHelper()
	came := s.traffic(ctx, stay, func() { Expect(c.Upgrade(ctx, tag)).To(Succeed()) })
	Expect(came).To(BeNumerically(">", 0), "pods that came during the upgrade")
	Expect(images(ctx)).To(HaveEach(HaveSuffix(":" + tag)))
}

// exchange gives agents or controllers the version of a tag while pods of lan come and go, and
// then has more of them come and go beside that version.
func (s site) exchange(ctx context.Context, stay map[*corev1.Pod]netip.Prefix, workload, tag string) {
	GinkgoHelper()
	s.traffic(ctx, stay, func() { Expect(c.Exchange(ctx, workload, tag)).To(Succeed()) })
	Expect(images(ctx)).To(ContainElement(HaveSuffix(":" + tag)))
	for _, n := range c.Nodes {
		p := s.run(ctx, "beside-"+n.Name, n.Name, "lan")
		Expect(addresses(ctx, p)).To(HaveKey("net1"))
		stop(ctx, p)
	}
}

// leave ends pods that have kept their addresses.
func (s site) leave(ctx context.Context, had map[*corev1.Pod]netip.Prefix) {
	GinkgoHelper()
	for p, addr := range had {
		Expect(addresses(ctx, p)).To(HaveKeyWithValue("net1", addr), "%s keeps its address", p.Name)
	}
	for p := range had {
		stop(ctx, p)
	}
}

// traffic has pods of lan come and go on every node while do is done, and returns how
// many came. All of them run at last, none with an address that another has that is
// there: one of taken, or the last few of each node.
func (s site) traffic(ctx context.Context, taken map[*corev1.Pod]netip.Prefix, do func()) (came int) {
	GinkgoHelper()
	const atOnce = 3 // on each node
	t := tenants{has: map[netip.Prefix]string{}}
	for p, at := range taken {
		t.enter(p.Name, at)
	}
	done := make(chan struct{})
	var nodes sync.WaitGroup
	for _, n := range c.Nodes {
		nodes.Go(func() {
			defer GinkgoRecover()
			var there []*corev1.Pod
			for i, ended := 0, false; !ended || len(there) > 0; i++ {
				select {
				case <-done:
					ended = true
				default:
					p := s.run(ctx, fmt.Sprintf("come-%s-%d", n.Name, i), n.Name, "lan")
					t.enter(p.Name, addresses(ctx, p)["net1"])
					there = append(there, p)
				}
				if len(there) > atOnce || ended && len(there) > 0 {
					t.leave(there[0].Name)
					stop(ctx, there[0])
					there = there[1:]
				}
			}
		})
	}
	func() {
		defer nodes.Wait()
		defer close(done)
		do()
	}()
	return t.came - len(taken)
}

// tenants are the pods that are there, by their addresses.
type tenants struct {
	mu   sync.Mutex
	has  map[netip.Prefix]string
	came int
}

// enter fails the spec where another has the address.
func (t *tenants) enter(name string, at netip.Prefix) {
	GinkgoHelper()
	t.mu.Lock()
	defer t.mu.Unlock()
	Expect(at.IsValid()).To(BeTrue(), "%s has an address of lan", name)
	Expect(t.has).NotTo(HaveKey(at), "the address of %s", name)
	t.has[at] = name
	t.came++
}

// leave is called before the pod ends: from then on another one may have its address.
func (t *tenants) leave(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.has, func(_ netip.Prefix, who string) bool { return who == name })
}

// images returns the images of Tenure's pods.
func images(ctx context.Context) (names []string) {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(kube.List(ctx, &pods, client.InNamespace("tenure-system"))).To(Succeed())
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			names = append(names, p.Spec.Containers[0].Image)
		}
	}
	return names
}

// installed returns the checksums of the plugins on the nodes, by their paths.
func installed() map[string]string {
	GinkgoHelper()
	files := map[string]string{}
	for _, n := range c.Nodes {
		for _, name := range []string{"tenure", "tenure-attach"} {
			path := n.Path("/opt/cni/bin/" + name)
			text, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			files[path] = fmt.Sprintf("%x", sha256.Sum256(text))
		}
	}
	return files
}
