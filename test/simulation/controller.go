package simulation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/controller/deadnodes"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/looker"
	"github.com/tenure-ipam/tenure/ipam/controller/nodelabels"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/controller/requests"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simController is one controller process: the broker and the reconcilers that
// ship, on informers that are behind, with a clock that may be wrong. It may die
// between any two calls, and then starts anew, knowing nothing.
type simController struct {
	caller
	process
	boots int
	clock time.Duration // how much its wall clock is off
	jump  time.Duration // and, with M51, how far the other one has jumped
	away  bool          // cut off from the API server
	down  bool          // stopped, until the agents have seen that the API server went back
}

// process is what dies with the controller.
type process struct {
	crew

	leases    *simWatch[protocol.Lease]
	subs      *simWatch[protocol.SubLease]
	pools     *simWatch[simPool]
	claims    *simWatch[simClaim]
	regs      *simWatch[protocol.Registration]
	rackNodes *simWatch[rackNode]
	informers []informer // all of them

	broker   *grants.Broker
	ofClaims *claims.Reconciler
	ofPools  *pools.Reconciler
	queues   []simQueue // by kind
	starting bool       // the informers list for the first time
	shapes   *pools.Shapes
	look     looks

	started, turning bool
	cachedNodes      map[protocol.NodeName]protocol.Node // of M17
	// Whose Node was gone, as far as that counts, or off when it was last read.
	sawGone map[protocol.NodeName]bool
	// Who was silent for F when the registration that names him was last read.
	sawSilent map[protocol.StoreID]bool
	swept     time.Duration          // when idle leases were last looked for
	due       map[task]time.Duration // when each is to be looked at
	underWay  map[task]bool
}

// task is an object that a reconciler is to look at.
type task struct {
	kind taskKind
	name string
}

type taskKind uint8

const (
	lookAtClaim taskKind = iota
	lookAtPool
	lookAtRegistration
	lookAtRequest
	lookAtLabels
)

// The program's metrics, which nobody reads here: one set for all.
var (
	brokerMetrics = grants.NewMetrics()
	claimMetrics  = claims.NewMetrics()
	poolMetrics   = pools.NewMetrics()
	deadMetrics   = deadnodes.NewMetrics()
	askMetrics    = requests.NewMetrics()
	lookMetrics   = looker.NewMetrics()
)

func newSimController(w *world, who string) *simController {
	c := &simController{}
	c.caller = caller{w: w, who: who, refusals: 80, deaf: func() bool { return c.away }}
	c.boot()
	return c
}

