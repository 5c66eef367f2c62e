package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/attach/node/devices"
	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/history"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

// Config configures a [Daemon].
type Config struct {
	Agent agent.Config

	// Store is the path of the node's store, Socket that of the node socket. A
	// lock file and the store's witness lie beside the socket, whose directory a
	// reboot should empty.
	Store, Socket string

	// Listen is where health, readiness and metrics are served over HTTP; empty
	// is nowhere.
	Listen string

	// Profiles serves profiles of this process there too, below /debug/pprof/.
	Profiles bool

	// RegistrationNamespace is the namespace of the registrations.
	RegistrationNamespace string

	// NetnsDirs are where runtimes keep network namespaces, and ResultDirs where the
	// CNI library keeps results: what runs is read back from there if the store is
	// lost. Nil are [DefaultNetnsDirs] and [cniresults.DefaultDirs].
	NetnsDirs, ResultDirs []string

	// HostLocalDir is where host-local keeps its files; empty is [defaultHostLocalDir].
	HostLocalDir string

	// Reports is the directory for what the meta-plugin has reported, as long as the
	// pod is there; empty is the directory reports beside the store.
	Reports string

	// AttachState is the meta-plugin's directory, where it leaves what it could not
	// report; empty, or one that is not there, has nothing.
	AttachState string

	// Ready configures the file by which the runtime finds the meta-plugin. No Source
	// means that none is kept; no Record is a file beside the store.
	Ready ready.Config

	// History is the directory for who had which address; empty is the directory history beside the
	// store. HistoryBounds are how much of it is kept.
	History       string
	HistoryBounds history.Bounds

	// DRASocket is the path of the socket on which DRANET is served; empty: it is not.
	DRASocket string

	// PodResources is the path of the kubelet's pod-resources socket.
	PodResources string

	// MultiNetwork says that PodNetworks are served.
	MultiNetwork bool
	// VIFs says that interfaces are served that the control plane decides.
	VIFs bool
	// NeedDefault says that STATUS fails while there is no default PodNetwork.
	NeedDefault bool

	// Clock is the machine's clock; nil is [Clock].
	Clock sched.Clock
}

// Daemon is one node's agent and what it needs around it.
type Daemon struct {
	cfg  Config
	rest *rest.Config
	log  *slog.Logger
	line kube.Line
}

// New returns a daemon that talks to the cluster of rc. It does no I/O.
func New(cfg Config, rc *rest.Config, log *slog.Logger) (*Daemon, error) {
	if err := cfg.Agent.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.HistoryBounds.Validate(); err != nil {
		return nil, err
	}
	if cfg.Store == "" || cfg.Socket == "" {
		return nil, fmt.Errorf("Store is %q and Socket %q, both must be set", cfg.Store, cfg.Socket)
	}
	if cfg.Clock == nil {
		cfg.Clock = Clock{}
	}
	if cfg.NetnsDirs == nil {
		cfg.NetnsDirs = DefaultNetnsDirs()
	}
	if cfg.ResultDirs == nil {
		cfg.ResultDirs = cniresults.DefaultDirs()
	}
	if cfg.HostLocalDir == "" {
		cfg.HostLocalDir = defaultHostLocalDir
	}
	cfg.PlaceBesideStore()
	if cfg.Ready.Source != "" {
		if err := cfg.Ready.Validate(); err != nil {
			return nil, fmt.Errorf("configuration of the runtime's file: %w", err)
		}
	}
	if cfg.PodResources == "" {
		cfg.PodResources = devices.DefaultSocket
	}
	rc = rest.CopyConfig(rc)
	// The lease protocol bounds its own calls; client-go's default of 5 a second
	// would make a burst of ADDs wait for nothing.
	rc.QPS, rc.Burst = 500, 1000
	return &Daemon{cfg: cfg, rest: rc, log: log}, nil
}

// PlaceBesideStore says of files and directories where they are: beside the store, unless c says
// where.
func (c *Config) PlaceBesideStore() {
	dir := filepath.Dir(c.Store)
	c.Reports = cmp.Or(c.Reports, filepath.Join(dir, "reports"))
	c.History = cmp.Or(c.History, filepath.Join(dir, "history"))
	c.Ready.Record = cmp.Or(c.Ready.Record, filepath.Join(dir, "cni-conf.json"))
}

