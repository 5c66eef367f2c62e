package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Granter grants addresses and takes grants back: a [grants.Broker].
type Granter interface {
	// Known returns the UIDs that have grants, or an ask, under a claim's name.
	Known(key grants.ClaimKey) []protocol.UID
	// Claims returns the claims that grants name.
	Claims() []grants.ClaimKey
	Held(uid protocol.UID) []grants.Held
	Ask(a grants.Ask) grants.Answer
	Verify(ctx context.Context, a grants.Ask) (grants.Answer, error)
	Withdraw(uid protocol.UID)
	MayFree(ctx context.Context, held []grants.Held) (bool, error)
	Mark(ctx context.Context, held []grants.Held) ([]grants.Held, error)
	Unmark(ctx context.Context, held []grants.Held) error
	Clear(ctx context.Context, held []grants.Held) error
}

// Live reads from the API server, never from a cache.
type Live interface {
	ReadClaim(ctx context.Context, namespace, name string) (protocol.Claim, protocol.Outcome, error)
	ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error)
}

// Resolver says what a network's name means to a claim in a namespace.
type Resolver interface {
	Resolve(ctx context.Context, network, namespace string) (networks.Resolution, error)
}

// Admission says who may use pools.
type Admission interface {
	// Admit returns nil if the namespace may use the pool; else an [*access.DeniedError],
	// an [*access.MissingError] or an [*access.UnknownError].
	Admit(ctx context.Context, namespace string, pool protocol.PoolName) error
}

// MachineReader reads what VirtualMachines ask for.
type MachineReader interface {
	// RequestedByMachine returns the addresses that a VirtualMachine asks for on an interface of
	// its own, separated by commas; nothing, where it does not, is not there, or must not be
	// read. It is a [kube.ErrMachineAddresses] if what it says cannot be read.
	RequestedByMachine(ctx context.Context, namespace, machine, iface string) (string, error)
}

// Reconciler looks after claims.
type Reconciler struct {
	// Cache has claims, sub-leases, pools, and Nodes with their labels.
	Cache client.Reader
	// Status writes claims' status, and Write their annotation about a port.
	Status    client.StatusClient
	Write     client.Writer
	Live      Live
	Broker    Granter
	Networks  Resolver
	Admission Admission
	Machines  MachineReader
	Ports     Porter
	Events    events.EventRecorder
	Metrics   *Metrics
	Log       *slog.Logger
	// Now is the clock.
	Now func() time.Time

	// unknown has, by grants.ClaimKey, since when (a time.Time) it has not been known
	// whether a claim's namespace may use the pools of its network.
	unknown sync.Map
	// undefined has, by grants.ClaimKey, when (a time.Time) people were told last that no
	// definition has its network.
	undefined sync.Map
}

// Reconcile looks at what there is under a claim's name: the claim, and grants to
// claims that had the name before.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := grants.ClaimKey{Namespace: req.Namespace, Name: req.Name}
	var obj ipamclaims.IPAMClaim
	err := r.Cache.Get(ctx, req.NamespacedName, &obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("read claim %s: %w", req, err)
	}
	there := err == nil
	if !there {
		r.unknown.Delete(key)
		r.undefined.Delete(key)
	}
	var errs []error
	var after time.Duration
	known := append(r.Broker.Known(key), r.Ports.Known(key)...)
	slices.Sort(known)
	for _, uid := range slices.Compact(known) {
		if there && uid == protocol.UID(obj.UID) {
			continue
		}
		again, err := r.release(ctx, key, uid)
		after = sooner(after, again)
		errs = append(errs, err)
	}
	if there {
		again, err := r.look(ctx, &obj)
		after = sooner(after, again)
		errs = append(errs, err)
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(errs...)
}

