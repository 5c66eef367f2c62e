package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/leasestatus"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/sightings"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Agent serves one node. Make one with [New]; it is safe for concurrent use
// while [Agent.Run] runs.
type Agent struct {
	cfg     Config
	st      *store.Store
	cl      Cluster
	sched   sched.Scheduler
	host    Host
	attach  agentapi.Handler // answers the meta-plugin
	log     *slog.Logger
	metrics *Metrics
	configs poolspec.Reader

	keys      sched.Locks[store.Key]    // serialises the calls of one attachment
	rights    sched.Locks[string]       // serialises the steps of one right
	claims    sched.Locks[protocol.UID] // serialises what this node does with one claim
	asking    sched.Locks[requester]    // serialises the ADDs that ask the cluster for one interface
	schedule  schedule
	requests  requests
	ceding    cessions
	unserving unservingLeases
	sweeper   sweeper
	faults    faults
	idle      idleTimes
	recalls   recalls
	sightings *sightings.Reporter
	ignored   sync.Map     // what was said last of a network's keys, by network
	foreign   atomic.Int64 // leases and sub-leases of other machines, in this node's name
	public    *leasestatus.Publisher
	finished  atomic.Uint64 // how many acquires have ended

	// mu guards what follows, down to the empty line.
	mu        sync.Mutex
	registrar protocol.Registrar
	announced announcement
	pools     map[protocol.PoolName]*pool
	readFor   map[protocol.StoreID]bool // lost stores whose attachments were looked for; true: all of them
	history   protocol.History          // how far the API server was seen to come
	// recordedEpoch is the greatest epoch that the store is known to have.
	recordedEpoch string
	rewinds       int                        // how often the API server was seen to go back
	heardSince    map[protocol.PoolName]bool // pools first heard of since it last did
	// anothers are leases that this node has as Held, and that were another's when they were last
	// read since the API server went back.
	anothers map[string]bool
	// unseen are rights that a list has shown otherwise than the store has them, and of which no
	// answer has come since.
	unseen  map[string]bool
	reading bool // a store was lost in this boot, and is not read back yet

	listing listing

	beatNow chan struct{}                    // a heartbeat is due before its time
	listNow chan struct{}                    // so is a list of what is there in the node's name
	queue   func(task func(context.Context)) // set by Run: runs a task that Run waits for
	follow  func(protocol.PoolName, *pool)   // set by Run
}

// New returns an agent on st. It does no I/O and starts nothing.
func New(cfg Config, st *store.Store, cl Cluster, s sched.Scheduler, host Host, log *slog.Logger) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	a := &Agent{
		cfg: cfg, st: st, cl: cl, sched: s, host: host, attach: nobody{}, log: log,
		pools: map[protocol.PoolName]*pool{}, readFor: map[protocol.StoreID]bool{}, beatNow: make(chan struct{}, 1), listNow: make(chan struct{}, 1),
	}
	a.cl.Leases, a.cl.SubLeases = carefulLeases{cl.Leases, a}, carefulSubLeases{cl.SubLeases, a}
	a.cl.Pools, a.cl.Registrations = carefulPools{cl.Pools, a}, carefulRegistrations{cl.Registrations, a}
	a.public = leasestatus.New(st, a.cl.Leases, s, cfg.PublishEvery, func(lease string) { a.lookIn(lease, 0) }, log)
	a.sightings = sightings.New(st, host, s, log, a.background, a.BeatNow)
	a.metrics = newMetrics(state{a})
	return a, nil
}

// Attach makes h answer the meta-plugin's verbs, Facts and Report, which an agent
// without it refuses. Call it before [Agent.Run].
func (a *Agent) Attach(h agentapi.Handler) { a.attach = h }

// nobody refuses the meta-plugin's verbs.
type nobody struct{}

// Serve implements [agentapi.Handler].
func (nobody) Serve(context.Context, agentapi.Request) agentapi.Response {
	return agentapi.Fail(agentapi.CodeNotAvailable, "this agent does not serve the meta-plugin")
}

// Metrics returns the agent's collectors. The caller registers them.
func (a *Agent) Metrics() *Metrics { return a.metrics }

// Run keeps what the node holds, and has serve pass requests to [Agent.Serve], until ctx ends.
// Before that it reads what the store has; it does not wait for the API server. It returns
// after all that it started has ended.
func (a *Agent) Run(ctx context.Context, serve func(context.Context) error) error {
	g, ctx := sched.NewGroup(ctx, a.sched)
	a.queue = func(task func(context.Context)) {
		g.Go(func() error { task(ctx); return nil })
	}
	a.follow = a.follower(ctx, g.Go)
	if err := a.resume(ctx); err != nil {
		return fmt.Errorf("resume from the store: %w", err)
	}
	g.Go(func() error { return a.runRegistration(ctx) })
	g.Go(func() error { return a.followRegistration(ctx) })
	g.Go(func() error { return a.maintain(ctx) })
	g.Go(func() error { return serve(ctx) })
	return g.Wait()
}

// resume takes up what the store has: the registration if it is of this boot, the pools,
// and a look at every right that does not serve.
func (a *Agent) resume(ctx context.Context) error {
	var id store.Identity
	var kept []Pool
	var history protocol.History
	err := a.st.View(func(tx *store.Tx) error {
		var err error
		if id, err = tx.Identity(); err != nil {
			return err
		}
		if kept, err = keptPools(tx); err != nil {
			return err
		}
		if history, err = tx.History(); err != nil {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if !r.Serves(id.Term) {
				a.lookIn(r.Name, 0)
			}
			history = history.SawRight(r, id.Term)
			a.follows(protocol.Self{Term: id.Term}, protocol.Result{Next: r})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if id.Node != "" && id.Node != a.cfg.Node {
		return fmt.Errorf("the store is that of node %s, and this is node %s: start with another --store, or move the file away, and a new one is made", id.Node, a.cfg.Node)
	}
	for _, p := range kept { // heard since the last heartbeat, with which the history is kept
		history = history.SawEpoch(p.Epoch)
	}
	a.resumeRegistration(id, history)
	for _, p := range kept {
		a.adoptPool(ctx, protocol.PoolName(p.Name), p)
	}
	a.log.InfoContext(ctx, "agent resumes", "node", a.cfg.Node, "store", a.st.ID(), "term", id.Term, "pools", len(kept), "registered", a.registered())
	return nil
}

// registered reports whether the agent may write in its registration's term: one that was silent
// for F may have been taken over, and its registration be forgotten. What it made then in a
// term that has ended nobody would give back if this store were lost, too.
func (a *Agent) registered() bool {
	ok, _ := a.current().Serving(a.sched.Now())
	return ok
}

// serving reports whether the agent may give out addresses now; if not, why.
func (a *Agent) serving() (bool, string) {
	now := a.sched.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if ok, why := a.registrar.Serving(now); !ok {
		return false, why
	}
	if a.reading {
		return false, "a store of this node was lost, and what its pods have is being read back"
	}
	return true, ""
}

// background runs task beside its caller. Run waits for it.
func (a *Agent) background(task func(context.Context)) {
	a.queue(task)
}

// wait pauses for d or until ctx ends; it reports whether it was the former.
func (a *Agent) wait(ctx context.Context, d time.Duration) bool {
	return sched.Pause(ctx, a.sched, d)
}
