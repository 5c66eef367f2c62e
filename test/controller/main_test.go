// Package controller_test proves the cluster controller against a real API server
// and the real garbage collector. It runs with the rights that it is shipped with.
package controller_test

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cp   *controlplane.ControlPlane
	api  *kube.API
	kc   client.WithWatch
	role *rest.Config // of the controller's service account
)

func TestMain(m *testing.M) {
	o := controlplane.Options{
		CRDs:        []string{"../../deploy/crds", "../../deploy/crds/upstream", "../kubevirt/crds"},
		Controllers: []string{controlplane.GarbageCollector, controlplane.ServiceAccounts},
	}
	os.Exit(fleet.Main(o, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, api, kc = c.ControlPlane, c.API, c.Client
		if err := fleet.InstallRoles(ctx, kc); err != nil {
			return 0, err
		}
		if role, err = cp.ServiceAccount(ctx, kube.DefaultRegistrationNamespace, "tenure-controller", nil); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

var (
	eventually = fleet.Eventually
	condition  = fleet.Condition
)

// quick is the controller's configuration for tests.
func quick() controller.Config {
	c := controller.DefaultConfig()
	c.LeaderElection, c.Health, c.Metrics = false, "", ""
	c.CountsEvery, c.Idle = 2*time.Second, 6*time.Second
	return c
}

// start runs a controller until the test ends, or the returned function is called.
func start(t testing.TB, change ...func(*controller.Config)) (stop func()) {
	t.Helper()
	cfg := quick()
	for _, f := range change {
		f(&cfg)
	}
	var log locked
	end, err := fleet.RunController(context.Background(), cfg, role, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		if err := end(); err != nil {
			t.Errorf("the controller ends with %v", err)
		}
		if t.Failed() {
			t.Logf("the controller's log:\n%s", log.tail(8000))
		}
	}
	t.Cleanup(stop)
	return stop
}

// always fails the test if check returns an error within the time.
func always(t testing.TB, during time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(during); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
}

// namespace makes a namespace.
func namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("ns")}}
	fleet.Create(t, kc, ns)
	return ns.Name
}

// remove deletes an object, if it is there.
func remove(t testing.TB, o client.Object) {
	t.Helper()
	if err := kc.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}
