package requests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// recheckAfter is when a request is looked at again that could not be settled, should
// the news of a change go unnoticed.
const recheckAfter = 10 * time.Second

// Granter grants addresses and takes grants back: a [grants.Broker].
type Granter interface {
	// KnownSubLeases returns the UIDs that have grants, or an ask, under the name of
	// a sub-lease.
	KnownSubLeases(name string) []protocol.UID
	// SubLeases returns the names of the sub-leases that grants name.
	SubLeases() []string
	Held(uid protocol.UID) []grants.Held
	Ask(a grants.Ask) grants.Answer
	Verify(ctx context.Context, a grants.Ask) (grants.Answer, error)
	ReadLease(ctx context.Context, name string) (protocol.Lease, bool, error)
	Withdraw(uid protocol.UID)
	MayFree(ctx context.Context, held []grants.Held) (bool, error)
	Mark(ctx context.Context, held []grants.Held) ([]grants.Held, error)
	Unmark(ctx context.Context, held []grants.Held) error
	Clear(ctx context.Context, held []grants.Held) error
	Drop(ctx context.Context, held []grants.Held) error
}

// SubLeases reads sub-leases live, and writes them by compare-and-swap on UID and
// revision.
type SubLeases interface {
	ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error)
	UpdateSubLease(ctx context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error)
	AnswerSubLease(ctx context.Context, s protocol.SubLease) (protocol.Outcome, error)
}

// Reconciler looks after requests.
type Reconciler struct {
	// Cache has sub-leases.
	Cache   client.Reader
	API     SubLeases
	Broker  Granter
	Metrics *Metrics
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time

	answers sync.Map // name of a request -> the version that was answered, while the cache may show it
}

// Reconcile looks at what there is under a sub-lease's name: the request, and
// grants to requests that had the name before.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var obj v1alpha1.IPSubLease
	err := r.Cache.Get(ctx, req.NamespacedName, &obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("read sub-lease %s: %w", req.Name, err)
	}
	there := err == nil
	if !there {
		r.answers.Delete(req.Name)
	}
	var errs []error
	var after time.Duration
	for _, uid := range r.Broker.KnownSubLeases(req.Name) {
		if there && uid == protocol.UID(obj.UID) {
			continue
		}
		again, err := r.release(ctx, req.Name, uid)
		after = max(after, again)
		errs = append(errs, err)
	}
	if there && obj.Spec.Request != nil && !r.outdated(&obj) {
		sub, err := kube.SubLeaseOf(&obj)
		if err != nil {
			return reconcile.Result{}, errors.Join(append(errs, err)...)
		}
		again, err := r.look(ctx, seen{sub: sub}, obj.CreationTimestamp.Time)
		after = max(after, again)
		errs = append(errs, err)
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(errs...)
}

// outdated reports whether a request, as the cache has it, was answered since: another
// answer would only fail, and the change brings it here again.
func (r *Reconciler) outdated(o *v1alpha1.IPSubLease) bool {
	version, ok := r.answers.Load(o.Name)
	if ok && version != o.ResourceVersion {
		r.answers.Delete(o.Name)
		return false
	}
	return ok
}

// look decides what is to be done about a request that was created at since, and
// does it.
func (r *Reconciler) look(ctx context.Context, s seen, since time.Time) (time.Duration, error) {
	for {
		s.held = r.Broker.Held(s.sub.UID)
		p := decide(s)
		switch {
		case p.ask != nil:
			answer := r.Broker.Ask(*p.ask)
			s.answer = &answer
		case p.prove != nil:
			answer, err := r.Broker.Verify(ctx, *p.prove)
			if err != nil {
				return 0, err //nolint:wrapcheck // says what it is about
			}
			s.answer = &answer
		case len(p.verify) > 0:
			if err := r.verify(ctx, p.verify); err != nil {
				return 0, err
			}
			s.answer, s.verified = nil, true
		case p.live:
			live, ok, err := r.readLive(ctx, s.sub)
			if !ok || err != nil {
				return 0, err // if it is gone, that is news which brings it here
			}
			s = seen{sub: live, live: true}
		case p.taken != nil:
			t, err := r.whose(ctx, *p.taken)
			if err != nil {
				return 0, err
			}
			s.taken = &t
		default:
			return r.apply(ctx, s, p, since)
		}
	}
}

