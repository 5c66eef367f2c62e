package e2e_test

import (
	"context"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var _ = Describe("A Service", func() {
	It("leads to all pods behind it, from pods on every node that have a network of Tenure's beside", onPlatforms, func(ctx context.Context) {
		s := newSite(ctx)
		s.network(ctx, "lan", "10.26.0.0/24", acrossNodes)
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": "web"},
				Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
			},
		}
		Expect(kube.Create(ctx, service)).To(Succeed())
		var behind, before []*corev1.Pod
		for _, n := range c.Nodes {
			p := s.pod("web-"+n.Name, n.Name, "lan")
			p.Labels = service.Spec.Selector
			Expect(kube.Create(ctx, p)).To(Succeed())
			behind = append(behind, p)
			before = append(before, s.start(ctx, "client-"+n.Name, n.Name, "lan"))
		}
		awaitRunning(ctx, append(behind, before...)...)
		at := netip.MustParseAddr(service.Spec.ClusterIP)
		for _, from := range before {
			for _, to := range behind {
				Eventually(func() (string, error) { return askPort(ctx, from, at, 80) }).Should(
					ContainSubstring("eth0 "+to.Status.PodIP+"/"), "%s reaches %s", from.Name, to.Name)
			}
		}
	})
})
