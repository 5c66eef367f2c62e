package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/controller/deadnodes"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/nodelabels"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/controller/requests"
	"github.com/tenure-ipam/tenure/ipam/controller/reservations"
	"github.com/tenure-ipam/tenure/ipam/controller/strangers"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// name is the controller's, as Events and the leader's lease have it.
const name = "tenure-controller"

// Config configures a [Controller].
type Config struct {
	// RegistrationNamespace is the namespace of the registrations, and of the lease by which one
	// controller leads.
	RegistrationNamespace string

	// LeaderElection says that another controller may run beside this one, and
	// that one of them leads. Without it this one works at once. Two that work at
	// once do no harm, but get in each other's way.
	LeaderElection bool
	// LeaseDuration is how long a leader that has died is waited for, RenewDeadline
	// how long one that lives tries to renew before it gives up, and RetryPeriod
	// how often.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// Workers is how many claims are worked on at once. Each waits for one call
	// at a time.
	Workers int

	// CountsEvery is how often at most the counts of a pool are written.
	CountsEvery time.Duration
	// Idle is how long a block that the cluster holds stays without a claim before
	// it goes back to the pool.
	Idle time.Duration

	// StatefulSetClaims says that StatefulSets get the claims that they ask for, as far as this
	// controller has the rights.
	StatefulSetClaims bool

	// MultiNetwork says that PodNetworks are served. Where it is off, what it has left on pods and
	// networks is taken away.
	MultiNetwork bool
	// DefaultPodNetwork says that the default PodNetwork is made, where they are served.
	DefaultPodNetwork bool

	// VIFs says that interfaces of pods are decided here, which select VIF definitions.
	// Where it is off, what was made of such definitions is deleted.
	VIFs bool
	// KuryrAnnotation says that the interfaces that are decided here are written on pods in
	// Kuryr's words, too.
	KuryrAnnotation bool

	// Names says that Services get EndpointSlices with the addresses that pods have on secondary
	// networks, as far as this controller has the rights.
	Names bool

	// NeutronClouds is the path of the clouds.yaml by which Neutron is reached, for pools whose
	// source it is, and NeutronCloud the cloud in it that counts; empty: there is no Neutron.
	NeutronClouds, NeutronCloud string
	// NeutronSubnetNamespaces are the namespaces whose definitions may describe subnets that are
	// made in Neutron, where VIFs are served.
	NeutronSubnetNamespaces []string
	// NeutronEvery is how often Neutron's subnets and ports are looked at.
	NeutronEvery time.Duration

	// TakeOverMargin is how long after its F a silent node whose Node object is gone
	// is taken over.
	TakeOverMargin time.Duration

	// Webhooks is the address where the admission webhooks are served, with MultiNetwork alone;
	// empty is nowhere.
	Webhooks string
	// WebhookCertificate is the directory with the certificate of the webhooks and its key, tls.crt
	// and tls.key.
	WebhookCertificate string

	// Health and Metrics are the addresses where /healthz and /readyz, and
	// /metrics, are served; empty is nowhere.
	Health, Metrics string

	// Profiles serves profiles of this process where Metrics are, below /debug/pprof/.
	Profiles bool

	// Now is the wall clock.
	Now func() time.Time
}

// DefaultConfig returns the Config for production.
func DefaultConfig() Config {
	return Config{
		RegistrationNamespace: kube.DefaultRegistrationNamespace,
		LeaderElection:        true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Workers:     64,
		CountsEvery: time.Minute, Idle: time.Minute, StatefulSetClaims: true, DefaultPodNetwork: true, NeutronCloud: "openstack", NeutronEvery: time.Minute, TakeOverMargin: deadnodes.DefaultMargin,
		Health: ":9472", Metrics: ":9473", Webhooks: ":9474", WebhookCertificate: "/etc/tenure/webhook", Now: time.Now,
	}
}

