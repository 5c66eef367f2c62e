package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// A Cluster is the control plane that the tests of one package share, with an
// administrator's clients.
type Cluster struct {
	*controlplane.ControlPlane
	API    *kube.API
	Client client.Client
}

// Main is the whole of a TestMain whose package needs a cluster: in a sandbox it
// starts a control plane that has the CRDs and collects garbage, unless o says
// otherwise, and calls run with it. It returns what the program is to exit with,
// which is run's code unless something fails.
func Main(o controlplane.Options, run func(context.Context, *Cluster) (code int, err error)) int {
	if o.CRDs == nil {
		o.CRDs = []string{"../../deploy/crds", "../../deploy/crds/upstream"}
	}
	if o.Controllers == nil {
		o.Controllers = []string{controlplane.GarbageCollector}
	}
	return sandbox.Main(sandbox.Options{}, func() int {
		code, err := withCluster(context.Background(), o, run)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	})
}

func withCluster(ctx context.Context, o controlplane.Options, run func(context.Context, *Cluster) (int, error)) (code int, err error) {
	ctrllog.SetLogger(logr.Discard())
	cp, err := controlplane.Start(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	c := &Cluster{ControlPlane: cp}
	if c.API, c.Client, err = kube.Dial(cp.Config()); err != nil {
		return 0, err
	}
	return run(ctx, c)
}

// Create creates objects, in order.
func (c *Cluster) Create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Client.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// StartController runs a controller that has no rival, and counts and gives back
// soon, until stop is called.
func StartController(ctx context.Context, as *rest.Config) (stop func() error, err error) {
	cfg := controller.DefaultConfig()
	cfg.LeaderElection, cfg.Health, cfg.Metrics = false, "", ""
	cfg.CountsEvery, cfg.Idle = time.Second, 2*time.Second
	c, err := controller.New(cfg, as, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() error { cancel(); return <-done }, nil
}

// Eventually waits until check returns nil. So long it may take on a machine that has
// nothing else to do: that it took longer is logged. The test fails, with check's
// last error, only after a multiple of it, for a machine that runs other tests too is
// slower than any deadline foresees.
func Eventually(t testing.TB, within time.Duration, check func() error) {
	t.Helper()
	began, most := time.Now(), max(3*within, time.Minute)
	for {
		err, took := check(), time.Since(began)
		switch {
		case err == nil && took > within:
			t.Logf("took %v; want %v", took.Round(time.Millisecond), within)
			return
		case err == nil:
			return
		case took > most:
			t.Fatalf("not within %v: %v", most, err)
		}
		time.Sleep(20 * time.Millisecond) // a poll of the outside world, bounded by the deadline
	}
}
