package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/cluster"
)

// A site is a namespace of one spec with its networks. What is in it is deleted after
// the spec, and ends while the next one begins; whether anything is left, AfterSuite
// looks.
type site struct{ namespace string }

// newSite makes a namespace.
func newSite(ctx context.Context) site {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	Expect(kube.Create(ctx, ns)).To(Succeed())
	s := site{ns.Name}
	Eventually(func() error {
		return kube.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed(), "the namespace's service account")
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			s.describe(ctx)
		}
		Expect(kube.Delete(ctx, ns)).To(Succeed())
		s.deletePools(ctx)
	})
	return s
}

// deletePools deletes the pools of the site's networks: their leases come back as soon as
// they are empty, and not a minute later.
func (s site) deletePools(ctx context.Context) {
	GinkgoHelper()
	var pools v1alpha1.IPPoolList
	if err := kube.List(ctx, &pools); !apierrors.IsNotFound(err) { // where Tenure has been removed there are none
		Expect(err).NotTo(HaveOccurred())
	}
	for i := range pools.Items {
		if p := &pools.Items[i]; strings.HasPrefix(p.Name, s.namespace+"-") {
			Expect(client.IgnoreNotFound(kube.Delete(ctx, p))).To(Succeed())
		}
	}
}

// settle waits until the namespaces of earlier specs are gone, with all in them, and the pods that
// they have deleted in others: for specs beside which nothing else may happen.
func settle(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var all corev1.NamespaceList
		g.Expect(kube.List(ctx, &all)).To(Succeed())
		for _, ns := range all.Items {
			g.Expect(ns.DeletionTimestamp).To(BeNil(), "namespace %s is gone: %v", ns.Name, ns.Status.Conditions)
		}
		var pods corev1.PodList
		g.Expect(kube.List(ctx, &pods)).To(Succeed())
		for _, p := range pods.Items {
			g.Expect(p.DeletionTimestamp).To(BeNil(), "pod %s/%s is being deleted", p.Namespace, p.Name)
		}
	}).Should(Succeed())
}

// describe shows what has happened in the namespace.
func (s site) describe(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "pods,ipamclaims", "-n", s.namespace, "-o", "wide"},
		{"get", "events", "-n", s.namespace, "--sort-by=.lastTimestamp"},
		{"get", "ippools,ipleases,ipsubleases", "-o", "wide"},
		{"logs", "-n", "tenure-system", "-l", "app.kubernetes.io/name=tenured", "--tail=20", "--prefix"},
	} {
		out, err := c.Kubectl(ctx, "", args...)
		GinkgoWriter.Println(out, err)
	}
}

// network applies a pool with one range and a network on it of the given main plugin's
// keys, both of the given name.
func (s site) network(ctx context.Context, name, cidr, plugin string) {
	text := fmt.Sprintf(`
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: %[1]s-%[2]s}
spec: {ranges: [{cidr: %[3]s}]}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "%[1]s-%[2]s", %[4]s, "capabilities": {"ips": true},
     "ipam": {"type": "tenure", "pool": "%[1]s-%[2]s"}}
`, s.namespace, name, cidr, plugin)
	_, err := c.Kubectl(ctx, text, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// Main plugins: one network for all nodes, by the cable eth1, and one within a node.
const (
	acrossNodes = `"type": "macvlan", "master": "eth1", "mode": "bridge"`
	withinNode  = `"type": "bridge", "bridge": "` + innerBridge + `"`
	innerBridge = "br-e2e"
)

// pod returns a pod that is to run on node, anywhere if that is empty, and selects
// networks.
func (s site) pod(name, node, networks string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name, Annotations: map[string]string{npwg.AnnotationNetworks: networks},
		},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: cluster.PodImage}},
		},
	}
}

// start creates a pod.
func (s site) start(ctx context.Context, name, node, networks string) *corev1.Pod {
	p := s.pod(name, node, networks)
	Expect(kube.Create(ctx, p)).To(Succeed())
	return p
}

// run creates a pod and waits until it runs.
func (s site) run(ctx context.Context, name, node, networks string) *corev1.Pod {
	p := s.start(ctx, name, node, networks)
	awaitRunning(ctx, p)
	return p
}

// awaitRunning waits until pods run and have a status annotation, and brings them up
// to date.
func awaitRunning(ctx context.Context, pods ...*corev1.Pod) {
	GinkgoHelper()
	for _, p := range pods {
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			expectRunning(g, p)
		}).Should(Succeed(), "pod %s runs", p.Name)
	}
}

// expectRunning checks that a pod runs and has a status annotation.
func expectRunning(g Gomega, p *corev1.Pod) {
	g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
	g.Expect(p.Status.ContainerStatuses).NotTo(BeEmpty())
	g.Expect(p.Status.ContainerStatuses[0].Ready).To(BeTrue())
	g.Expect(p.Annotations).To(HaveKey(npwg.AnnotationStatus))
}

// stop deletes a pod and waits until it is gone.
func stop(ctx context.Context, p *corev1.Pod) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(kube.Delete(ctx, p))).To(Succeed())
	Eventually(func() bool {
		return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(p), p))
	}).Should(BeTrue(), "pod %s is gone", p.Name)
}

