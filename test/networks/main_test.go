// Package networks_test proves which networks a pod gets, on a real API server with the real
// garbage collector, and with the roles, policies and webhooks that Tenure is shipped with: what
// the API server takes, what the controller does about PodNetworks, about pods that list them and
// about interfaces that it decides (VIFs), and what a node's agent tells the meta-plugin and
// writes on pods.
package networks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
)

var (
	cp       *controlplane.ControlPlane
	kc       client.WithWatch // an administrator's
	as       client.Client    // the controller's
	accounts fleet.Accounts
	// stop ends the controller that runs, if one does.
	stop = func() error { return nil }
	// changed says that it is not as most tests have it.
	changed bool
)

// Namespaces of the tests: pods are of the one, and what is for everybody of the other.
const team, infra = "team", "infra"

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, kc = c.ControlPlane, c.Client
		if accounts, err = fleet.Install(ctx, cp, kc, "policies"); err != nil {
			return 0, err
		}
		if as, err = client.New(accounts.Controller, client.Options{Scheme: kc.Scheme()}); err != nil {
			return 0, err
		}
		err = c.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: infra}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{"team": "blue"}}},
			serviceAccount(team),
		)
		if err != nil {
			return 0, err
		}
		if certificates, err = os.MkdirTemp(c.Dir(), "webhook"); err != nil {
			return 0, err
		}
		if err := errors.Join(installAdmission(ctx), awaitPolicies(ctx)); err != nil {
			return 0, err
		}
		if err := start(ctx); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return m.Run(), nil
	}))
}

// awaitPolicies returns when the API server enforces the policies, some moments after their
// creation: the last of them refuses a claim that the controller makes for nobody.
func awaitPolicies(ctx context.Context) error {
	return process.Await(ctx, minute, func(ctx context.Context) error {
		return refusal(as.Create(ctx, stray(), client.DryRunAll), ownedClaims)
	})
}

// ownedClaims are words of the policy that lets the controller make claims.
const ownedClaims = "those for interfaces of pods, which own them"

// stray returns a claim that nobody owns.
func stray() *ipamclaims.IPAMClaim {
	return &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "stray"}, Spec: ipamclaims.IPAMClaimSpec{Network: "x", Interface: "net1"}}
}

// start ends the controller that runs, and runs another one.
func start(ctx context.Context, change ...func(*controller.Config)) (err error) {
	if err := stop(); err != nil {
		return err
	}
	changed = len(change) > 0
	stop, err = run(ctx, change...)
	return err
}

// run runs a controller beside others, if one runs. It returns when the API server reaches its
// webhooks.
func run(ctx context.Context, change ...func(*controller.Config)) (stop func() error, err error) {
	cfg := controller.DefaultConfig()
	cfg.MultiNetwork, cfg.VIFs = true, true
	cfg.Webhooks, cfg.WebhookCertificate = fmt.Sprintf("localhost:%d", port), certificates
	for _, f := range change {
		f(&cfg)
	}
	if stop, err = fleet.RunController(ctx, cfg, accounts.Controller, slog.New(slog.DiscardHandler)); err == nil && cfg.MultiNetwork {
		err = awaitWebhooks(ctx)
	}
	return stop, err
}

// restart is start for one test. Afterwards the controller is as the other tests have it.
func restart(t *testing.T, change ...func(*controller.Config)) {
	t.Helper()
	alone(t)
	if err := start(context.Background(), change...); err != nil {
		t.Fatal(err)
	}
}

// alone leaves the cluster without a controller for one test, or until start is called.
func alone(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !changed {
			return
		}
		if err := start(context.Background()); err != nil {
			t.Error(err)
		}
	})
	changed = true
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