// validate reports every fault of c.
func (c Config) validate() error {
	var errs []error
	if c.RegistrationNamespace == "" {
		errs = append(errs, errors.New("RegistrationNamespace is empty"))
	}
	if c.LeaderElection && !(c.RetryPeriod > 0 && c.RetryPeriod < c.RenewDeadline && c.RenewDeadline < c.LeaseDuration) {
		errs = append(errs, fmt.Errorf("RetryPeriod (%v) must be less than RenewDeadline (%v), and that less than LeaseDuration (%v)",
			c.RetryPeriod, c.RenewDeadline, c.LeaseDuration))
	}
	if c.Workers < 1 {
		errs = append(errs, fmt.Errorf("Workers is %d, must be positive", c.Workers))
	}
	if c.CountsEvery <= 0 || c.Idle <= 0 || c.NeutronEvery <= 0 {
		errs = append(errs, fmt.Errorf("CountsEvery is %v, Idle %v and NeutronEvery %v, all must be positive", c.CountsEvery, c.Idle, c.NeutronEvery))
	}
	if c.TakeOverMargin <= 0 {
		errs = append(errs, fmt.Errorf("TakeOverMargin is %v, must be positive", c.TakeOverMargin))
	}
	return errors.Join(errs...)
}

// Controller is the cluster controller.
type Controller struct {
	cfg  Config
	rest *rest.Config
	log  *slog.Logger
}

// New returns a controller for the cluster of rc. It does no I/O.
func New(cfg Config, rc *rest.Config, log *slog.Logger) (*Controller, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	rc = rest.CopyConfig(rc)
	rc.QPS, rc.Burst = 2000, 4000 // the API server has its own ways of being fair
	return &Controller{cfg: cfg, rest: rc, log: log}, nil
}