// Run serves until ctx ends. The lock is held before the store is opened, and the
// store is open before the socket is: of two daemons on one host only one gets
// that far.
func (d *Daemon) Run(ctx context.Context) (err error) {
	lock, err := lockBeside(d.cfg.Socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	past := d.recorder()
	st, err := openStore(ctx, d.cfg.Store, store.Options{Witness: store.WitnessFile(witnessOf(d.cfg.Socket)), Committed: past.committed}, d.cfg.Agent, d.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	past.Held = func() ([]history.Span, error) { return held(st, d.cfg.Agent.Node) }
	defer past.Close(ctx)

	c, api, err := d.client()
	if err != nil {
		return err
	}
	events := api.Events(ctx, reporter, string(d.cfg.Agent.Node))
	defer events.Stop()
	var uses *access.Reviews
	if d.cfg.MultiNetwork {
		uses = access.NewReviews(time.Now, api.MayUse(access.PodNetwork))
	}
	attach, podCache, err := d.resolver(c, api, events, uses)
	if err != nil {
		return err
	}
	reviews, of := access.NewReviews(time.Now, api.MayUse(access.Pool)), d.cluster(c, api, podCache, events)
	of.Access = namespaceFacts{attach, reviews}
	a, err := agent.New(d.cfg.Agent, st, of, sched.Goroutines(d.cfg.Clock), hostFromHere(d.cfg), d.log)
	if err != nil {
		return err
	}
	a.Attach(attach)
	collectors := []prometheus.Collector{a.Metrics(), attach.Metrics()}
	keeper, finder, err := d.configuration(attach, a.WarnNode, a.BeatNow, podCache, events)
	if err != nil {
		return err
	}
	if keeper != nil {
		collectors = append(collectors, keeper.Metrics(), finder.Metrics())
	}
	api.Unserved = d.unserved(keeper)
	ln, err := listen(ctx, d.cfg.Socket)
	if err != nil {
		return err
	}
	devices, err := d.devices(ctx, c, api, a, attach)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return devices(ctx) })
	serve := func(ctx context.Context) error { return agentapi.Serve(ctx, ln, a, agentapi.DefaultLimits(), d.log) }
	g.Go(func() error { return a.Run(ctx, serve) })
	g.Go(func() error { return untilBroken(ctx, st) })
	g.Go(func() error { past.Run(ctx); return nil })
	g.Go(func() error { podCache.Run(ctx); return nil })
	g.Go(func() error { reviews.Run(ctx); return nil })
	if uses != nil {
		g.Go(func() error { uses.Run(ctx); return nil })
	}
	g.Go(func() error { return attach.Run(ctx) })
	g.Go(func() error { return d.watchDefault(ctx, c) })
	if keeper != nil {
		g.Go(func() error { return keeper.Run(ctx) })
		g.Go(func() error { return finder.Run(ctx) })
	}
	if d.cfg.Listen != "" {
		g.Go(func() error { return serveHTTP(ctx, d.cfg, readiness(podCache, a), collectors) })
	}
	return g.Wait()
}

// readiness returns what tells whether the node can serve ADDs.
func readiness(podCache *kube.PodCache, a *agent.Agent) func(context.Context) (ok bool, why string) {
	return func(ctx context.Context) (bool, string) {
		if !podCache.Synced() {
			return false, "this node's pods have not been listed since the agent started"
		}
		return a.Ready(ctx)
	}
}

// untilBroken waits until the store has to be opened again, which is an error, or ctx ends.
func untilBroken(ctx context.Context, st *store.Store) error {
	select {
	case <-st.Broken():
		return fmt.Errorf("the store %s has to be opened again", st.Path())
	case <-ctx.Done():
		return nil
	}
}

// leaseWithin is how long the create of a lease is awaited. An API server that is overrun
// with them takes long to answer, and one that is given up is made again, at the end of
// the line. An ADD waits no longer for it than for anything.
const leaseWithin = 15 * time.Second

// client makes what talks to the cluster.
func (d *Daemon) client() (client.WithWatch, *kube.API, error) {
	rc := d.line.Watch(d.rest)
	opts, err := kube.ClientOptions(rc)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.NewWithWatch(rc, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	api := kube.NewAPI(c)
	api.LeaseWithin = leaseWithin
	if d.cfg.RegistrationNamespace != "" {
		api.RegistrationNamespace = d.cfg.RegistrationNamespace
	}
	return c, api, nil
}

func (d *Daemon) cluster(c client.WithWatch, api *kube.API, cache *kube.PodCache, events *kube.Events) agent.Cluster {
	follower := watches{api, c, d.log}
	of := agent.Cluster{
		Leases: api, SubLeases: follower, Registrations: follower, Claims: api, Pools: pools{api, c}, Pods: pods{api, cache}, Events: events,
		Trouble: d.line.Trouble,
	}
	if d.cfg.DRASocket != "" { // else the role does not let it read any
		of.ResourceClaims = api
	}
	return of
}

// lockBeside takes the lock that lies beside the socket, in a directory that does
// not survive a reboot, as the store does.
func lockBeside(socket string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	path := socket + ".lock"
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: another tenured serves %s; stop it first: %w", path, socket, err), f.Close())
	}
	return f, nil
}

// listen opens the node socket. What lies there is a dead daemon's: the lock is
// held.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("open the node socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict the node socket: %w", err), ln.Close())
	}
	return ln, nil
}

// serveHTTP serves health, readiness and metrics until ctx ends.
func serveHTTP(ctx context.Context, cfg Config, isReady func(context.Context) (ok bool, why string), own []prometheus.Collector) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(own...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	srv := &http.Server{Addr: cfg.Listen, Handler: httpHandler(registry, isReady, cfg.Profiles), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // Serve's error tells
	defer stop()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics: %w", err)
	}
	return nil
}

// httpHandler answers over HTTP: health, readiness, metrics and, if asked to, profiles.
func httpHandler(metrics prometheus.Gatherer, ready func(context.Context) (ok bool, why string), profiles bool) http.Handler {
	mux := http.NewServeMux()
	// Whatever of what is collected should hang one day: a few scrapes do, and not one
	// more each time.
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if ok, why := ready(r.Context()); !ok { // until the prober hangs up
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}
