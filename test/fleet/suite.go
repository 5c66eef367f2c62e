package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// A Cluster is the control plane that the tests of one package share, with an
// administrator's clients.
type Cluster struct {
	*controlplane.ControlPlane
	API    *kube.API
	Client client.WithWatch
}

// Main is the whole of a TestMain whose package needs a cluster: in a sandbox it
// starts a control plane that has the CRDs and collects garbage, unless o says
// otherwise, and calls run with it. It returns what the program is to exit with,
// which is run's code unless something fails.
func Main(o controlplane.Options, run func(context.Context, *Cluster) (code int, err error)) int {
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
	c, err := StartCluster(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	return run(ctx, c)
}

// StartCluster starts a control plane that has the CRDs and collects garbage, unless o
// says otherwise.
func StartCluster(ctx context.Context, o controlplane.Options) (*Cluster, error) {
	ctrllog.SetLogger(logr.Discard())
	root, err := programs.Root()
	if err != nil {
		return nil, err
	}
	if o.CRDs == nil {
		o.CRDs = []string{filepath.Join(root, "deploy/crds"), filepath.Join(root, "deploy/crds/upstream")}
	}
	if o.Controllers == nil {
		o.Controllers = []string{controlplane.GarbageCollector}
	}
	cp, err := controlplane.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	opts, err := kube.ClientOptions(cp.Config())
	if err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	kc, err := client.NewWithWatch(cp.Config(), opts)
	if err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return &Cluster{ControlPlane: cp, API: kube.NewAPI(kc), Client: kc}, nil
}

// AwaitClaims calls see for each claim of a namespace that is there, and for each change,
// until it returns true.
func (c *Cluster) AwaitClaims(ctx context.Context, namespace string, see func(*ipamclaims.IPAMClaim) (done bool)) error {
	claims := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			var list ipamclaims.IPAMClaimList
			return &list, c.Client.List(ctx, &list, &client.ListOptions{Namespace: namespace, Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Client.Watch(ctx, &ipamclaims.IPAMClaimList{}, &client.ListOptions{Namespace: namespace, Raw: &o})
		},
	}
	_, err := watchtools.UntilWithSync(ctx, claims, &ipamclaims.IPAMClaim{}, nil, func(e watch.Event) (bool, error) {
		claim, ok := e.Object.(*ipamclaims.IPAMClaim)
		return ok && see(claim), nil
	})
	return err
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

// StartController runs a controller that counts and gives back soon, until stop is called.
func StartController(ctx context.Context, as *rest.Config) (stop func() error, err error) {
	return StartMeasured(ctx, as, "")
}

// StartMeasured is StartController with the controller's metrics at an address.
func StartMeasured(ctx context.Context, as *rest.Config, metrics string) (stop func() error, err error) {
	cfg := controller.DefaultConfig()
	cfg.CountsEvery, cfg.Idle = time.Second, 2*time.Second
	return run(ctx, cfg, metrics, as, slog.New(slog.DiscardHandler))
}

// RunController runs a controller that has no rival, and listens nowhere, until stop is
// called.
func RunController(ctx context.Context, cfg controller.Config, as *rest.Config, log *slog.Logger) (stop func() error, err error) {
	return run(ctx, cfg, "", as, log)
}

func run(ctx context.Context, cfg controller.Config, metrics string, as *rest.Config, log *slog.Logger) (stop func() error, err error) {
	cfg.LeaderElection, cfg.Health, cfg.Metrics = false, "", metrics
	c, err := controller.New(cfg, as, log)
	if err != nil {
		return nil, err
	}
	return process.Go(ctx, c.Run).Stop, nil
}

// Amend changes a node's registration as its agent or a controller would, which may write it at the
// same time: change is made again to what is there then.
func Amend(t testing.TB, api *kube.API, node string, change func(*protocol.Registration)) {
	t.Helper()
	Eventually(t, 10*time.Second, func() error {
		reg, out, err := api.ReadRegistration(t.Context(), protocol.NodeName(node))
		if out == protocol.Done {
			change(&reg)
			_, out, err = api.UpdateRegistration(t.Context(), reg)
		}
		if out != protocol.Done {
			return fmt.Errorf("change registration %s: %v %w", node, out, err)
		}
		return nil
	})
}

// Eventually waits until check returns nil. So long it may take on a machine that has
// nothing else to do: that it took longer is logged. The test fails, with check's
// last error, only after a multiple of it, for a machine that runs other tests too is
// slower than any deadline foresees.
func Eventually(t testing.TB, within time.Duration, check func() error) {
	t.Helper()
	began := time.Now()
	if err := process.Await(context.Background(), max(3*within, time.Minute), func(context.Context) error { return check() }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > within {
		t.Logf("took %v; want %v", took.Round(time.Millisecond), within)
	}
}
