// Package workload_test proves what workloads see of Tenure as a whole: the
// controller and many nodes' agents, on a real API server with the real garbage
// collector, every answer seen by an observer.
package workload_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/ipam/controller"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

var (
	cp  *controlplane.ControlPlane
	api *cluster.API
	kc  client.Client
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(sandbox.Options{}, func() int {
		code, err := run(context.Background(), m)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	ctrllog.SetLogger(logr.Discard())
	cp, err = controlplane.Start(ctx, controlplane.Options{
		CRDs: []string{"../../deploy/crds", "../../deploy/crds/upstream"}, Controllers: []string{controlplane.GarbageCollector},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	if api, kc, err = cluster.Dial(cp.Config()); err != nil {
		return 0, err
	}
	// No controller makes the service account that pods need.
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultSeatNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}},
	} {
		if err := kc.Create(ctx, o); err != nil {
			return 0, err
		}
	}
	stop, err := startController(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return m.Run(), nil
}

// startController runs the one controller of this package.
func startController(ctx context.Context) (stop func() error, err error) {
	cfg := controller.DefaultConfig()
	cfg.LeaderElection, cfg.Health, cfg.Metrics = false, "", ""
	cfg.CountsEvery, cfg.Idle = time.Second, 2*time.Second
	c, err := controller.New(cfg, cp.Config(), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() error { cancel(); return <-done }, nil
}
