package deadnodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Live reads from the API server, never from a cache, and writes by
// compare-and-swap on UID and revision.
type Live interface {
	ReadRegistration(ctx context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error)
	UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error)
	DeleteRegistration(ctx context.Context, m protocol.Meta) (protocol.Outcome, error)
	ReadNode(ctx context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error)
	Pools(ctx context.Context) ([]protocol.Pool, error)
	LeasesOfPool(ctx context.Context, pool protocol.PoolName) ([]protocol.Lease, error)
	LeasesOfNode(ctx context.Context, node protocol.NodeName) ([]protocol.Lease, error)
	ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error)
	UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error)
	SubLeasesOfNode(ctx context.Context, node protocol.NodeName) ([]protocol.SubLease, error)
	ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error)
	DeleteSubLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error)
}

// DefaultMargin is how long after F a silent node is taken over: clocks run at
// different speeds, and a write takes its time.
const DefaultMargin = time.Minute

// DefaultCalls is how many calls to the API server one node's take-over makes at
// once.
const DefaultCalls = 16

const (
	// nodes is how many nodes are taken over at once.
	nodes = 4
	// recheckAfter is how often a registration is looked at whose former agent
	// may have left something: what is left may become free to take without a
	// sound, as when a pool's takeOver is changed.
	recheckAfter = 5 * time.Minute
)

// Reconciler looks after registrations. Make one with all its exported fields set.
type Reconciler struct {
	// Cache has Nodes, and the registrations in RegistrationNamespace.
	Cache                 client.Reader
	RegistrationNamespace string
	Live                  Live
	Events                events.EventRecorder
	Metrics               *Metrics
	Log                   *slog.Logger
	// Margin is what is waited beyond F.
	Margin time.Duration
	// Calls is how many calls one node's take-over makes at once.
	Calls int
	// Now is a clock that does not jump.
	Now func() time.Duration

	mu      sync.Mutex
	vigils  map[protocol.NodeName]protocol.Vigil // guarded by mu
	garbled map[protocol.NodeName]bool           // guarded by mu; registrations that people were told of
}

// see notes that a registration has been seen, live or on a watch.
func (r *Reconciler) see(reg protocol.Registration) protocol.Vigil {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.vigils == nil {
		r.vigils = map[protocol.NodeName]protocol.Vigil{}
	}
	v := r.vigils[reg.Node].See(reg, r.Now())
	r.vigils[reg.Node] = v
	return v
}

// forget drops what is remembered of a registration that is gone.
func (r *Reconciler) forget(node protocol.NodeName) {
	r.mu.Lock()
	delete(r.vigils, node)
	delete(r.garbled, node)
	r.mu.Unlock()
	r.Metrics.setWaiting(node, 0)
}

// legible returns a registration as it was read, or, if err says that it is garbled, what can be
// read of it: a node's credential is enough to garble its registration, and must not be enough to
// keep what it holds. Whoever cannot be read among the former registrants goes with the
// last one, as does who is not named at all. People are told once.
func (r *Reconciler) legible(ctx context.Context, reg protocol.Registration, err error) (what protocol.Registration, garbled bool) {
	bad, garbled := errors.AsType[*kube.RegistrationError](err)
	switch {
	case garbled:
		reg = bad.Registration
	case !reg.Ended() && (reg.Machine == "" || reg.Boot == ""):
		garbled, err = true, errNameless
	}
	r.mu.Lock()
	told := r.garbled[reg.Node]
	switch {
	case !garbled:
		delete(r.garbled, reg.Node)
	case r.garbled == nil:
		r.garbled = map[protocol.NodeName]bool{reg.Node: true}
	default:
		r.garbled[reg.Node] = true
	}
	r.mu.Unlock()
	if garbled && !told {
		r.Log.ErrorContext(ctx, "registration is garbled: it is judged by what can be read of it", "node", reg.Node, "error", err)
		r.tell(reg.Node, reg.NodeUID, "RegistrationGarbled", fmt.Sprintf("the registration is not as an agent writes it: %v", err))
	}
	return reg, garbled
}

// errNameless says what no agent leaves out of its registration.
var errNameless = errors.New("it does not say which machine, or which boot of it")

