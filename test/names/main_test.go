// Package names_test proves what the controller does for Services that name addresses on secondary
// networks, with the rights and policies that it is shipped with, on a real API server with the
// real garbage collector, and beside Kubernetes' own controller of EndpointSlices.
package names_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	kc   client.Client // an administrator's
	role *rest.Config  // the controller's
	// stop ends the controller that runs.
	stop = func() error { return nil }
)

// Namespaces of the tests: Services and pods are of the one, definitions for everybody of the
// other.
const team, infra = "team", "infra"

func TestMain(m *testing.M) {
	o := controlplane.Options{Controllers: []string{controlplane.GarbageCollector, "endpointslice-controller"}}
	os.Exit(fleet.Main(o, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		kc = c.Client
		accounts, err := fleet.Install(ctx, c.ControlPlane, kc, "policies", "names/role.yaml")
		if err != nil {
			return 0, err
		}
		role = accounts.Controller
		err = c.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: infra}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{"team": "blue"}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelTopologyZone: "east"}}},
			// No controller makes the service account that pods need.
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: team}},
		)
		if err != nil {
			return 0, err
		}
		if err := start(ctx); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return m.Run(), nil
	}))
}

// start runs a controller, which ends with stop.
func start(ctx context.Context) (err error) {
	cfg := controller.DefaultConfig()
	cfg.Names, cfg.MultiNetwork, cfg.Webhooks = true, true, ""
	stop, err = fleet.RunController(ctx, cfg, role, slog.New(slog.DiscardHandler))
	return err
}
