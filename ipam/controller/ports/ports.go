package ports

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Neutron is what is asked of Neutron: a [neutron.Client].
type Neutron interface {
	Subnets(ctx context.Context, ids []string) ([]neutron.Subnet, error)
	EnsureMany(ctx context.Context, wants []neutron.Want) []neutron.Ensured
	Delete(ctx context.Context, portID, claim string) error
	DeleteOf(ctx context.Context, claims []string) []error
	Ours(ctx context.Context, networks ...string) ([]neutron.Port, error)
	PortsOfServers(ctx context.Context, network string, servers []string) ([]neutron.ServerPort, error)
	SetPairs(ctx context.Context, p neutron.ServerPort, pairs []neutron.Pair) error
}

// Ports makes the ports of claims, and deletes them. Its methods may be called concurrently; it
// calls Neutron while Run runs, and nowhere else. Make one with all exported fields set.
type Ports struct {
	// Cache has pools and claims, and Live reads at the API server.
	Cache client.Reader
	Live  client.Reader
	// Connect returns the client of Neutron; its error says why there is none.
	Connect func(context.Context) (Neutron, error)
	Shapes  *pools.Shapes
	// Held returns what is granted to a claim, and Restored reports whether the API server's
	// data went back and nodes have yet to put back what they hold: then nothing is deleted.
	Held     func(uid protocol.UID) []grants.Held
	Restored func(ctx context.Context, names ...protocol.PoolName) (bool, error)
	// Notify has a claim looked at, and TellPool a pool by all that says something of it.
	Notify   func(grants.ClaimKey)
	TellPool func(protocol.PoolName)
	Metrics  *Metrics
	Log      *slog.Logger
	Now      func() time.Time
	// SweepEvery is how often Neutron's ports and the claims are compared.
	SweepEvery time.Duration

	allowing sync.Mutex // held while the pairs of nodes' ports are compared and written

	mu         sync.Mutex
	entries    map[protocol.UID]*entry            // guarded by mu
	named      map[grants.ClaimKey][]protocol.UID // guarded by mu: whose entries there are under a claim's name
	releases   map[protocol.UID]time.Time         // guarded by mu: ports of which claims to delete, and when
	surplus    map[string]protocol.UID            // guarded by mu: ports that a claim has too many, by ID
	deleting   map[string]protocol.UID            // guarded by mu: those of them that are being deleted
	lost       map[protocol.UID]bool              // guarded by mu: claims whose port is not as told
	shown      map[shownPort]int                  // guarded by mu: what Neutron has shown, by lists then
	lists      int                                // guarded by mu: how many lists of all ports have begun
	pairs      map[protocol.PoolName]Problem      // guarded by mu: why the nodes' ports are not as they should be
	gates      map[protocol.PoolName]*gate        // guarded by mu: pools whose ports cannot be made now; "" is all
	hasDeleted bool                               // guarded by mu: the last job was to delete ports
	work       chan struct{}                      // holds a value while there may be something to do
	sweeping   chan struct{}                      // holds a value when a sweep is to come early
}

// entry is a claim that asks for its port, or has got it and has not been told yet.
type entry struct {
	ask     Ask
	wants   []neutron.Want // what would do, the best first
	next    int            // the index in wants of what is tried next
	busy    bool           // a call is under way
	changed bool           // something else has been asked meanwhile
	port    *neutron.Port
	granted Answer // of port
	problem Problem
	again   time.Time
}

// A gate keeps asks back that would fail as others have: one at a time tries.
type gate struct {
	problem Problem
	until   time.Time
	wait    time.Duration
}

// Init makes p ready for use.
func (p *Ports) Init() *Ports {
	p.entries, p.releases, p.surplus = map[protocol.UID]*entry{}, map[protocol.UID]time.Time{}, map[string]protocol.UID{}
	p.deleting, p.pairs = map[string]protocol.UID{}, map[protocol.PoolName]Problem{}
	p.named = map[grants.ClaimKey][]protocol.UID{}
	p.lost, p.gates = map[protocol.UID]bool{}, map[protocol.PoolName]*gate{}
	p.shown = map[shownPort]int{}
	p.work, p.sweeping = make(chan struct{}, 1), make(chan struct{}, 1)
	return p
}

