package e2e_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// What users of whereabouts have written, with the type changed and nothing else.
var _ = Describe("Networks as whereabouts has them", func() {
	var s site
	BeforeEach(func(ctx context.Context) { s = newSite(ctx) })

	// network applies a network with the given keys beside the IPAM plugin's type.
	network := func(ctx context.Context, name, ipam string) {
		_, err := c.Kubectl(ctx, fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "%[1]s-%[2]s", %[3]s, "ipam": {"type": "tenure", %[4]s}}
`, s.namespace, name, acrossNodes, ipam), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	}
	// pair starts a pod on each node and returns all addresses of net1 and net2.
	pair := func(ctx context.Context, networks string) (one, two []string) {
		GinkgoHelper()
		var pods []*corev1.Pod
		for _, n := range c.Nodes {
			pods = append(pods, s.start(ctx, "pod-"+n.Name, n.Name, networks))
		}
		awaitRunning(ctx, pods...)
		for _, p := range pods {
			has := status(p)
			one, two = append(one, has["net1"].IPs...), append(two, has["net2"].IPs...)
		}
		return one, two
	}

	It("have two interfaces of one pod, of both families, from range and ipRanges", onPlatforms, func(ctx context.Context) {
		network(ctx, "lan", `"range": "10.47.0.0/29", "ipRanges": [{"range": "fd00:47::/125"}]`)
		one, two := pair(ctx, "lan,lan")
		all := map[string]bool{}
		for _, ip := range append(one, two...) {
			all[ip] = true
		}
		Expect(all).To(HaveLen(8), "4 interfaces with 2 addresses each: %v, %v", one, two)
	})

	It("have different addresses where their ranges overlap", func(ctx context.Context) {
		network(ctx, "wide", `"range": "10.48.0.0/24", "range_start": "10.48.0.10", "range_end": "10.48.0.13"`)
		network(ctx, "narrow", `"range": "10.48.0.0/24", "range_start": "10.48.0.12", "range_end": "10.48.0.15"`)
		one, two := pair(ctx, "wide,narrow")
		all := map[string]bool{}
		for _, ip := range append(one, two...) {
			all[ip] = true
		}
		Expect(all).To(HaveLen(4), "4 interfaces: %v, %v", one, two)
	})

	It("have the same addresses in two domains", func(ctx context.Context) {
		for _, name := range []string{"red", "blue"} {
			network(ctx, name, fmt.Sprintf(`"range": "10.49.0.0/30", "network_name": "%s-%s"`, s.namespace, name))
		}
		one, two := pair(ctx, "red,blue")
		Expect(one).To(ConsistOf("10.49.0.1", "10.49.0.2"))
		Expect(two).To(ConsistOf("10.49.0.1", "10.49.0.2"))
	})
})
