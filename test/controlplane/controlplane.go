package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// Options configures a control plane. The zero value is etcd and an API server
// without fsync.
type Options struct {
	// Dir is where data, keys and logs go. It is made if it does not exist,
	// and kept. Empty stands for a temporary directory that Stop removes.
	Dir string

	// Fsync has etcd wait for the disk, as in production, and as benchmarks
	// should; Dir then belongs on one ([sandbox.Disk]). Without it etcd
	// loses nothing when processes are killed, only when the machine is.
	Fsync bool

	// CRDs are files and directories of CustomResourceDefinitions to
	// install before Start returns, and before the controller manager
	// starts: it takes half a minute to notice later ones.
	CRDs []string

	// Controllers are the names of the controllers that
	// kube-controller-manager runs ("*" for its default set), for example
	// [GarbageCollector]. With none it is not started.
	Controllers []string

	// ControllerManagerArgs are added to the arguments of kube-controller-manager,
	// after ours.
	ControllerManagerArgs []string

	// DelayableEtcd puts a proxy between the API server and etcd, so that
	// [ControlPlane.DelayEtcd] can make etcd slow.
	DelayableEtcd bool

	// Address, if not empty, is an address of the sandbox at which real nodes
	// reach the API server, at port 6443. It is the endpoint of the Service
	// "kubernetes" at [ServiceAddress], which kube-proxy has lead there.
	Address string

	// ServiceRanges are those of Services, one of each family that the cluster has. Address is of
	// the first one's. Empty stands for one of IPv4.
	ServiceRanges []string

	// Scheduler starts kube-scheduler.
	Scheduler bool

	// APIServerArgs are added to the API server's arguments, after ours.
	APIServerArgs []string
}

// Names of the controllers that tests ask for most.
const (
	GarbageCollector = "garbage-collector-controller"
	Namespaces       = "namespace-controller"
	ServiceAccounts  = "serviceaccount-controller"
)

// ControlPlane is a running control plane. Its methods must not be called
// concurrently, except Config and AddUser.
type ControlPlane struct {
	o       Options
	dir     string
	tempDir bool
	pki     *pki
	admin   *rest.Config
	etcdURL string // of etcd itself, not of a proxy before it

	etcd, apiserver *process.Process
	kcm, scheduler  *process.Process // without a path if they were not asked for
	proxy           *delayProxy      // nil without Options.DelayableEtcd
}