// signal wakes Run.
func (p *Ports) signal() {
	select {
	case p.work <- struct{}{}:
	default:
	}
}

// Ask says what became of a so far. Where its port is being made, or cannot be made now, the claim
// is notified when there is news.
func (p *Ports) Ask(ctx context.Context, a Ask) (Answer, error) {
	facts, err := p.facts(ctx, a)
	if err != nil {
		return Answer{}, err
	}
	wants, bad := choices(a, facts)
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[a.UID]
	isNew := e == nil
	if isNew {
		e = &entry{ask: a}
		p.entries[a.UID] = e
		p.named[a.Claim] = append(p.named[a.Claim], a.UID)
	}
	switch {
	case e.busy: // the answer to what was asked before comes first
		e.changed = e.changed || !e.ask.equal(a)
		return Answer{}, nil
	case e.port != nil && e.ask.equal(a):
		return e.granted, nil
	case !e.ask.equal(a):
		*e, isNew = entry{ask: a}, true
	}
	isNew = isNew || !reflect.DeepEqual(e.wants, wants)
	e.wants, e.next = wants, min(e.next, max(len(wants)-1, 0))
	if !bad.None() {
		return Answer{Problem: bad}, nil
	}
	if g := p.closedFor(a); g != nil && e.problem.None() {
		e.problem = g.problem
	}
	if isNew { // what waits already, Run comes back to
		p.signal()
	}
	return Answer{Problem: e.problem}, nil
}

// leave forgets what a claim has asked for. The caller holds mu.
func (p *Ports) leave(uid protocol.UID) {
	e := p.entries[uid]
	if e == nil {
		return
	}
	delete(p.entries, uid)
	left := slices.DeleteFunc(p.named[e.ask.Claim], func(u protocol.UID) bool { return u == uid })
	if p.named[e.ask.Claim] = left; len(left) == 0 {
		delete(p.named, e.ask.Claim)
	}
}

// facts reads the pools of an ask.
func (p *Ports) facts(ctx context.Context, a Ask) ([]poolFacts, error) {
	var all []poolFacts
	for _, src := range a.From {
		pool, err := p.pool(ctx, src.Pool)
		if err != nil {
			return nil, err
		}
		f := poolFacts{name: src.Pool}
		if pool != nil {
			f.shape, _ = p.Shapes.Of(pool)
			f.status = pool.Status.Neutron
		}
		all = append(all, f)
	}
	return all, nil
}

// pool reads a pool; nil: there is none.
func (p *Ports) pool(ctx context.Context, name protocol.PoolName) (*v1alpha1.IPPool, error) {
	var pool v1alpha1.IPPool
	if err := p.Cache.Get(ctx, client.ObjectKey{Name: string(name)}, &pool); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	return &pool, nil
}

// Serves reports whether a pool has a source, so that its addresses come with ports.
func (p *Ports) Serves(ctx context.Context, name protocol.PoolName) (bool, error) {
	pool, err := p.pool(ctx, name)
	return pool != nil && pool.Spec.Source != nil, err
}

// closedFor returns the gate that keeps a back, nil if none does. The caller holds mu.
func (p *Ports) closedFor(a Ask) *gate {
	for _, name := range append([]protocol.PoolName{""}, namesOf(a)...) {
		g := p.gates[name]
		// Of a subnet that has none left, an address that is named may be free.
		if g == nil || g.problem.Reason == neutron.SubnetExhausted && len(a.Addresses) > 0 {
			continue
		}
		return g
	}
	return nil
}

// Known returns the UIDs that have asked under a claim's name and have not been told everything.
func (p *Ports) Known(key grants.ClaimKey) []protocol.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.named[key])
}

// Settle says that the claim's status names the addresses of a port. If that is the one which was
// answered, whatever else the claim has in Neutron is deleted.
func (p *Ports) Settle(uid protocol.UID, portID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lost, uid)
	e := p.entries[uid]
	if e == nil || e.busy {
		return
	}
	if e.port != nil && e.port.ID == portID { // else another controller has chosen
		for _, id := range e.port.Surplus {
			p.surplus[id] = uid
		}
	}
	p.leave(uid)
	p.signal()
}

