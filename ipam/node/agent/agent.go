package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

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
//
// What it knows lies with its parts, each of which owns its state and uses those before it:
// the node's registration, the pools that it follows, its rights, its blocks, what its attachments
// have, what a lost store has left, and strangers on the segment. The Agent itself serves requests.
type Agent struct {
	*base
	reg         *registration
	pools       *pools
	rights      *rights
	blocks      *blocks
	attachments *attachments
	losses      *losses
	strangers   *strangers

	attach  agentapi.Handler // answers the meta-plugin
	configs poolspec.Reader
	claims  sched.Locks[protocol.UID] // serialises what this node does with one claim
	asking  sched.Locks[requester]    // serialises the ADDs that ask the cluster for one interface
	ignored sync.Map                  // what was said last of a network's keys, by network

	storeFaults atomic.Int64 // faults of the store that the last check has found
}

// New returns an agent on st. It does no I/O and starts nothing.
func New(cfg Config, st *store.Store, cl Cluster, s sched.Scheduler, host Host, log *slog.Logger) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	a := assemble(&base{cfg: cfg, st: st, cl: cl, sched: s, host: sparingHost{host}, log: log})
	a.cl.Leases, a.cl.SubLeases = carefulLeases{cl.Leases, a.rights}, carefulSubLeases{cl.SubLeases, a.rights}
	a.cl.Pools, a.cl.Registrations = carefulPools{cl.Pools, a.rights}, carefulRegistrations{cl.Registrations, a.rights}
	a.rights.public = leasestatus.New(leasestatus.Config{
		Store: st, Leases: a.cl.Leases, Sched: s, Every: cfg.PublishEvery, Term: a.reg.term, Doubt: func(lease string) { a.rights.recheckIn(lease, 0) }, Log: log,
	})
	a.metrics = newMetrics(state{a})
	return a, nil
}

// assemble returns an agent of its parts.
func assemble(b *base) *Agent {
	reg := &registration{base: b, readFor: map[protocol.StoreID]bool{}, beatNow: make(chan struct{}, 1), listNow: make(chan struct{}, 1)}
	ps := &pools{base: b, reg: reg, byName: map[protocol.PoolName]*pool{}}
	rs := &rights{base: b, reg: reg, pools: ps}
	bs := &blocks{base: b, reg: reg, pools: ps, rights: rs}
	as := &attachments{base: b, pools: ps, rights: rs, blocks: bs}
	as.sightings = sightings.New(b.st, b.host, b.sched, b.log, b.background, reg.beatSoon)
	reg.answer, reg.newTerm, reg.onTerm, reg.react = as.sightings.Answer, rs.enter, rs.confirmAgain, func(seen protocol.Registration) {
		ps.hearLabels(seen.Labels)
		bs.hearRecalls(seen)
		as.sightings.Ask(seen.Query)
	}
	ps.onExhausted = bs.cedeExhausted
	ls := &losses{base: b, reg: reg, pools: ps, rights: rs, attachments: as}
	strange := &strangers{base: b, reg: reg, pools: ps, blocks: bs, asked: map[string]probe{}, proved: map[poolAddress]protocol.UID{}}
	return &Agent{base: b, reg: reg, pools: ps, rights: rs, blocks: bs, attachments: as, losses: ls, strangers: strange, attach: nobody{}}
}

// nobody refuses the meta-plugin's verbs.
type nobody struct{}

// Serve implements [agentapi.Handler].
func (nobody) Serve(context.Context, agentapi.Request) agentapi.Response {
	return agentapi.Fail(agentapi.CodeNotAvailable, "this agent does not serve the meta-plugin")
}

// Attach makes h answer the meta-plugin's verbs, Facts and Report, which an agent
// without it refuses. Call it before [Agent.Run].
func (a *Agent) Attach(h agentapi.Handler) { a.attach = h }

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
	a.pools.follow = a.pools.follower(ctx, g.Go)
	if err := a.resume(ctx); err != nil {
		return fmt.Errorf("resume from the store: %w", err)
	}
	g.Go(func() error { return a.reg.run(ctx) })
	g.Go(func() error { return a.reg.follow(ctx) })
	g.Go(func() error { return a.maintain(ctx) })
	g.Go(func() error { return serve(ctx) })
	return g.Wait()
}

// resume takes up what the store has: the registration if it is of this boot, the pools,
// and the rechecks of all rights that do not serve.
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
			history = history.SawRight(r, id.Term)
		}
		again, err := a.rights.enter(tx, id.Term)
		for _, name := range again {
			a.rights.recheckIn(name, 0)
		}
		return err
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
	a.reg.resume(id, history)
	for _, p := range kept {
		a.pools.adopt(ctx, protocol.PoolName(p.Name), p)
	}
	a.log.InfoContext(ctx, "agent resumes", "node", a.cfg.Node, "store", a.st.ID(), "term", id.Term, "pools", len(kept), "registered", a.reg.registered())
	return nil
}

// Serving reports whether the agent may give out addresses now; if not, why.
func (a *Agent) Serving() (bool, string) { return a.reg.serving() }

// Ready reports whether the agent can serve an ADD now and, since it started, has told the
// API server what its node holds; if not, why. Whoever restores etcd starts the controller only
// then: it grants every address that it does not know to be in use. An agent that is not ready
// for that alone serves ADDs. Ready waits for a disk that hangs until ctx ends.
func (a *Agent) Ready(ctx context.Context) (bool, string) { return a.reg.ready(ctx) }

// BeatNow has the next heartbeat sent now, and with it what the node says of itself.
func (a *Agent) BeatNow() { a.reg.beatSoon() }

// WarnNode tells people of this node what another part of its agent has to say. told is false
// while it is not known yet which Node this is. Safe for concurrent use.
func (a *Agent) WarnNode(reason, message string) (told bool) {
	uid := a.reg.current().Self.NodeUID
	if uid == "" {
		return false
	}
	a.cl.Events.WarnNode(a.cfg.Node, uid, reason, message)
	return true
}