// Start starts what o asks for and returns when it is ready and the CRDs are
// served. Ctx bounds the start alone. It refuses to run outside a sandbox.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	if !sandbox.Inside() {
		return nil, errors.New("controlplane: starts in a sandbox only, so that nothing of it is left: see sandbox.Main")
	}
	cp := &ControlPlane{o: o, dir: o.Dir, tempDir: o.Dir == ""}
	if err := cp.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	if err := cp.prepare(); err != nil {
		return err
	}
	if err := cp.etcd.Start(ctx); err != nil {
		return err
	}
	if err := cp.apiserver.Start(ctx); err != nil {
		return err
	}
	if err := cp.installCRDs(ctx, cp.o.CRDs...); err != nil {
		return err
	}
	for _, p := range []*process.Process{cp.kcm, cp.scheduler} {
		if p.Path == "" {
			continue
		}
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// addresses are those of the servers beside the loopback's.
func (cp *ControlPlane) addresses() (all []string) {
	for _, of := range cp.o.serviceRanges() {
		all = append(all, ServiceAddress(of))
	}
	if cp.o.Address != "" {
		all = append(all, cp.o.Address)
	}
	return all
}

// prepare makes the directory, the keys and the components, none of which runs.
func (cp *ControlPlane) prepare() (err error) {
	if cp.tempDir {
		if cp.dir, err = os.MkdirTemp("", "controlplane"); err != nil {
			return err
		}
	}
	if cp.dir, err = filepath.Abs(cp.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(cp.dir, 0o755); err != nil {
		return err
	}
	if cp.pki, err = newPKI(cp.dir, cp.addresses()...); err != nil {
		return err
	}
	if err := cp.newEtcd(); err != nil {
		return err
	}
	etcdURL := cp.etcdURL
	if cp.o.DelayableEtcd {
		if cp.proxy, err = newDelayProxy(strings.TrimPrefix(etcdURL, "http://")); err != nil {
			return err
		}
		etcdURL = "http://" + cp.proxy.listener.Addr().String()
	}
	if err := cp.newAPIServer(etcdURL); err != nil {
		return err
	}
	if err := cp.newControllerManager(); err != nil {
		return err
	}
	return cp.newScheduler()
}

// Config returns a configuration for clients with all rights, which the caller
// may change. Client-side throttling is off.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.admin) }

// Dir returns the directory of data, keys and logs.
func (cp *ControlPlane) Dir() string { return cp.dir }

// StopAPIServer kills the API server, as a crash would: connections break, its
// data stays. It is a no-op if the API server does not run.
func (cp *ControlPlane) StopAPIServer() error { return cp.apiserver.Kill() }

// StartAPIServer starts the API server again, on the same port and data, and
// returns when it is ready. It is a no-op if the API server runs.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error { return cp.apiserver.Start(ctx) }

// PauseAPIServer freezes the API server: connections stay open and nothing is
// answered until ResumeAPIServer, as when the network loses every packet.
func (cp *ControlPlane) PauseAPIServer() error { return cp.apiserver.Pause() }

// ResumeAPIServer undoes PauseAPIServer.
func (cp *ControlPlane) ResumeAPIServer() error { return cp.apiserver.Resume() }

// StopEtcd kills etcd; the API server then answers with errors.
func (cp *ControlPlane) StopEtcd() error { return cp.etcd.Kill() }

// StartEtcd starts etcd again on the data that it had.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error { return cp.etcd.Start(ctx) }

// PauseEtcd freezes etcd: the API server then waits for it.
func (cp *ControlPlane) PauseEtcd() error { return cp.etcd.Pause() }

// ResumeEtcd undoes PauseEtcd.
func (cp *ControlPlane) ResumeEtcd() error { return cp.etcd.Resume() }

// StopControllerManager kills the controller manager.
func (cp *ControlPlane) StopControllerManager() error { return cp.kcm.Kill() }

// StartControllerManager starts the controller manager, with Options.Controllers.
func (cp *ControlPlane) StartControllerManager(ctx context.Context) error {
	if len(cp.o.Controllers) == 0 {
		return errors.New("controlplane: Options.Controllers names no controller to run")
	}
	return cp.kcm.Start(ctx)
}

// Stop ends every component and removes the temporary directory. It can be
// called again.
func (cp *ControlPlane) Stop() error {
	var errs []error
	for _, p := range []*process.Process{cp.scheduler, cp.kcm, cp.apiserver, cp.etcd} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	if cp.proxy != nil {
		errs, cp.proxy = append(errs, cp.proxy.close()), nil
	}
	if cp.tempDir && cp.dir != "" {
		errs = append(errs, os.RemoveAll(cp.dir))
	}
	return errors.Join(errs...)
}

// TB is what New needs of a test; [testing.TB] and Ginkgo's GinkgoT have it.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// New starts a control plane that ends with the test, and shows the end of its
// logs if the test has failed. It fails the test if that is not possible.
func New(t TB, o Options) *ControlPlane {
	t.Helper()
	cp, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("control plane:\n%s", cp.Logs())
		}
		if err := cp.Stop(); err != nil {
			t.Fatalf("stop control plane: %v", err)
		}
	})
	return cp
}

// Logs returns the last lines of every component's log.
func (cp *ControlPlane) Logs() string {
	var b strings.Builder
	for _, p := range []*process.Process{cp.etcd, cp.apiserver, cp.kcm, cp.scheduler} {
		if p.Path != "" {
			fmt.Fprintf(&b, "%v:\n%s\n", p, p.Tail())
		}
	}
	return b.String()
}