// Withdraw says that a claim wants no port for now, and has not been told of one. A port that was
// made stays the claim's.
func (p *Ports) Withdraw(uid protocol.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[uid]; e != nil && !e.busy {
		p.leave(uid)
	}
}

// Release says that there is no claim of that UID any more, and that nothing is granted to it: its
// ports are deleted.
func (p *Ports) Release(uid protocol.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releases[uid] = time.Time{}
	if e := p.entries[uid]; e != nil && !e.busy {
		p.leave(uid)
	}
	p.signal()
}

// Refuse says that the addresses of the claim's port cannot be granted. The port is deleted, and
// the claim asks anew after a while. Why that is may be a claim whose port was lost: the sweep
// comes early.
func (p *Ports) Refuse(uid protocol.UID, why Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[uid]
	if e == nil || e.busy || e.port == nil {
		return
	}
	p.surplus[e.port.ID] = uid
	for _, id := range e.port.Surplus {
		p.surplus[id] = uid
	}
	*e = entry{ask: e.ask, wants: e.wants, problem: why, again: p.Now().Add(refusedFor)}
	p.signal()
	p.sweepSoon()
}

// Lost reports whether Neutron has no port of the claim as it was told.
func (p *Ports) Lost(uid protocol.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[uid]
}

// A shownPort is what Neutron says of a port of ours.
type shownPort struct {
	claim            protocol.UID
	id, mac, network string
}

// Shown reports whether Neutron has shown a port as that of a claim, in the last list of all ports
// or since. What a claim's annotation tells is not believed before.
func (p *Ports) Shown(claim protocol.UID, port vif.Port) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, shown := p.shown[shownPort{claim, port.ID, port.MAC, port.Network}]
	return shown
}

// show notes a port that Neutron has shown. The caller holds mu.
func (p *Ports) show(port neutron.Port) {
	p.shown[shownPort{protocol.UID(port.Claim), port.ID, port.MAC.String(), port.Network}] = p.lists
}

// list returns all our ports, and notes what Neutron shows. A port that was made after the list had
// begun may be missing in it, and counts as shown.
func (p *Ports) list(ctx context.Context, nc Neutron) ([]neutron.Port, error) {
	p.mu.Lock()
	p.lists++
	p.mu.Unlock()
	ours, err := nc.Ours(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // says what it is about
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range ours {
		p.show(port)
	}
	maps.DeleteFunc(p.shown, func(_ shownPort, begun int) bool { return begun < p.lists })
	return ours, nil
}

// Trouble returns why ports of a pool cannot be made now; none, if they can.
func (p *Ports) Trouble(name protocol.PoolName) Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range []protocol.PoolName{"", name} {
		switch g := p.gates[of]; {
		case g == nil:
		case p.Now().Sub(g.until) > 2*longWait: // nobody has tried since
			delete(p.gates, of)
		default:
			return g.problem
		}
	}
	return p.pairs[name]
}

// Stolen returns the addresses of claims of a pool that a port has which is not the claim's, each
// with both.
func (p *Ports) Stolen(name protocol.PoolName) (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.stolen() && slices.Contains(namesOf(e.ask), name) {
			all = append(all, fmt.Sprintf("claim %s/%s has lost its port: %s", e.ask.Claim.Namespace, e.ask.Claim.Name, e.problem.Message))
		}
	}
	slices.Sort(all)
	return all
}

// stolen reports whether another port has an address that is the claim's already.
func (e *entry) stolen() bool { return e.ask.Granted && e.problem.Reason == neutron.AddressInUse }

// portOf returns what a claim is told of its port.
func portOf(p neutron.Port, w neutron.Want) vif.Port {
	told := vif.Port{ID: p.ID, MAC: p.MAC.String(), Network: p.Network}
	for _, a := range w.Addresses {
		told.Subnets = append(told.Subnets, a.Subnet)
	}
	slices.Sort(told.Subnets)
	return told
}