// Reconcile looks at one registration, live, and does what its judgement says.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := protocol.NodeName(req.Name)
	reg, out, err := r.Live.ReadRegistration(ctx, name)
	_, garbled := errors.AsType[*kube.RegistrationError](err)
	switch {
	case out == protocol.NotFound:
		r.forget(name)
		return reconcile.Result{}, nil
	case out != protocol.Done && !garbled:
		return reconcile.Result{}, fmt.Errorf("read registration %s: %w", name, err)
	}
	reg, garbled = r.legible(ctx, reg, err)
	node, err := r.readNode(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	v := r.see(reg)
	j := protocol.Judge(reg, v, node, r.Margin, r.Now())
	if j.End != protocol.EvidenceNone {
		if reg, err = r.end(ctx, reg, v, j.End); err != nil {
			return reconcile.Result{}, err
		}
		garbled = false // every part of it was written
		v = r.see(reg)
		j = protocol.Judge(reg, v, node, r.Margin, r.Now())
	}
	after := j.After
	switch {
	case protocol.Abandoned(reg, node) && !garbled: // else somebody may be left whom it does not show
		return reconcile.Result{}, r.remove(ctx, reg)
	case len(reg.Former) > 0:
		if err := r.settle(ctx, reg, v, node, j.Dead); err != nil {
			return reconcile.Result{}, err
		}
		if after == 0 || after > recheckAfter {
			after = recheckAfter
		}
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// readNode reads the Node of that name live.
func (r *Reconciler) readNode(ctx context.Context, name protocol.NodeName) (protocol.Node, error) {
	node, out, err := r.Live.ReadNode(ctx, name)
	if out != protocol.Done && out != protocol.NotFound {
		return protocol.Node{}, fmt.Errorf("read node %s: %w", name, err)
	}
	return node, nil
}

// errChanged says that somebody else has written the registration: a heartbeat has come,
// or another controller was faster. It is looked at anew.
var errChanged = errors.New("the registration has changed meanwhile")

// end ends the term of a registration, and returns the registration as it is then. Whether a write
// without an answer took effect, the next look tells.
func (r *Reconciler) end(ctx context.Context, reg protocol.Registration, v protocol.Vigil, why protocol.Evidence) (protocol.Registration, error) {
	ended, out, err := r.Live.UpdateRegistration(ctx, protocol.EndTerm(reg, why))
	switch out {
	case protocol.Done:
	case protocol.Conflict, protocol.NotFound:
		return reg, fmt.Errorf("end term %d of node %s: %w", reg.Term, reg.Node, errChanged)
	default:
		return reg, fmt.Errorf("end term %d of node %s: %w", reg.Term, reg.Node, err)
	}
	r.Metrics.ended(why)
	r.Log.WarnContext(ctx, "term of a dead node ended", "node", reg.Node, "term", reg.Term, "store", reg.Store,
		"why", because(why), "silent", v.Silent(r.Now()).Round(time.Second))
	r.tell(reg.Node, reg.NodeUID, "TermEnded", fmt.Sprintf("term %d of the agent has ended: %s", reg.Term, because(why)))
	return ended, nil
}

// because says in words why a registrant counts as dead.
func because(why protocol.Evidence) string {
	if why == protocol.EvidenceTaint {
		return "the Node has the taint " + corev1.TaintNodeOutOfService
	}
	return "the Node object is gone and the agent was not heard of for longer than its fence"
}

// settle takes what the dead have left, and then lets the registration forget those of whom
// nothing is left; with the last of them the registration may go.
func (r *Reconciler) settle(ctx context.Context, reg protocol.Registration, v protocol.Vigil, node protocol.Node, dead []protocol.Dead) error {
	t := &taking{live: r.Live, calls: r.Calls, node: reg.Node, dead: dead, stores: map[protocol.StoreID]bool{}}
	err := t.run(ctx)
	r.report(ctx, reg, t)
	if err != nil {
		return fmt.Errorf("take over node %s: %w", reg.Node, err)
	}
	next, ok := protocol.Settle(reg, v, t.stores, r.Now())
	if !ok {
		return nil
	}
	now, out, err := r.Live.UpdateRegistration(ctx, next)
	switch {
	case out == protocol.Conflict, out == protocol.NotFound: // the next look settles it
		return nil
	case out != protocol.Done:
		return fmt.Errorf("settle registration %s: %w", reg.Node, err)
	case protocol.Abandoned(now, node):
		return r.remove(ctx, now)
	}
	return nil
}

// remove deletes a registration that nobody needs any more.
func (r *Reconciler) remove(ctx context.Context, reg protocol.Registration) error {
	switch out, err := r.Live.DeleteRegistration(ctx, reg.Meta); out {
	case protocol.Done, protocol.NotFound:
		r.forget(reg.Node)
		r.Log.InfoContext(ctx, "registration of a node that is gone removed", "node", reg.Node, "term", reg.Term)
		return nil
	case protocol.Conflict: // somebody has registered
		return nil
	default:
		return fmt.Errorf("remove registration %s: %w", reg.Node, err)
	}
}

// report tells people what was taken.
func (r *Reconciler) report(ctx context.Context, reg protocol.Registration, t *taking) {
	leases, subs := int(t.leases.Load()), int(t.subs.Load())
	r.Metrics.took(leases, subs)
	r.Metrics.setWaiting(reg.Node, t.waiting)
	if leases+subs == 0 {
		return
	}
	r.Log.WarnContext(ctx, "dead node taken over", "node", reg.Node, "leases", leases, "subLeases", subs, "waiting", t.waiting)
	note := fmt.Sprintf("taken over: leases %d, uses and requests ended %d", leases, subs)
	if t.waiting > 0 {
		note += fmt.Sprintf("; %d wait, as their pools ask, until somebody vouches with the taint %s", t.waiting, corev1.TaintNodeOutOfService)
	}
	r.tell(reg.Node, t.dead[len(t.dead)-1].NodeUID, "TakenOver", note)
}

// tell writes an Event about a Node, which may be gone.
func (r *Reconciler) tell(node protocol.NodeName, uid protocol.UID, reason, note string) {
	of := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(node), UID: types.UID(uid)}}
	r.Events.Eventf(of, nil, corev1.EventTypeWarning, reason, "TakeOver", "%s", note)
}
