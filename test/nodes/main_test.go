// Package nodes_test proves the agents of many nodes against a real API server with the real
// garbage collector. Agents and controller have the rights that they are shipped with, and an
// observer sees every answer. In the tests of files that begin with without_ no controller runs:
// they do themselves what it would do.
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
	cluster  *fleet.Cluster
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
		cluster, cp, api, kc = c, c.ControlPlane, c.API, c.Client
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

// controller has the controller run in this test, or has none run. Whoever makes a pool calls it,
// and a test without a pool by itself.
// Starting and ending one takes time, so tests that want the same stand together, by the names of
// their files.
func controller(t testing.TB, runs bool) {
	t.Helper()
	must(t, run(context.Background(), runs))
}

// run starts or ends the controller, unless that was done before.
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

var eventually = fleet.Eventually