// boot starts the process: its informers list what some replica has.
func (c *simController) boot() {
	w := c.w
	c.down = false
	c.clock = w.upTo(time.Hour) - 30*time.Minute
	if w.kind.foreign { // whoever looks relies on clocks that are a few seconds apart
		c.clock /= 15 * 60
	}
	c.process = process{
		leases: w.api.leases.watch(c.seeLease), subs: w.api.subs.watch(c.seeSub), pools: w.api.pools.watch(c.seePool),
		claims: w.api.claims.watch(c.seeClaim), regs: w.api.regs.watch(c.seeRegistration), rackNodes: w.api.nodes.watch(c.seeNode),
		shapes: &pools.Shapes{}, due: map[task]time.Duration{}, underWay: map[task]bool{}, cachedNodes: map[protocol.NodeName]protocol.Node{},
		sawGone: map[protocol.NodeName]bool{}, sawSilent: map[protocol.StoreID]bool{},
	}
	c.informers = []informer{c.leases, c.subs, c.pools, c.claims, c.regs, c.rackNodes}
	log := slog.New(slog.DiscardHandler)
	cfg := grants.DefaultConfig()
	cfg.Calls, cfg.Now = 1, c.now
	cfg.Restored = func(ctx context.Context, pools ...protocol.PoolName) (bool, error) {
		return c.ofPools.Restored(ctx, pools...)
	}
	c.boots++
	cfg.ID = fmt.Sprintf("%s-%d", c.who, c.boots)
	b, err := grants.New(cfg, liveCalls{c}, grants.Notify{
		Claim:    func(key grants.ClaimKey) { c.soon(task{lookAtClaim, key.Name}, 0) },
		SubLease: func(name string) { c.soon(task{lookAtRequest, name}, 0) },
		Pool:     func(name protocol.PoolName) { c.soon(task{lookAtPool, string(name)}, 0) },
	}, brokerMetrics, log)
	if err != nil {
		panic(err)
	}
	c.broker = b
	c.ofPools = &pools.Reconciler{
		Cache: cacheReader{c: c}, Starving: b.Starving, Changed: &trigger.Source{}, Write: writeClient{c: c}, Live: liveCalls{c}, Networks: simNetworks{},
		Shapes: c.shapes, Metrics: poolMetrics, Log: log, CountsEvery: time.Minute, Now: c.now,
	}
	c.ofClaims = &claims.Reconciler{
		Ports: noPorts{},
		Cache: cacheReader{c: c}, Status: writeClient{c: c}, Live: claimReads{liveCalls{c}}, Broker: granter{c.broker, c}, Networks: simNetworks{},
		Admission: everybody{}, Events: noEvents{}, Metrics: claimMetrics, Log: log, Now: c.now,
	}
	ofDead := &deadnodes.Reconciler{
		Cache: cacheReader{c: c}, RegistrationNamespace: "registrations", Live: nodeCalls{liveCalls{c}}, Events: noEvents{}, Metrics: deadMetrics, Log: log,
		Margin: deadnodes.DefaultMargin, Calls: 1, Now: func() time.Duration { return w.now + c.jump },
	}
	if w.fault == "M18" {
		ofDead.Margin = -defaultFence / 2
	}
	ofSubs := &requests.Reconciler{
		Cache: cacheReader{c: c}, API: liveCalls{c}, Broker: granter{c.broker, c}, Metrics: askMetrics, Log: log, Now: c.now,
	}
	ofLabels := &nodelabels.Reconciler{Cache: cacheReader{c: c}, RegistrationNamespace: "registrations", Live: liveCalls{c}, Log: log}
	if w.other != nil {
		c.newLooker()
	}
	c.queues = []simQueue{
		lookAtClaim:        {c: c, kind: lookAtClaim, run: c.ofClaims.Reconcile, watches: c.ofClaims.Watches()},
		lookAtPool:         {c: c, kind: lookAtPool, run: c.ofPools.Reconcile, watches: c.ofPools.Watches()},
		lookAtRegistration: {c: c, kind: lookAtRegistration, run: ofDead.Reconcile}, // at any time: see act
		lookAtRequest:      {c: c, kind: lookAtRequest, run: ofSubs.Reconcile, watches: ofSubs.Watches()},
		lookAtLabels:       {c: c, kind: lookAtLabels, run: ofLabels.Reconcile, watches: ofLabels.Watches()},
	}
	c.relist(true)
}

// now is the controller's wall clock. That jumps, but not the times of one process as
// Go compares them, by the monotonic clock.
func (c *simController) now() time.Time { return c.w.wall(c.clock) }

// end ends all that still runs.
func (w *world) end() {
	for _, c := range w.ctls {
		c.kill()
	}
	for _, n := range w.nodes {
		n.stop()
	}
	must(os.RemoveAll(w.dir))
	for _, co := range w.idle {
		co.stop()
	}
}

// crash ends the process.
func (c *simController) crash() {
	c.w.logf("%s: crashes", c.who)
	c.kill()
	c.die()
}

