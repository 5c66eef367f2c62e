package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	ours "github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// draSocket is where agents answer DRANET, as deploy/dra has it.
const draSocket = "/run/tenure/dra/dranet.sock"

var _ = Describe("ResourceClaims", func() {
	It("give pods network devices of their nodes, by the real driver, each with an address of its own; it comes back when the driver, an agent or a kubelet was killed meanwhile, and when the driver's word was lost", inProof, func(ctx context.Context) {
		serveDRA(ctx)
		const each = 4 // devices of a node
		var drivers []*process.Process
		for _, n := range c.Nodes {
			makeNICs(n, each)
			drivers = append(drivers, dranet(ctx, n))
		}
		s := newSite(ctx)
		s.deviceTemplate(ctx, "10.87.0.0/24")

		By("a pod for each device")
		pods := s.withDevices(ctx, "a", each)
		first := s.expectDevices(ctx, pods)

		By("kills, while pods end and others start")
		Expect(drivers[0].Kill()).To(Succeed())
		killAgents(ctx)
		Expect(c.Nodes[1].Kubelet.Kill()).To(Succeed())
		for _, p := range pods {
			Expect(kube.Delete(ctx, p)).To(Succeed())
		}
		Expect(drivers[0].Start(ctx)).To(Succeed())
		Expect(c.Nodes[1].Kubelet.Start(ctx)).To(Succeed())
		for _, p := range pods {
			stop(ctx, p)
		}
		for _, n := range c.Nodes {
			makeNICs(n, each)
		}
		pods = s.withDevices(ctx, "b", each)
		second := s.expectDevices(ctx, pods)
		GinkgoWriter.Printf("addresses: %v, then %v\n", first, second)

		By("pods that end while no agent is there: the driver does not repeat its word")
		s.agents(ctx, `{"tenure.dev/none":"none"}`)
		for _, p := range pods {
			stop(ctx, p)
		}
		s.agents(ctx, `{"tenure.dev/none":null}`)
		Eventually(func(g Gomega) {
			var leases v1alpha1.IPLeaseList
			g.Expect(kube.List(ctx, &leases)).To(Succeed())
			for _, l := range leases.Items {
				if l.Spec.Pool == s.namespace+"-fabric" {
					g.Expect(l.Status.Allocations).To(BeEmpty(), "lease %s", l.Name)
				}
			}
		}).Should(Succeed(), "nobody has an address any more")
	})

	It("have addresses line by line, docs/howto/resource-claims.md", inProof, func(ctx context.Context) {
		serveDRA(ctx)
		for _, n := range c.Nodes {
			makeNICs(n, 1)
			dranet(ctx, n)
		}
		pod := client.ObjectKey{Namespace: "default", Name: "with-nic"}
		DeferCleanup(func(ctx context.Context) { // the driver has to let go of what it has: later nobody does
			Eventually(func() bool { return apierrors.IsNotFound(kube.Get(ctx, pod, new(corev1.Pod))) }).Should(BeTrue(), "the page's pod is gone")
		})
		followPage(ctx, "howto/resource-claims.md", "A ResourceClaim with an address", "What a profile can be",
			"pod/with-nic", "resourceclaimtemplate/fabric", "deviceclass/dranet", "ippool/fabric")

		var p corev1.Pod
		Expect(kube.Get(ctx, pod, &p)).To(Succeed())
		Expect(ours.ResourceClaimsOf(&p)).To(HaveLen(1))
		Eventually(func(g Gomega) {
			var claim resource.ResourceClaim
			g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: ours.ResourceClaimsOf(&p)[0]}, &claim)).To(Succeed())
			g.Expect(claim.Status.Devices).To(HaveLen(1))
			g.Expect(claim.Status.Devices[0].NetworkData.IPs).To(HaveExactElements(HavePrefix("10.84.0.")))
		}).Should(Succeed(), "the driver says which address the device has")
	})
})

