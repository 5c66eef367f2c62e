// Package vifs_test proves what the controller does about interfaces of pods that it decides, with
// the rights and policies that it is shipped with, on a real API server with the real garbage
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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cp   *controlplane.ControlPlane
	kc   client.Client // an administrator's
	role *rest.Config  // the controller's
	// stop ends the controller that runs.
	stop = func() error { return nil }
)

// Namespaces of the tests: pods are of the one, and definitions for everybody of the other.
const team, infra = "team", "infra"

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, kc = c.ControlPlane, c.Client
		accounts, err := fleet.Install(ctx, cp, kc, "policies")
		if err != nil {
			return 0, err
		}
		role = accounts.Controller
		err = c.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: infra}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{"team": "blue"}}},
			// No controller makes the service account that pods need.
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: team}},
		)
		if err != nil {
			return 0, err
		}
		if err := start(ctx, true); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return m.Run(), nil
	}))
}

// start ends the controller that runs, and runs another.
func start(ctx context.Context, served bool, more ...func(*controller.Config)) (err error) {
	if err := stop(); err != nil {
		return err
	}
	stop, err = run(ctx, served, more...)
	return err
}

// run runs a controller beside others.
func run(ctx context.Context, served bool, more ...func(*controller.Config)) (stop func() error, err error) {
	cfg := controller.DefaultConfig()
	cfg.VIFs = served
	for _, change := range more {
		change(&cfg)
	}
	return fleet.RunController(ctx, cfg, role, slog.New(slog.DiscardHandler))
}

// restart is start for one test. Afterwards the controller is as the other tests have it.
func restart(t *testing.T, served bool, more ...func(*controller.Config)) {
	t.Helper()
	if err := start(context.Background(), served, more...); err != nil {
		t.Fatal(err)
	}
	if served && len(more) == 0 {
		return
	}
	t.Cleanup(func() {
		if err := start(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
}
