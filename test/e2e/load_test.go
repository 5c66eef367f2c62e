package e2e_test

import (
	"context"
	"fmt"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// load creates pods on all nodes and claims of the network lan, and deletes every
// second pod when it runs, until done yields, without an error; for a few rounds at
// least, and no more than nodes have room for. It returns the pods and the claims that
// are left.
func (s site) load(ctx context.Context, done <-chan error) (pods []*corev1.Pod, claims []string) {
	const atLeast, atMost = 3, 20
	for i := range atMost {
		for _, n := range c.Nodes {
			goes := s.start(ctx, fmt.Sprintf("goes-%d-%s", i, n.Name), n.Name, "lan")
			pods = append(pods, s.start(ctx, fmt.Sprintf("stays-%d-%s", i, n.Name), n.Name, "lan"))
			awaitRunning(ctx, goes)
			Expect(kube.Delete(ctx, goes)).To(Succeed())
		}
		claims = append(claims, s.claim(ctx, fmt.Sprintf("claim-%d", i), "lan"))
		if i+1 < atLeast {
			continue
		}
		select {
		case err := <-done:
			Expect(err).NotTo(HaveOccurred())
			return pods, claims
		default:
		}
	}
	var err error
	Eventually(done).Should(Receive(&err))
	Expect(err).NotTo(HaveOccurred())
	return pods, claims
}

// claim makes a claim of a network of the site, and returns its name.
func (s site) claim(ctx context.Context, name, network string) string {
	claim := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       ipamclaims.IPAMClaimSpec{Network: s.namespace + "-" + network},
	}
	Expect(kube.Create(ctx, claim)).To(Succeed())
	return name
}

// granted waits until a claim has its one address, and returns it.
func (s site) granted(ctx context.Context, name string) string {
	var claim ipamclaims.IPAMClaim
	Eventually(func(g Gomega) {
		g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, &claim)).To(Succeed())
		g.Expect(claim.Status.IPs).To(HaveLen(1))
	}).Should(Succeed(), "claim %s has an address", name)
	return claim.Status.IPs[0]
}
