// Package scenario_test proves what the clusters of other IPAMs' users have taught,
// case by case: the controller and the agents of many nodes on a real API server,
// with the rights that they are shipped with, every answer seen by an observer.
package scenario_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cp       *controlplane.ControlPlane
	api      *kube.API
	kc       client.Client
	accounts fleet.Accounts
)

// controllerMetrics is where the controller serves its metrics, in the sandbox's own network.
const controllerMetrics = "127.0.0.1:9473"

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, api, kc = c.ControlPlane, c.API, c.Client
		if accounts, err = fleet.Install(ctx, cp, kc); err != nil {
			return 0, err
		}
		stop, err := fleet.StartMeasured(ctx, accounts.Controller, controllerMetrics)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return m.Run(), nil
	}))
}

var eventually = fleet.Eventually
