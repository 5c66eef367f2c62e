// Package nodes_test proves the agents of many nodes against a real API server with the real
// garbage collector: with the rights that they are shipped with, every answer seen by an observer.
// So does the controller run, but not in the tests of files that begin with without_: these say
// themselves what a controller would.
package nodes_test

import (
	"context"
	"errors"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cp       *controlplane.ControlPlane
	api      *kube.API
	kc       client.Client // an administrator's
	accounts fleet.Accounts
	// stop ends the controller that runs. It is nil while none does.
	stop func() error
)

// controllerMetrics is where the controller serves its metrics, in the sandbox's own network.
const controllerMetrics = "127.0.0.1:9473"

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, api, kc = c.ControlPlane, c.API, c.Client
		if accounts, err = fleet.Install(ctx, cp, kc); err != nil {
			return 0, err
		}
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, run(ctx, false)) }()
		return m.Run(), nil
	}))
}

// run starts or ends the controller, if it does not run, or not run, already.
func run(ctx context.Context, controller bool) (err error) {
	switch {
	case controller == (stop != nil):
	case controller:
		stop, err = fleet.StartMeasured(ctx, accounts.Controller, controllerMetrics)
	default:
		err, stop = stop(), nil
	}
	return err
}

// controller has the controller run, or not run, in this test. Whoever makes a pool calls it. The
// next test that wants it otherwise has to wait for that: so the files' names have those together
// that want the same.
func controller(t testing.TB, runs bool) {
	t.Helper()
	if err := run(context.Background(), runs); err != nil {
		t.Fatal(err)
	}
}

var eventually = fleet.Eventually