// addresses returns what the interfaces in a pod have, as the pod itself sees it, which
// says so on its network of the cluster to whoever asks on its node.
func addresses(ctx context.Context, p *corev1.Pod) map[string]netip.Prefix {
	GinkgoHelper()
	var found map[string]netip.Prefix
	Eventually(func(g Gomega) {
		var now corev1.Pod
		g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), &now)).To(Succeed())
		g.Expect(now.UID).To(Equal(p.UID))
		at, err := netip.ParseAddr(now.Status.PodIP)
		g.Expect(err).NotTo(HaveOccurred())
		said, err := fetch(c.Node(now.Spec.NodeName), "http://"+netip.AddrPortFrom(at, 8080).String())
		g.Expect(err).NotTo(HaveOccurred())
		defer said.Close()
		found = map[string]netip.Prefix{}
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			var name, address string
			_, err := fmt.Sscan(lines.Text(), &name, &address)
			g.Expect(err).NotTo(HaveOccurred())
			prefix, err := netip.ParsePrefix(address)
			g.Expect(err).NotTo(HaveOccurred())
			if _, more := found[name]; !more { // of eth0, that of the cluster's first family
				found[name] = prefix
			}
		}
		g.Expect(lines.Err()).NotTo(HaveOccurred())
	}).WithTimeout(time.Minute).Should(Succeed(), "%s says what it has", p.Name)
	return found
}

// ask returns what the pod p is answered at an address.
func ask(ctx context.Context, p *corev1.Pod, at netip.Addr) (string, error) {
	return askPort(ctx, p, at, 8080)
}

// askPort is ask at a port other than that at which pods answer.
func askPort(ctx context.Context, p *corev1.Pod, at netip.Addr, port uint16) (string, error) {
	return c.Kubectl(ctx, "", "exec", "-n", p.Namespace, p.Name, "--", "/pod", "get", netip.AddrPortFrom(at, port).String())
}

// apart checks that every pod has an address of its own on net1, and returns them by
// the pods' names.
func apart(ctx context.Context, pods ...*corev1.Pod) map[string]netip.Prefix {
	GinkgoHelper()
	has, by := map[string]netip.Prefix{}, map[netip.Prefix]string{}
	for _, p := range pods {
		at := addresses(ctx, p)["net1"]
		Expect(at.IsValid()).To(BeTrue(), "%s has an address on net1", p.Name)
		Expect(by).NotTo(HaveKey(at))
		has[p.Name], by[at] = at, p.Name
	}
	return has
}

// shown is apart by the pods' status annotations: it costs next to nothing.
func shown(pods ...*corev1.Pod) map[string]netip.Addr {
	GinkgoHelper()
	has, by := map[string]netip.Addr{}, map[netip.Addr]string{}
	for _, p := range pods {
		ips := status(p)["net1"].IPs
		Expect(ips).To(HaveLen(1), "%s shows an address on net1", p.Name)
		at := netip.MustParseAddr(ips[0])
		Expect(by).NotTo(HaveKey(at))
		has[p.Name], by[at] = at, p.Name
	}
	return has
}

// sandboxes returns the containers, running or not, that hold the pod's namespaces.
func sandboxes(ctx context.Context, p *corev1.Pod) (ids []string) {
	GinkgoHelper()
	out, err := c.Node(p.Spec.NodeName).Run(ctx, "ctr", "--namespace", "k8s.io", "containers", "list", "--quiet",
		fmt.Sprintf(`labels."io.kubernetes.pod.uid"==%s,labels."io.cri-containerd.kind"==sandbox`, p.UID))
	Expect(err).NotTo(HaveOccurred())
	return strings.Fields(string(out))
}

// killSandbox kills the one sandbox that a pod has, as the kernel does when memory is
// short, and returns it.
func killSandbox(ctx context.Context, p *corev1.Pod) string {
	GinkgoHelper()
	old := sandboxes(ctx, p)
	Expect(old).To(HaveLen(1))
	_, err := c.Node(p.Spec.NodeName).Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", old[0])
	Expect(err).NotTo(HaveOccurred())
	return old[0]
}

// awaitRestarted waits until a pod's container has been started again and is ready, and
// brings the pod up to date.
func awaitRestarted(ctx context.Context, p *corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.ContainerStatuses[0].RestartCount).To(BeNumerically(">", 0))
		g.Expect(p.Status.ContainerStatuses[0].Ready).To(BeTrue())
	}).Should(Succeed(), "pod %s runs again", p.Name)
}

// status returns a pod's network-status by interface.
func status(p *corev1.Pod) map[string]nad.NetworkStatus {
	GinkgoHelper()
	var all []nad.NetworkStatus
	Expect(json.Unmarshal([]byte(p.Annotations[npwg.AnnotationStatus]), &all)).To(Succeed())
	found := map[string]nad.NetworkStatus{}
	for _, s := range all {
		found[s.Interface] = s
	}
	return found
}

// told returns the messages of the Events about an object that have a reason.
func told(ctx context.Context, about client.Object, reason string) (messages []string, err error) {
	var events corev1.EventList
	err = kube.List(ctx, &events)
	for _, e := range events.Items {
		if e.InvolvedObject.UID == about.GetUID() && e.Reason == reason {
			messages = append(messages, e.Message)
		}
	}
	return messages, err
}