// Run works until ctx ends, and then gives the leadership back. Losing it is an
// error: whoever runs this starts it anew.
func (c *Controller) Run(ctx context.Context) error {
	mgr, err := c.manager()
	if err != nil {
		return err
	}
	parts, err := c.assemble(ctx, mgr)
	switch {
	case ctx.Err() != nil: // it was stopped meanwhile, as it may be later
		return nil
	case err != nil:
		return err
	}
	if c.cfg.Metrics != "" {
		defer unregister(parts)
		for _, p := range parts {
			if err := metrics.Registry.Register(p); err != nil {
				return fmt.Errorf("register metrics: %w", err)
			}
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}

func unregister(parts []prometheus.Collector) {
	for _, p := range parts {
		metrics.Registry.Unregister(p)
	}
}

func (c *Controller) manager() (manager.Manager, error) {
	scheme, err := kube.Scheme()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(c.rest, manager.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(c.log.Handler()), Cache: cacheOptions(c.cfg),
		LeaderElection: c.cfg.LeaderElection, LeaderElectionID: name, LeaderElectionNamespace: c.cfg.RegistrationNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &c.cfg.LeaseDuration, RenewDeadline: &c.cfg.RenewDeadline, RetryPeriod: &c.cfg.RetryPeriod,
		Metrics: metricsserver.Options{BindAddress: orZero(c.cfg.Metrics), ExtraHandlers: c.profiles()}, HealthProbeBindAddress: orZero(c.cfg.Health),
		// Tests run several controllers in one process. And a panic ends it: what the broker
		// was about may be half done, and its lock held, while it goes on leading.
		Controller: config.Controller{SkipNameValidation: new(true), RecoverPanic: new(false)},
	})
	if err != nil {
		return nil, fmt.Errorf("make a manager: %w", err)
	}
	return mgr, nil
}

// profiles returns what serves profiles, by path; nothing without Config.Profiles.
func (c *Controller) profiles() map[string]http.Handler {
	if !c.cfg.Profiles {
		return nil
	}
	return map[string]http.Handler{
		"/debug/pprof/": http.HandlerFunc(pprof.Index), "/debug/pprof/profile": http.HandlerFunc(pprof.Profile), "/debug/pprof/trace": http.HandlerFunc(pprof.Trace),
	}
}

// orZero returns how controller-runtime spells an address.
func orZero(address string) string {
	if address == "" {
		return "0"
	}
	return address
}

// assemble makes the parts, and has the manager run them. It returns what there is
// to measure.
func (c *Controller) assemble(ctx context.Context, mgr manager.Manager) ([]prometheus.Collector, error) {
	direct, err := client.New(c.rest, client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	live := kube.NewAPI(direct)
	live.RegistrationNamespace = c.cfg.RegistrationNamespace
	catalog := networks.NewCatalog(mgr.GetCache(), domainPools(mgr.GetCache()), admission{cache: mgr.GetCache()}.Labels)
	if err := index(ctx, mgr, catalog); err != nil {
		return nil, err
	}

	triggers, shapes := &triggers{}, &pools.Shapes{}
	cfg, measured := grants.DefaultConfig(), grants.NewMetrics()
	cfg.IdleAfter = c.cfg.Idle
	var ofPools *pools.Reconciler
	cfg.Restored = func(ctx context.Context, names ...protocol.PoolName) (bool, error) {
		return ofPools.Restored(ctx, names...)
	}
	b, err := grants.New(cfg, live, triggers.notify(), measured, c.log.With("part", "broker"))
	if err != nil {
		return nil, err
	}
	if err := feed(ctx, mgr.GetCache(), b, shapes, c.log); err != nil {
		return nil, err
	}
	ofPools = &pools.Reconciler{
		Cache: mgr.GetCache(), Starving: b.Starving, Changed: &triggers.pools, Write: direct, Live: live, Networks: catalog, Shapes: shapes,
		Metrics: pools.NewMetrics(), Log: c.log.With("part", "pools"), CountsEvery: c.cfg.CountsEvery, Now: c.cfg.Now,
	}
	reviews := access.NewReviews(c.cfg.Now, live.MayUse(access.Pool))
	ofClaims := &claims.Reconciler{
		Cache: mgr.GetCache(), Status: direct, Live: live, Broker: b, Networks: catalog, Admission: admission{mgr.GetCache(), reviews}, Machines: live,
		Events: mgr.GetEventRecorder(name), Metrics: claims.NewMetrics(), Log: c.log.With("part", "claims"), Now: c.cfg.Now,
	}
	following := c.ports(mgr, direct, b, ofPools, ofClaims, triggers)
	ofRequests := &requests.Reconciler{
		Cache: mgr.GetCache(), API: live, Broker: b,
		Metrics: requests.NewMetrics(), Log: c.log.With("part", "requests"), Now: c.cfg.Now,
	}
	ofReservations := &reservations.Reconciler{
		Cache: mgr.GetCache(), Live: live, Status: direct, Broker: b, Log: c.log.With("part", "reservations"), Now: c.cfg.Now,
	}
	begun := time.Now() // what passes since is told by the monotonic clock
	ofDead := &deadnodes.Reconciler{
		Cache: mgr.GetCache(), RegistrationNamespace: c.cfg.RegistrationNamespace, Live: live, Events: mgr.GetEventRecorder(name),
		Metrics: deadnodes.NewMetrics(), Log: c.log.With("part", "takeover"), Margin: c.cfg.TakeOverMargin, Calls: deadnodes.DefaultCalls,
		Now: func() time.Duration { return time.Since(begun) },
	}
	ofForeign := c.looker(mgr.GetCache(), live, b, ofPools, admission{mgr.GetCache(), reviews})
	ofForeign.Notify = triggers.pool
	ofPools.Foreign = ofForeign
	for _, set := range []func() error{
		func() error { return mgr.Add(manager.RunnableFunc(b.Run)) },
		func() error { return mgr.Add(background(reviews.Run)) },
		func() error { return ofForeign.Setup(mgr) },
		func() error { return ofReservations.Setup(mgr, &triggers.reservations) },
		func() error { return following.setup(mgr, triggers) },
		func() error { return ofClaims.Setup(mgr, catalog, &triggers.claims, c.cfg.Workers) },
		func() error { return c.workloads(ctx, mgr, direct, live, catalog) },
		func() error { return c.podNetworks(ctx, mgr, direct, live) },
		func() error { return errors.Join(c.vifs(ctx, mgr, direct, following.ports), c.names(ctx, mgr, live)) },
		func() error { return ofRequests.Setup(mgr, &triggers.requests, c.cfg.Workers) },
		func() error { return ofPools.Setup(mgr, catalog) },
		func() error {
			return mgr.Add(everywhere(func(ctx context.Context) error { return ofPools.WatchRevision(ctx, live) }))
		},
		func() error { return c.advertise(mgr, direct, ofPools, &triggers.advertised) },
		func() error { return c.definitions(mgr, direct, live, catalog) },
		func() error { return ofDead.Setup(mgr) },
		func() error { return errors.Join(c.nodeLabels(mgr, live), c.strangers(mgr, direct, ofPools)) },
		func() error { return probes(mgr) },
	} {
		if err := set(); err != nil {
			return nil, fmt.Errorf("controller: %w", err)
		}
	}
	parts := []prometheus.Collector{measured, ofClaims.Metrics, ofRequests.Metrics, ofPools.Metrics, ofDead.Metrics, ofForeign.Metrics, following.ports.Metrics}
	if c.servesWebhooks() {
		parts = append(parts, c.certificate().Metric())
	}
	return parts, nil
}

// nodeLabels has the agents told the labels of their nodes.
func (c *Controller) nodeLabels(mgr manager.Manager, live *kube.API) error {
	r := &nodelabels.Reconciler{
		Cache: mgr.GetCache(), RegistrationNamespace: c.cfg.RegistrationNamespace, Live: live, Log: c.log.With("part", "node-labels"),
	}
	return r.Setup(mgr)
}

// strangers has the addresses kept that strangers have.
func (c *Controller) strangers(mgr manager.Manager, write client.Client, ofPools *pools.Reconciler) error {
	ofPools.Strangers = func(ctx context.Context, pool string) ([]v1alpha1.IPReservation, error) {
		return pools.StrangersOf(ctx, mgr.GetCache(), pool)
	}
	r := &strangers.Reconciler{
		Cache: mgr.GetCache(), RegistrationNamespace: c.cfg.RegistrationNamespace, Write: write, Shapes: ofPools.Shapes,
		Events: mgr.GetEventRecorder(name), Now: c.cfg.Now, Log: c.log.With("part", "strangers"),
	}
	return r.Setup(mgr)
}

// definitions has implicit pools made of definitions, and faults in definitions said.
func (c *Controller) definitions(mgr manager.Manager, write client.Client, live *kube.API, catalog *networks.Catalog) error {
	implicit := &pools.Implicit{
		Cache: mgr.GetCache(), Write: write, Live: live, Networks: catalog,
		Events: mgr.GetEventRecorder(name), Log: c.log.With("part", "pools"),
	}
	faulty := &pools.Definitions{
		Cache: mgr.GetCache(), Networks: catalog, Events: mgr.GetEventRecorder(name), Log: c.log.With("part", "definitions"), Now: c.cfg.Now,
	}
	return errors.Join(implicit.Setup(mgr, catalog), faulty.Setup(mgr))
}

// triggers are those by which the broker has its reconcilers look at objects.
type triggers struct{ claims, requests, reservations, pools, subnets, advertised trigger.Source }

func (t *triggers) notify() grants.Notify {
	return grants.Notify{
		Claim:       func(key grants.ClaimKey) { t.claims.Fire(key.Namespace, key.Name) },
		SubLease:    func(name string) { t.requests.Fire("", name) },
		Reservation: func(name string) { t.reservations.Fire("", name) },
		Pool:        t.pool,
	}
}

func (t *triggers) pool(name protocol.PoolName) { t.pools.Fire("", string(name)) }

// probes serves health, and readiness once the caches are filled, whoever leads.
func probes(mgr manager.Manager) error {
	var synced atomic.Bool
	ready := func(*http.Request) error {
		if !synced.Load() {
			return errors.New("the caches are not filled")
		}
		return nil
	}
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", ready),
		mgr.Add(everywhere(func(ctx context.Context) error {
			synced.Store(mgr.GetCache().WaitForCacheSync(ctx))
			return nil
		})),
	)
}

// background is work of the controller that leads, which does not fail.
func background(work func(context.Context)) manager.RunnableFunc {
	return func(ctx context.Context) error {
		work(ctx)
		return nil
	}
}