// verify reads leases live, and so tells the broker what they are now.
func (r *Reconciler) verify(ctx context.Context, names []string) error {
	for _, name := range names {
		if _, _, err := r.Broker.ReadLease(ctx, name); err != nil {
			return err //nolint:wrapcheck // says what it is about
		}
	}
	return nil
}

// readLive reads a sub-lease live. ok is false if there is none of its UID any more.
func (r *Reconciler) readLive(ctx context.Context, s protocol.SubLease) (live protocol.SubLease, ok bool, err error) {
	live, out, err := r.API.ReadSubLease(ctx, s.Name)
	switch {
	case out == protocol.NotFound, out == protocol.Done && live.UID != s.UID:
		return live, false, nil
	case out != protocol.Done:
		return live, false, fmt.Errorf("read sub-lease %s: %w", s.Name, err)
	}
	return live, true, nil
}

// whose reads live who has an address.
func (r *Reconciler) whose(ctx context.Context, bad grants.Problem) (t taken, err error) {
	t.lease, t.there, err = r.Broker.ReadLease(ctx, bad.Lease)
	if err != nil {
		return t, err //nolint:wrapcheck // says what it is about
	}
	if g, ok := t.lease.GrantOf(bad.Addr); ok && g.To.Kind == protocol.GranteeSubLease {
		if s, out, _ := r.API.ReadSubLease(ctx, g.To.Name); out == protocol.Done && s.UID == g.To.UID && s.Request != nil {
			t.pod, t.node = s.Request.Pod, s.Node
		}
	}
	return t, nil
}

// apply does what p says.
func (r *Reconciler) apply(ctx context.Context, s seen, p plan, since time.Time) (time.Duration, error) {
	if p.answer != nil {
		if done, err := r.answer(ctx, *p.answer, since); !done {
			return 0, err
		}
		p.done = true
	}
	if p.done {
		r.Broker.Withdraw(s.sub.UID)
	}
	if len(p.unmark) > 0 {
		if err := r.Broker.Unmark(ctx, p.unmark); err != nil {
			return 0, fmt.Errorf("request %s: keep addresses: %w", s.sub.Name, err)
		}
	}
	if len(p.giveBack) > 0 {
		return r.giveBack(ctx, s.sub, p.giveBack)
	}
	if len(p.drop) > 0 {
		return r.drop(ctx, s.sub.Name, p.drop)
	}
	return 0, nil
}

// answer writes the status. It is not written, and that is no error, if the
// sub-lease has changed: that change brings it here again.
func (r *Reconciler) answer(ctx context.Context, s protocol.SubLease, since time.Time) (bool, error) {
	switch out, err := r.API.AnswerSubLease(ctx, s); out {
	case protocol.Done:
		r.answers.Store(s.Name, string(s.Revision))
	case protocol.NotFound, protocol.Conflict:
		return false, nil
	default:
		return false, fmt.Errorf("answer request %s: %w", s.Name, err)
	}
	r.Metrics.answered(s, r.Now().Sub(since))
	pod := s.Request.Pod.String()
	if s.Refused != nil {
		r.Log.WarnContext(ctx, "request refused", "request", s.Name, "node", s.Node, "pod", pod, "reason", s.Refused.Reason, "message", s.Refused.Message)
		return true, nil
	}
	r.Log.InfoContext(ctx, "request granted", "request", s.Name, "node", s.Node, "pod", pod, "addresses", s.Granted)
	return true, nil
}
