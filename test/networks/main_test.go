// Package podnetworks_test proves what the controller does for PodNetworks and their attachments,
// with the rights and policies that it is shipped with, on a real API server with the real garbage
// collector.
package networks_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cp       *controlplane.ControlPlane
	kc       client.Client // an administrator's
	accounts fleet.Accounts
	// stop ends the controller that runs.
	stop = func() error { return nil }
)

// Namespaces of the tests.
const infra, team = "infra", "team"

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, kc = c.ControlPlane, c.Client
		if accounts, err = fleet.Install(ctx, cp, kc, "policies"); err != nil {
			return 0, err
		}
		err = c.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: infra}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}},
			// No controller makes the service account that pods need.
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: team}},
		)
		if err != nil {
			return 0, err
		}
		if err := start(ctx, true, true); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return m.Run(), nil
	}))
}

// start ends the controller that runs, and runs another.
func start(ctx context.Context, multiNetwork, keepDefault bool) (err error) {
	if err := stop(); err != nil {
		return err
	}
	cfg := controller.DefaultConfig()
	cfg.MultiNetwork, cfg.DefaultPodNetwork = multiNetwork, keepDefault
	stop, err = fleet.RunController(ctx, cfg, accounts.Controller, slog.New(slog.DiscardHandler))
	return err
}

// restart is start for one test. Afterwards the controller is as the other tests have it.
func restart(t *testing.T, multiNetwork, keepDefault bool) {
	t.Helper()
	if err := start(context.Background(), multiNetwork, keepDefault); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := start(context.Background(), true, true); err != nil {
			t.Error(err)
		}
	})
}
