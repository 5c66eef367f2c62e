// Package e2e_test proves Tenure on a real cluster: installed from deploy/ as a user
// installs it, with real kubelets, containerd and pods.
package e2e_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	ours "github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/cluster"
)

var (
	c    *cluster.Cluster
	kube client.Client
	// failed says that something has, so that the cluster's logs are wanted.
	failed bool
)

// inProof marks the specs that make e2e leaves to make proof: upgrades, power switches, drains,
// bursts, and what waits long.
var inProof = Label("proof")

// onPlatforms marks the specs that make proof runs again on other versions of Kubernetes, and on
// clusters of IPv6 and of both families.
var onPlatforms = Label("platforms")

var _ = ReportAfterEach(func(r SpecReport) { failed = failed || r.Failed() })

func TestMain(m *testing.M) { os.Exit(cluster.Main(m.Run)) }

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Tenure on a real cluster")
}

// How long things may take on a machine that is busy with others.
const (
	patience = 5 * time.Minute
	often    = 100 * time.Millisecond
)

var _ = BeforeSuite(func(ctx context.Context) {
	ctrllog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(often)
	say := func(format string, args ...any) { GinkgoWriter.Printf(format+"\n", args...) }
	began := time.Now()
	images, err := cluster.BuildImages(ctx)
	Expect(err).NotTo(HaveOccurred())
	say("images of Tenure (%v)", time.Since(began).Round(time.Second))
	c, err = cluster.Start(ctx, cluster.Options{Nodes: 2, Images: images, Say: say})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	DeferCleanup(func() {
		if failed {
			GinkgoWriter.Println(c.Logs())
		}
	})
	_, kube, err = ours.Dial(c.Config())
	Expect(err).NotTo(HaveOccurred())
	failed = true // until what follows has worked
	Expect(c.Install(ctx)).To(Succeed())
	failed = false
})