// serveDRA has the agents serve DRANET until the spec ends.
func serveDRA(ctx context.Context) {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	_, err = c.Kubectl(ctx, "", "apply", "-f", filepath.Join(root, "deploy/dra/rbac.yaml"))
	Expect(err).NotTo(HaveOccurred())
	set := func(ctx context.Context, value string) {
		GinkgoHelper()
		for _, args := range [][]string{
			{"set", "env", "daemonset/tenured", "--containers=tenured", "DRA_SOCKET" + value, "-n", "tenure-system"},
			{"rollout", "status", "daemonset/tenured", "-n", "tenure-system", "--timeout=5m"},
		} {
			_, err := c.Kubectl(ctx, "", args...)
			Expect(err).NotTo(HaveOccurred())
		}
	}
	set(ctx, "="+draSocket)
	DeferCleanup(func(ctx context.Context) { set(ctx, "-") })
}

// makeNICs makes devices nic1, nic2 and so on of a node on the cable between the nodes, those that
// are not there: the kernel deletes such a one with the network namespace that it is in, where a
// real device comes back.
func makeNICs(n *cluster.Node, many int) {
	GinkgoHelper()
	nic := func(i int) netlink.LinkAttrs { return netlink.LinkAttrs{Name: fmt.Sprintf("nic%d", i+1)} }
	Expect(n.Do(func() error {
		cable, err := netlink.LinkByName("eth1")
		if err != nil {
			return err
		}
		for i := range many {
			l := &netlink.Macvlan{LinkAttrs: nic(i), Mode: netlink.MACVLAN_MODE_BRIDGE}
			l.ParentIndex = cable.Attrs().Index
			if add := netlink.LinkAdd(l); !errors.Is(add, fs.ErrExist) {
				err = errors.Join(err, add)
			}
		}
		return err
	})).To(Succeed())
	DeferCleanup(func() error {
		return n.Do(func() error {
			for i := range many {
				_ = netlink.LinkDel(&netlink.Macvlan{LinkAttrs: nic(i)}) // it may have gone with a pod
			}
			return nil
		})
	})
}

// dranet runs the driver on a node, where it asks the agent, until the spec ends.
func dranet(ctx context.Context, n *cluster.Node) *process.Process {
	GinkgoHelper()
	// As an administrator, by the way to the API server that the kubelet goes.
	i := slices.Index(n.Kubelet.Args, "--kubeconfig")
	kubelets, err := clientcmd.BuildConfigFromFlags("", n.Kubelet.Args[i+1])
	Expect(err).NotTo(HaveOccurred())
	as := c.Config()
	as.Host = kubelets.Host
	dir := filepath.Dir(n.Kubelet.Log)
	kubeconfig := filepath.Join(dir, "dranet.kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, as)).To(Succeed())

	cmd := n.Command(ctx, "dranet", "--kubeconfig", kubeconfig, "--hostname-override", n.Name, "--cloud-provider-hint=NONE",
		"--profile-provider=webhook", "--webhook-url=unix://"+draSocket, "--bind-address=127.0.0.1:9177", "--v=4")
	p := &process.Process{
		Name: "dranet on " + n.Name, Path: cmd.Path, Args: cmd.Args[1:], Env: cmd.Env, Log: filepath.Join(dir, "dranet.log"),
		Exec: func(cmd *exec.Cmd) error { return n.Do(cmd.Start) },
		Ready: func(ctx context.Context) error {
			said, err := fetch(n, "http://127.0.0.1:9177/healthz")
			if err == nil {
				err = said.Close()
			}
			return err
		},
	}
	Eventually(func() error { // the agent's socket may not be there yet
		return p.Start(ctx)
	}).Should(Succeed())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println(p.Tail())
		}
		Expect(p.Kill()).To(Succeed())
	})
	return p
}