// act does one thing of the controller, or to it.
func (c *simController) act() {
	w := c.w
	if c.down {
		if w.everyAgent((*simNode).told) {
			c.boot()
		}
		return
	}
	switch {
	case w.one(120):
		c.crash()
		c.boot()
		return
	case w.fault == "M51" && w.one(150):
		c.jump += w.upTo(time.Hour)
		w.logf("%s: the clock jumps", c.who)
		return
	case c.away && w.one(10):
		c.away = false
		w.logf("%s: cut off no more", c.who)
		return
	case w.one(200):
		c.away = true
		w.logf("%s: cut off", c.who)
		return
	}
	for range 1 + w.rng.IntN(8) { // close together, as most things are
		if w.one(8) || !c.work() || w.failure != nil {
			break
		}
	}
	if w.failure != nil {
		return
	}
	if w.other != nil {
		c.lookOn()
		c.reconcile()
	}
	switch w.rng.IntN(8) {
	case 0, 1:
		c.hear(1 + w.rng.IntN(8))
	case 2, 3:
		c.reconcile()
	case 4:
		c.turn()
	case 5, 6:
		c.soon(task{lookAtRegistration, string(w.nodes[w.rng.IntN(len(w.nodes))].name)}, 0)
		c.reconcile()
	case 7:
		if w.one(10) {
			c.relist(false)
		}
	}
}

// recover is what the controller does when nothing else happens. Its informers may be
// a moment behind, if behind is true.
func (c *simController) recover(nodes []*simNode, behind bool) {
	if c.down {
		if !c.w.everyAgent((*simNode).told) {
			return
		}
		c.boot()
	}
	c.away = false
	for _, n := range nodes {
		c.soon(task{lookAtRegistration, string(n.name)}, 0)
	}
	c.giveBackFrozen()
	if !behind || !c.w.one(3) {
		c.hearAll()
	}
	for range 2 * len(c.due) { // what is due again at once waits for the next round
		c.reconcile()
	}
	c.turn()
	c.lookOn()
}

// soon has a task looked at after so long, or earlier.
func (c *simController) soon(t task, after time.Duration) {
	at := c.w.now + after
	if old, ok := c.due[t]; !ok || at < old {
		c.due[t] = at
	}
}

// reconcile looks at one object whose time has come, unless that is under way.
func (c *simController) reconcile() {
	var ready []task
	for t, at := range c.due {
		if at <= c.w.now && !c.underWay[t] && (t.kind != lookAtPool || !c.looksAtPool()) {
			ready = append(ready, t)
		}
	}
	slices.SortFunc(ready, func(a, b task) int { return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name)) })
	t, ok := pickOf(c.w, ready)
	if !ok {
		return
	}
	delete(c.due, t)
	c.underWay[t] = true
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: t.name}}
	if t.kind == lookAtClaim {
		req.Namespace = "ns"
	}
	c.start(t.name, func() {
		c.w.logf("%s: looks at %s", c.who, t.name)
		res, err := c.queues[t.kind].run(context.Background(), req)
		switch {
		case err != nil:
			c.w.logf("%s: %s: %v", c.who, t.name, err)
			c.soon(t, time.Second)
		case res.RequeueAfter > 0:
			c.soon(t, res.RequeueAfter)
		}
	}, func() { delete(c.underWay, t) })
}

// looksAtPool reports whether a pool of a domain is being looked at: the reconciler
// looks at one of them at a time, and where it waits for that its routine cannot.
func (c *simController) looksAtPool() bool {
	return c.w.kind.moves && slices.ContainsFunc(slices.Collect(maps.Keys(c.underWay)), func(t task) bool { return t.kind == lookAtPool })
}

// turn has the broker take a turn, unless it is at one.
func (c *simController) turn() {
	if c.turning {
		return
	}
	c.turning = true
	if !c.started {
		c.start("start", func() { c.started = c.broker.Start(context.Background()) }, func() {
			c.turning = false
			for _, name := range c.broker.SubLeases() {
				c.soon(task{lookAtRequest, name}, 0)
			}
		})
		return
	}
	sweep := c.w.now-c.swept >= time.Second
	if sweep {
		c.swept = c.w.now
	}
	c.start("turn", func() { c.broker.RunOnce(context.Background(), sweep) }, func() { c.turning = false })
}
