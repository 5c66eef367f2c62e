package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/monitoring"
	"github.com/tenure-ipam/tenure/test/programs"
)

var _ = It("Prometheus answers what dashboards ask while pods come and go, and alerts fire by their causes and end with them", inProof, func(ctx context.Context) {
	settle(ctx)
	s, n := newSite(ctx), c.Nodes[1]
	listenOutside(ctx)
	server := startPrometheus(ctx)
	s.network(ctx, "lan", "10.102.0.0/24", acrossNodes)
	s.network(ctx, "tiny", "10.103.0.0/30", acrossNodes)
	s.network(ctx, "closed", "10.104.0.0/24", acrossNodes)
	loaded := make(chan error, 1)
	time.AfterFunc(15*time.Second, func() { loaded <- nil })
	pods, _ := s.load(ctx, loaded)
	awaitRunning(ctx, pods...)
	Eventually(server.Firing).WithContext(ctx).Should(BeEmpty(), "alerts, while nothing is wrong")

	held := fmt.Sprintf(`[{"name": "lan", "ips": [%q]}]`, status(pods[0])["net1"].IPs[0])
	refused := s.start(ctx, "refused", n.Name, held)
	Eventually(func() ([]string, error) { return told(ctx, refused, "FailedCreatePodSandBox") }).Should(ContainElement(ContainSubstring("in use by")))
	for i := range 3 { // of two addresses
		s.claim(ctx, fmt.Sprintf("tiny-%d", i), "tiny")
	}
	closed := s.namespace + "-closed"
	s.kubectl(ctx, "patch", "ippool", closed, "--type=merge", "--patch", `{"spec": {"allocation": "Stopped"}}`)
	first := n.Path("/etc/cni/net.d/00-another.conflist")
	others, err := os.ReadFile(n.Path("/etc/cni/net.d/10-pods.conflist"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(first, others, 0o600)).To(Succeed())
	// Where the spec ends before it does so itself.
	DeferCleanup(func() { _ = os.Remove(first) })
	fires(ctx, server, "TenurePoolFull", "TenureAsksWait", "TenurePoolClosed", "TenureAttachNotConfigured")
	missed := s.start(ctx, "missed", n.Name, "lan")
	fires(ctx, server, "TenurePodsMissed")
	Expect(os.Remove(first)).To(Succeed())

	const taint = corev1.TaintNodeOutOfService + "=nodeshutdown:NoSchedule"
	DeferCleanup(func(ctx context.Context) { _, _ = c.Kubectl(ctx, "", "taint", "node", n.Name, taint+"-") })
	s.kubectl(ctx, "taint", "node", n.Name, taint)
	fires(ctx, server, "TenureAgentNotServing")
	s.kubectl(ctx, "taint", "node", n.Name, taint+"-")
	fires(ctx, server, "TenureAddressesLost")
	panels, err := monitoring.Panels()
	Expect(err).NotTo(HaveOccurred())
	all, err := monitoring.Queries()
	Expect(err).NotTo(HaveOccurred())
	Eventually(server.WithoutData).WithArguments(slices.Concat(panels, monitoring.Named(all))).WithContext(ctx).Should(Succeed())

	s.kubectl(ctx, "patch", "ippool", closed, "--type=merge", "--patch", `{"spec": {"allocation": "Automatic"}}`)
	s.kubectl(ctx, "delete", "ipamclaims", "--all")
	for _, p := range append(pods, missed, refused) {
		stop(ctx, p)
	}
	Eventually(server.Firing).WithContext(ctx).Should(BeEmpty(), "alerts, when their causes are gone")
})

// fires waits until alerts fire.
func fires(ctx context.Context, server *monitoring.Prometheus, alerts ...string) {
	GinkgoHelper()
	Eventually(server.Firing).WithContext(ctx).Should(ContainElements(alerts))
}

// listenOutside has the agents serve their metrics on their nodes' addresses until the spec ends.
func listenOutside(ctx context.Context) {
	GinkgoHelper()
	roll := func(ctx context.Context, args ...string) {
		GinkgoHelper()
		for _, args := range [][]string{args, {"rollout", "status", "--timeout=3m", cluster.Agents}} {
			_, err := c.Kubectl(ctx, "", append([]string{"--namespace=tenure-system"}, args...)...)
			Expect(err).NotTo(HaveOccurred())
		}
	}
	roll(ctx, "patch", cluster.Agents, "--type=json", "--patch", `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--listen=:9471"}]`)
	DeferCleanup(func(ctx context.Context) { roll(ctx, "rollout", "undo", cluster.Agents) })
}

// startPrometheus starts one beside the cluster with the jobs of docs/operations/monitoring.md and
// the alerts that are shipped, which wait two seconds where they wait minutes. It ends with the
// spec. Debian's cannot ask an API server for pods: it is told those that are there.
func startPrometheus(ctx context.Context) *monitoring.Prometheus {
	GinkgoHelper()
	root, err := programs.Root()
	Expect(err).NotTo(HaveOccurred())
	page, err := os.ReadFile(filepath.Join(root, "docs/operations/monitoring.md"))
	Expect(err).NotTo(HaveOccurred())
	_, jobs, found := strings.Cut(string(page), "```yaml\nscrape_configs:\n")
	Expect(found).To(BeTrue())
	jobs, _, found = strings.Cut(jobs, "```")
	Expect(found).To(BeTrue())
	const asks = "  kubernetes_sd_configs:\n  - role: pod\n    namespaces: {names: [tenure-system]}\n"
	Expect(strings.Count(jobs, asks)).To(Equal(2))
	jobs = strings.ReplaceAll(jobs, asks, "  file_sd_configs: [{files: [pods.json]}]\n")

	path, err := monitoring.AlertsFile()
	Expect(err).NotTo(HaveOccurred())
	alerts, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	alerts = regexp.MustCompile(`(?m)^    for: .*$`).ReplaceAll(alerts, []byte("    for: 2s"))
	targets, err := json.Marshal(discovered(ctx))
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(dir, "alerts.yaml"), alerts, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "pods.json"), targets, 0o600)).To(Succeed())
	address, err := controlplane.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	server, err := monitoring.Prepare(dir, address, "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yaml]\nscrape_configs:\n"+jobs)
	Expect(err).NotTo(HaveOccurred())
	Expect(server.Start(ctx)).To(Succeed())
	DeferCleanup(server.Kill)
	return server
}

// targets are what Prometheus is told to read, with the labels by which it chooses.
type targets struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discovered returns what Prometheus finds in tenure-system where it asks the API server for pods:
// each port of each container, and each container without one.
func discovered(ctx context.Context) (all []targets) {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(kube.List(ctx, &pods, client.InNamespace("tenure-system"))).To(Succeed())
	for _, p := range pods.Items {
		for _, container := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			at := targets{[]string{p.Status.PodIP}, map[string]string{
				"__meta_kubernetes_pod_name": p.Name, "__meta_kubernetes_pod_ip": p.Status.PodIP,
				"__meta_kubernetes_pod_node_name": p.Spec.NodeName, "__meta_kubernetes_pod_container_name": container.Name,
				"__meta_kubernetes_pod_label_app_kubernetes_io_name": p.Labels["app.kubernetes.io/name"],
			}}
			if len(container.Ports) == 0 {
				all = append(all, at)
			}
			for _, port := range container.Ports {
				of := targets{[]string{net.JoinHostPort(p.Status.PodIP, fmt.Sprint(port.ContainerPort))}, maps.Clone(at.Labels)}
				of.Labels["__meta_kubernetes_pod_container_port_name"] = port.Name
				all = append(all, of)
			}
		}
	}
	return all
}