// look decides what is to be done about a claim, and does it.
func (r *Reconciler) look(ctx context.Context, obj *ipamclaims.IPAMClaim) (time.Duration, error) {
	s := seen{claim: read(obj), now: r.Now()}
	s.portLost = r.Ports.Lost(s.claim.uid)
	var err error
	if s.uses, err = r.uses(ctx, s.claim.uid); err != nil {
		return 0, err
	}
	for {
		s.held = r.Broker.Held(s.claim.uid)
		if err := r.readSources(ctx, &s); err != nil {
			return 0, err
		}
		p := decide(s)
		switch {
		case p.resolve:
			got, err := r.Networks.Resolve(ctx, s.claim.network, s.claim.key.Namespace)
			if err != nil {
				return 0, err
			}
			s.network = &got
			if s.place, err = r.place(ctx, s); err != nil {
				return 0, err
			}
		case p.admit:
			err := r.admit(ctx, s)
			if ctx.Err() != nil {
				return 0, err
			}
			s.admission = &admission{err, r.noteAccess(s.claim.key, err, s.now)}
		case p.readMachine:
			if s.byMachine, err = r.askMachine(ctx, s.claim); err != nil {
				return 0, err
			}
		case p.port != nil:
			answer, err := r.Ports.Ask(ctx, *p.port)
			if err != nil {
				return 0, fmt.Errorf("claim %s/%s: ask for a port: %w", s.claim.key.Namespace, s.claim.key.Name, err)
			}
			s.portAnswer = &answer
		case p.ask != nil:
			answer := r.Broker.Ask(*p.ask)
			s.answer = &answer
		case p.verify != nil:
			answer, err := r.Broker.Verify(ctx, *p.verify)
			if err != nil {
				return 0, err //nolint:wrapcheck // says what it is about
			}
			s.answer = &answer
		default:
			if free, err := r.Broker.MayFree(ctx, p.giveBack); !free {
				return recheckAfter, err //nolint:wrapcheck // says what it is about
			}
			return r.apply(ctx, obj, s.claim, p)
		}
	}
}

// askMachine returns what the VirtualMachine that owns a claim asks for. The claim is called
// MACHINE.INTERFACE.
func (r *Reconciler) askMachine(ctx context.Context, c claim) (*request, error) {
	iface, ok := strings.CutPrefix(c.key.Name, c.machine+".")
	if !ok {
		return &request{}, nil
	}
	text, err := r.Machines.RequestedByMachine(ctx, c.key.Namespace, c.machine, iface)
	asks := &request{text: text, from: fmt.Sprintf("%s of VirtualMachine %s", kube.AnnotationMachineAddresses, c.machine)}
	switch {
	case errors.Is(err, kube.ErrMachineAddresses):
		asks.fault = err
	case err != nil:
		return nil, fmt.Errorf("claim %s/%s: %w", c.key.Namespace, c.key.Name, err)
	}
	return asks, nil
}

// admit returns why the claim's namespace may not use every pool of its network, nil if
// it may.
func (r *Reconciler) admit(ctx context.Context, s seen) error {
	for _, src := range s.network.Network.Sources {
		if err := r.Admission.Admit(ctx, s.claim.key.Namespace, protocol.PoolName(src.Pool)); err != nil {
			return err //nolint:wrapcheck // says what it is about
		}
	}
	return nil
}

// noteAccess notes whether it is known who may use the pools of a claim's network: err is the
// answer. It returns since when that has been unknown, and no time if it is known.
func (r *Reconciler) noteAccess(key grants.ClaimKey, err error, now time.Time) time.Time {
	if _, denied := errors.AsType[*access.DeniedError](err); denied || err == nil {
		r.unknown.Delete(key)
		return time.Time{}
	}
	since, _ := r.unknown.LoadOrStore(key, now)
	return since.(time.Time) //nolint:forcetypeassert // of this function alone
}

