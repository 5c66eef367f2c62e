// Package scale_test runs the agents of many nodes and a controller, all with the
// settings that they are shipped with, on one real API server, and reports what each
// node costs: calls, bytes and time, of ADDs in a burst, claims, restarts and a pool
// that is filled to its last address. Nothing of it may grow with the number of nodes.
//
// TENURE_SCALE_NODES says of how many nodes, one run each, such as "100,300,1000";
// without it the runs are small, as make test needs them, and what is idle is given back
// within seconds. TENURE_SCALE_IDLE says for how long a cluster is watched in which
// nothing happens, and TENURE_SCALE_LEASES among how many leases a node looks for its own.
package scale_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cluster *fleet.Cluster
	cp      *controlplane.ControlPlane
	// api and kc are an administrator's.
	api *kube.API
	kc  client.WithWatch

	// ofAgents and ofController count what agents and controller ask of the API server.
	ofAgents, ofController = newTraffic(), newTraffic()
	agents                 *rest.Config
	accounts               fleet.Accounts
	// stopController stops the controller that runs in this process.
	stopController func() error
)

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cluster, cp, api, kc = c, c.ControlPlane, c.API, c.Client
		if accounts, err = fleet.Install(ctx, cp, c.Client); err != nil {
			return 0, err
		}
		agents = ofAgents.counted(accounts.Agent)
		if err := launchController(ctx); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stopController()) }()
		return m.Run(), nil
	}))
}

// idleQuick is after how long what is idle is given back in a small run.
const idleQuick = 2 * time.Second

// quick says that the run is a small one.
func quick() bool { return os.Getenv("TENURE_SCALE_NODES") == "" }

// launchController runs a controller that has no rival until stopController is called.
func launchController(ctx context.Context) (err error) {
	cfg := controller.DefaultConfig()
	if quick() {
		cfg.Idle = idleQuick
	}
	stopController, err = fleet.RunController(ctx, cfg, ofController.counted(accounts.Controller), slog.New(slog.DiscardHandler))
	return err
}
