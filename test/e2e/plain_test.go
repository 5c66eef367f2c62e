package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/cluster"
)

var _ = Describe("plain", func() {
	It("runs a pod", func(ctx context.Context) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: cluster.PodImage}}}}
		Expect(kube.Create(ctx, p)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
		}).Should(Succeed())
		out, err := c.Kubectl(ctx, "", "exec", "plain", "--", "/pod", "addresses")
		Expect(err).NotTo(HaveOccurred())
		GinkgoWriter.Println(out)
	})
})
