package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/attach/names"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

var _ = Describe("A Service of a secondary network", func() {
	It("has the pods of a StatefulSet known to cluster DNS by their addresses there", onPlatforms, func(ctx context.Context) {
		s := newSite(ctx)
		s.network(ctx, "lan", "10.68.0.0/24", acrossNodes)
		Expect(kube.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "db", Annotations: map[string]string{names.AnnotationNetwork: "lan", names.AnnotationSelector: "app=db"}},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
		})).To(Succeed())
		s.statefulSet(ctx, "db", "lan", 2, nil)
		lookup := clusterDNS(ctx)
		service := fmt.Sprintf("db.%s.svc.cluster.local.", s.namespace)
		answers := func(pods []*corev1.Pod) {
			GinkgoHelper()
			has := shown(pods...)
			for name, addr := range has {
				Eventually(lookup).WithArguments(ctx, name+"."+service).Should(ConsistOf(addr))
			}
			Eventually(lookup).WithArguments(ctx, service).Should(ConsistOf(slices.Collect(maps.Values(has))))
		}
		pods := s.settled(ctx, "db", 2)
		answers(pods)

		before := pods[0].UID
		s.kubectl(ctx, "delete", "pod", "db-0")
		Eventually(func(g Gomega) {
			pods = s.look(ctx, g, "db", 2)
			g.Expect(pods[0].UID).NotTo(Equal(before))
		}).Should(Succeed())
		answers(pods)
	})
})

// clusterDNS runs CoreDNS, and returns what asks it for the addresses of a name.
func clusterDNS(ctx context.Context) func(ctx context.Context, name string) ([]netip.Addr, error) {
	GinkgoHelper()
	path, err := programs.Find("coredns")
	Expect(err).NotTo(HaveOccurred())
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	address := free.LocalAddr().String()
	Expect(free.Close()).To(Succeed())
	_, port, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())

	dir := GinkgoT().TempDir()
	corefile := fmt.Sprintf("cluster.local:%s {\n  errors\n  kubernetes cluster.local {\n    kubeconfig %s\n    ttl 0\n  }\n}\n", port, c.Kubeconfig())
	Expect(os.WriteFile(filepath.Join(dir, "Corefile"), []byte(corefile), 0o600)).To(Succeed())
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", address)
	}}
	p := &process.Process{
		Name: "coredns", Path: path, Args: []string{"-conf", filepath.Join(dir, "Corefile")}, Log: filepath.Join(dir, "coredns.log"),
		Ready: func(ctx context.Context) error {
			_, err := r.LookupNetIP(ctx, "ip", "kubernetes.default.svc.cluster.local.")
			return err
		},
	}
	Expect(p.Start(ctx)).To(Succeed())
	DeferCleanup(p.Stop)
	return func(ctx context.Context, name string) (addrs []netip.Addr, err error) {
		addrs, err = r.LookupNetIP(ctx, "ip", name)
		for i := range addrs {
			addrs[i] = addrs[i].Unmap()
		}
		return addrs, err
	}
}