// apply does what p says, and returns when the claim is to be looked at again.
func (r *Reconciler) apply(ctx context.Context, obj *ipamclaims.IPAMClaim, c claim, p plan) (time.Duration, error) {
	if p.tellPort != nil {
		return 0, r.tellPort(ctx, obj, c, *p.tellPort)
	}
	switch {
	case p.refusePort != nil:
		r.Ports.Refuse(c.uid, *p.refusePort)
	case p.withdraw:
		r.Ports.Withdraw(c.uid)
	}
	if p.withdraw {
		r.Broker.Withdraw(c.uid)
	}
	if len(p.unmark) > 0 {
		if err := r.Broker.Unmark(ctx, p.unmark); err != nil {
			return 0, fmt.Errorf("claim %s/%s: keep addresses: %w", c.key.Namespace, c.key.Name, err)
		}
	}
	if p.tellUndefined {
		r.tellUndefined(ctx, obj, c)
	}
	var marked []grants.Held
	if len(p.giveBack) > 0 {
		var err error
		if marked, err = r.Broker.Mark(ctx, p.giveBack); err != nil {
			return 0, fmt.Errorf("claim %s/%s: give addresses back: %w", c.key.Namespace, c.key.Name, err)
		}
	}
	if p.status != nil {
		if written, err := r.write(ctx, obj, c, *p.status); !written {
			return p.after, err
		}
	}
	if p.settlePort {
		r.Ports.Settle(c.uid, c.port.ID)
	}
	if len(marked) > 0 {
		// Somebody may have emptied the status of a claim that pods use.
		if _, err := r.clear(ctx, c.uid, marked); err != nil {
			return 0, fmt.Errorf("claim %s/%s: give addresses back: %w", c.key.Namespace, c.key.Name, err)
		}
	}
	if len(p.free) > 0 {
		return r.freeSurplus(ctx, c)
	}
	return p.after, nil
}

// write writes the status. It is not written, and that is no error, if the claim
// has changed: that change brings it here again.
func (r *Reconciler) write(ctx context.Context, obj *ipamclaims.IPAMClaim, c claim, st status) (bool, error) {
	patch, err := st.patch(c)
	if err != nil {
		return false, err
	}
	call, cancel := context.WithTimeout(ctx, kube.CallTimeout)
	defer cancel()
	into := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name}}
	err = r.Status.Status().Patch(call, into, patch)
	switch out := kube.Classify(err); out {
	case protocol.Done:
	case protocol.NotFound, protocol.Conflict:
		return false, nil
	default:
		return false, fmt.Errorf("write status of claim %s/%s: %w", c.key.Namespace, c.key.Name, err)
	}
	if len(c.ips) == 0 && len(st.ips) > 0 {
		r.Broker.Withdraw(c.uid) // the answer has been used
		r.Metrics.allocated.Observe(r.Now().Sub(obj.CreationTimestamp.Time).Seconds())
		r.Log.InfoContext(ctx, "claim allocated", "claim", obj.Namespace+"/"+obj.Name, "addresses", st.ips)
	}
	if st.news != nil {
		r.tell(ctx, obj, *st.news)
	}
	return true, nil
}

// tell makes an Event of a condition.
func (r *Reconciler) tell(ctx context.Context, obj *ipamclaims.IPAMClaim, news metav1.Condition) {
	kind := corev1.EventTypeNormal
	if news.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
		r.Metrics.failures.WithLabelValues(news.Reason).Inc()
		r.Log.WarnContext(ctx, "claim not allocated", "claim", obj.Namespace+"/"+obj.Name, "reason", news.Reason, "message", news.Message)
	}
	r.Events.Eventf(obj, nil, kind, news.Reason, "Allocate", "%.1000s", news.Message) // the API server takes 1 KiB
}

// uses returns the uses of a claim, as the cache has them.
func (r *Reconciler) uses(ctx context.Context, uid protocol.UID) ([]use, error) {
	var uses []use
	for i := range 2 {
		var obj v1alpha1.IPSubLease
		err := r.Cache.Get(ctx, client.ObjectKey{Name: protocol.UseName(uid, i)}, &obj)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read uses of claim %s: %w", uid, err)
		case obj.Spec.Use != nil:
			uses = append(uses, use{pod: obj.Spec.Use.Pod.Name, node: obj.Spec.Node, created: obj.CreationTimestamp.Time, name: obj.Name})
		}
	}
	return uses, nil
}

// sooner returns the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