// deviceTemplate makes a pool, and what a pod asks for one of the node's devices by.
func (s site) deviceTemplate(ctx context.Context, cidr string) {
	GinkgoHelper()
	text := fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %[1]s-fabric}
spec: {ranges: [{cidr: %[2]s}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %[1]s}
spec:
  selectors:
  - cel: {expression: 'device.driver == "dra.net" && device.attributes["dra.net"].ifName.startsWith("nic")'}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: fabric, namespace: %[1]s}
spec:
  spec:
    devices:
      requests: [{name: nic, exactly: {deviceClassName: %[1]s}}]
      config:
      - opaque: {driver: dra.net, parameters: {profile: tenure.dev/%[1]s-fabric, interface: {name: net1}}}
`, s.namespace, cidr)
	_, err := c.Kubectl(ctx, text, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error {
		return kube.Delete(ctx, &resource.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	})
}

// withDevices makes so many pods for each node, each with a device of its own, and waits until
// they run.
func (s site) withDevices(ctx context.Context, name string, each int) (pods []*corev1.Pod) {
	GinkgoHelper()
	template := "fabric"
	for _, n := range c.Nodes {
		for i := range each {
			p := s.pod(fmt.Sprintf("%s-%s-%d", name, n.Name, i), "", "")
			p.Annotations = nil
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Name}
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic", ResourceClaimTemplateName: &template}}
			p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "nic"}}
			Expect(kube.Create(ctx, p)).To(Succeed())
			pods = append(pods, p)
		}
	}
	for _, p := range pods {
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
		}).Should(Succeed(), "pod %s runs", p.Name)
	}
	return pods
}

// expectDevices checks that each pod has a device with an address of its own, as the pod sees it,
// its ResourceClaim shows it, and the agent has it. It returns the addresses.
func (s site) expectDevices(ctx context.Context, pods []*corev1.Pod) (all []string) {
	GinkgoHelper()
	has := apart(ctx, pods...)
	for _, p := range pods {
		names := ours.ResourceClaimsOf(p)
		Expect(names).To(HaveLen(1))
		Eventually(func(g Gomega) {
			var claim resource.ResourceClaim
			g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: names[0]}, &claim)).To(Succeed())
			g.Expect(claim.Status.Devices).To(HaveLen(1))
			g.Expect(claim.Status.Devices[0].NetworkData).NotTo(BeNil())
			g.Expect(claim.Status.Devices[0].NetworkData.IPs).To(ContainElement(has[p.Name].String()))
		}).WithTimeout(time.Minute).Should(Succeed(), "the ResourceClaim of %s", p.Name)
		all = append(all, has[p.Name].Addr().String())
	}
	Eventually(func(g Gomega) {
		var leases v1alpha1.IPLeaseList
		g.Expect(kube.List(ctx, &leases)).To(Succeed())
		said := ""
		for _, l := range leases.Items {
			said += strings.Join(l.Status.Allocations, "\n") + "\n"
		}
		for _, p := range pods {
			g.Expect(said).To(ContainSubstring(fmt.Sprintf("%s %s/%s ", has[p.Name].Addr(), p.Namespace, p.Name)))
		}
	}).Should(Succeed(), "nodes say who has which address")
	return all
}

// agents has agents run where a node has a label, and waits for that.
func (s site) agents(ctx context.Context, selector string) {
	GinkgoHelper()
	_, err := c.Kubectl(ctx, "", "patch", "daemonset", "tenured", "-n", "tenure-system", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
	Expect(err).NotTo(HaveOccurred())
	_, err = c.Kubectl(ctx, "", "rollout", "status", "daemonset/tenured", "-n", "tenure-system", "--timeout=5m")
	Expect(err).NotTo(HaveOccurred())
	if strings.Contains(selector, "null") {
		return
	}
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(kube.List(ctx, &pods, client.InNamespace("tenure-system"), client.MatchingLabels{"app.kubernetes.io/name": "tenured"})).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	}).Should(Succeed(), "no agent is there")
}
