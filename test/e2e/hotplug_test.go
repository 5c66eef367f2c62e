package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

// hotplugService is what changes the networks of running pods.
const hotplugService = "tenure-hotplug"

// installHotplug adds the service to the cluster, and takes it away when the specs are over.
func installHotplug(ctx context.Context) {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(root, "deploy", "hotplug", "service.yaml"))
	Expect(err).NotTo(HaveOccurred())
	ours := strings.ReplaceAll(string(text), "image: tenured", "image: "+cluster.ImagePrefix+"tenured:"+cluster.ImageTag)
	_, err = c.Kubectl(ctx, ours, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := c.Kubectl(ctx, ours, "delete", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	})
	_, err = c.Kubectl(ctx, "", "--namespace", "tenure-system", "rollout", "status", "daemonset/"+hotplugService, "--timeout=3m")
	Expect(err).NotTo(HaveOccurred())
}

// selects edits the annotation of a running pod.
func selects(ctx context.Context, p *corev1.Pod, networks string) {
	GinkgoHelper()
	edited := client.MergeFrom(p.DeepCopy())
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, npwg.AnnotationNetworks, networks)
	Expect(kube.Patch(ctx, p, edited)).To(Succeed())
}

// expectInterfaces waits until the pod has these interfaces beside eth0, in its network namespace
// and in its status, and brings the pod up to date.
func expectInterfaces(ctx context.Context, p *corev1.Pod, names ...string) {
	GinkgoHelper()
	want := append([]string{"eth0"}, names...)
	Eventually(func(g Gomega) {
		var now corev1.Pod
		g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), &now)).To(Succeed())
		g.Expect(now.UID).To(Equal(p.UID))
		*p = now
		has, said := addresses(ctx, p), status(p)
		g.Expect(has).To(HaveLen(len(want)), "interfaces %v, status %s", has, p.Annotations[npwg.AnnotationStatus])
		g.Expect(said).To(HaveLen(len(want)), "status %s", p.Annotations[npwg.AnnotationStatus])
		for _, name := range want {
			g.Expect(has).To(HaveKey(name))
			g.Expect(said).To(HaveKeyWithValue(name, HaveField("IPs", ContainElement(has[name].Addr().String()))))
		}
	}).Should(Succeed(), "interfaces of %s", p.Name)
}

var _ = Describe("Networks of a running pod", Ordered, func() {
	var s site
	BeforeAll(installHotplug)
	BeforeEach(func(ctx context.Context) {
		s = newSite(ctx)
		s.network(ctx, "lan", "10.120.0.0/24", acrossNodes)
		s.network(ctx, "inner", "10.121.0.0/24", withinNode)
	})

	// isFree waits until nothing of a network is in use any more.
	isFree := func(ctx context.Context, network string) {
		GinkgoHelper()
		Eventually(func() ([]netip.Addr, error) { return s.recorded(ctx, network) }).Should(BeEmpty(), "addresses of %s", network)
	}

	It("come and go as its annotation changes, and the others notice nothing", func(ctx context.Context) {
		p := s.run(ctx, "web", c.Nodes[0].Name, "lan")
		had := addresses(ctx, p)
		selects(ctx, p, "lan,inner")
		expectInterfaces(ctx, p, "net1", "net2")
		neighbour := s.run(ctx, "neighbour", c.Nodes[0].Name, "inner")
		answer, err := ask(ctx, neighbour, addresses(ctx, p)["net2"].Addr())
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ContainSubstring("net2 " + addresses(ctx, p)["net2"].String()))
		Eventually(func() ([]string, error) { return told(ctx, p, "InterfaceAttached") }).Should(
			ContainElement(And(ContainSubstring("net2"), ContainSubstring(addresses(ctx, p)["net2"].Addr().String()))))

		selects(ctx, p, "lan,inner,nowhere") // changes nothing, and is told
		Eventually(func() ([]string, error) { return told(ctx, p, "NetworksNotChanged") }).Should(ContainElement(ContainSubstring("nowhere")))
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Annotations[npwg.AnnotationStatus]).To(ContainSubstring("nowhere"))
		}).Should(Succeed())
		expectInterfaces(ctx, p, "net1", "net2")

		selects(ctx, p, "lan")
		expectInterfaces(ctx, p, "net1")
		Expect(p.Annotations[npwg.AnnotationStatus]).NotTo(ContainSubstring("nowhere"))
		Eventually(func() ([]string, error) { return told(ctx, p, "InterfaceDetached") }).Should(ContainElement(ContainSubstring("net2")))
		Expect(addresses(ctx, p)).To(Equal(had))
		Expect(p.Status.ContainerStatuses[0].RestartCount).To(BeZero())
		selects(ctx, p, "lan,inner")
		expectInterfaces(ctx, p, "net1", "net2")
		stop(ctx, neighbour)
		stop(ctx, p) // the DEL undoes what came later, too
		isFree(ctx, "inner")
		isFree(ctx, "lan")
	})

	It("change as docs/howto/hot-plug.md says", func(ctx context.Context) {
		followPage(ctx, "howto/hot-plug.md", "Try it", "What the rules are", "pod/files", "net-attach-def/backup", "ippool/backup")
	})

	It("are those of a virtual machine that gets another NIC, with the address of its claim", func(ctx context.Context) {
		// As KubeVirt does it: the claim is made first, then the launcher pod's list gets one more
		// element, with an interface of KubeVirt's naming.
		p := s.run(ctx, "virt-launcher-a", c.Nodes[0].Name, `[{"name": "lan", "interface": "pod37a8eec1ce1"}]`)
		claim := s.claim(ctx, "vm.blue", "inner")
		address := s.granted(ctx, claim)
		const more = `[{"name": "lan", "interface": "pod37a8eec1ce1"}, {"name": "inner", "interface": "pod16477688c0e", "ipam-claim-reference": "vm.blue"}]`
		selects(ctx, p, more)
		expectInterfaces(ctx, p, "pod37a8eec1ce1", "pod16477688c0e")
		Expect(addresses(ctx, p)["pod16477688c0e"].String()).To(Equal(address))
		stop(ctx, p)
		Expect(s.granted(ctx, claim)).To(Equal(address)) // it is the machine's
		next := s.run(ctx, "virt-launcher-b", c.Nodes[1].Name, more)
		Expect(addresses(ctx, next)["pod16477688c0e"].String()).To(Equal(address))
	})

	It("come and go twenty times while service, agent and containerd are killed", inProof, func(ctx context.Context) {
		p := s.run(ctx, "web", c.Nodes[0].Name, "lan")
		had := addresses(ctx, p)
		node := c.Node(p.Spec.NodeName)
		none := func(context.Context) error { return nil }
		// Service and agent are of that name.
		kill := []func(context.Context) error{killAll("tenured"), none, node.Containerd.Restart, none, none}
		for i := range 20 {
			selects(ctx, p, fmt.Sprintf("lan,inner@x%d", i))
			Expect(kill[i%len(kill)](ctx)).To(Succeed())
			expectInterfaces(ctx, p, "net1", fmt.Sprintf("x%d", i))
			selects(ctx, p, "lan")
			expectInterfaces(ctx, p, "net1")
		}
		Expect(addresses(ctx, p)).To(Equal(had))
		stop(ctx, p)
		isFree(ctx, "inner")
		isFree(ctx, "lan")
	})
})
