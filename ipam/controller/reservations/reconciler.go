package reservations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// recheckAfter is when a reservation is looked at again that could not be settled.
const recheckAfter = 10 * time.Second

// Granter grants addresses and takes grants back: a [grants.Broker].
type Granter interface {
	// KnownReservations returns the UIDs that have grants, or an ask, under the name of a
	// reservation, and Reservations the names that grants have.
	KnownReservations(name string) []protocol.UID
	Reservations() []string
	Held(uid protocol.UID) []grants.Held
	Ask(a grants.Ask) grants.Answer
	Withdraw(uid protocol.UID)
	MayFree(ctx context.Context, held []grants.Held) (bool, error)
	Drop(ctx context.Context, held []grants.Held) error
}

// Live reads from the API server, never from a cache.
type Live interface {
	ReadReservation(ctx context.Context, name string) (*v1alpha1.IPReservation, protocol.Outcome, error)
}

// Reconciler looks after reservations. Make one with all its exported fields set.
type Reconciler struct {
	// Cache has reservations and pools.
	Cache  client.Reader
	Live   Live
	Status client.StatusClient
	Broker Granter
	Log    *slog.Logger
	// Now is the clock.
	Now func() time.Time
}

// Reconcile looks at what there is under a reservation's name: the reservation, and grants
// to those that had the name before.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var obj v1alpha1.IPReservation
	err := r.Cache.Get(ctx, req.NamespacedName, &obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("read reservation %s: %w", req.Name, err)
	}
	there := err == nil
	var errs []error
	var after time.Duration
	for _, uid := range r.Broker.KnownReservations(req.Name) {
		if there && uid == protocol.UID(obj.UID) {
			continue
		}
		again, err := r.release(ctx, req.Name, uid)
		after = max(after, again)
		errs = append(errs, err)
	}
	if there {
		again, err := r.look(ctx, &obj)
		if after == 0 || again > 0 && again < after {
			after = again
		}
		errs = append(errs, err)
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(errs...)
}

// look asks for a reservation's address, or gives it back where the reservation has ended,
// and says so.
func (r *Reconciler) look(ctx context.Context, obj *v1alpha1.IPReservation) (time.Duration, error) {
	leaves, err := r.leaves(ctx, obj)
	if err != nil {
		return 0, err
	}
	ended, left := expired(obj, r.Now())
	if ended || leaves || obj.DeletionTimestamp != nil {
		r.Broker.Withdraw(protocol.UID(obj.UID))
		after, err := r.free(ctx, obj.Name, protocol.UID(obj.UID))
		switch {
		case after > 0 || err != nil:
			return after, err
		case leaves:
			return 0, r.write(ctx, obj, leavingCondition(obj))
		case ended:
			return 0, r.write(ctx, obj, expiredCondition(obj))
		}
		return 0, nil
	}
	ask, err := askOf(obj)
	if err != nil {
		return 0, reconcile.TerminalError(err)
	}
	if c, ok := conditionAfter(obj, r.Broker.Ask(ask)); ok {
		if err := r.write(ctx, obj, c); err != nil {
			return 0, err
		}
	}
	return left, nil
}

// leaves reports whether a reservation goes with its pool, which is being deleted and waits for
// grants.
func (r *Reconciler) leaves(ctx context.Context, obj *v1alpha1.IPReservation) (bool, error) {
	if len(obj.OwnerReferences) == 0 {
		return false, nil
	}
	var pool v1alpha1.IPPool
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: obj.Spec.Pool}, &pool); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("read pool %s of reservation %s: %w", obj.Spec.Pool, obj.Name, err)
	}
	return pool.DeletionTimestamp != nil && owns(&pool, obj), nil
}

// ofLeaving returns the reservations that go with a pool which is being deleted.
func (r *Reconciler) ofLeaving(ctx context.Context, o client.Object) []reconcile.Request {
	pool, ok := o.(*v1alpha1.IPPool)
	if !ok || pool.DeletionTimestamp == nil {
		return nil
	}
	var list v1alpha1.IPReservationList
	if err := r.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.ErrorContext(ctx, "reservations that go with a pool are not listed", "pool", pool.Name, "error", err)
	}
	var all []reconcile.Request
	for i := range list.Items {
		if owns(pool, &list.Items[i]) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return all
}

// release drops the grants to uid, if there is no reservation of that UID any more. Only a
// live read says so.
func (r *Reconciler) release(ctx context.Context, name string, uid protocol.UID) (time.Duration, error) {
	live, out, err := r.Live.ReadReservation(ctx, name)
	switch {
	case out == protocol.Done && protocol.UID(live.UID) == uid:
		return recheckAfter, nil // the cache is behind
	case out != protocol.Done && out != protocol.NotFound:
		return 0, fmt.Errorf("read reservation %s: %w", name, err)
	}
	r.Broker.Withdraw(uid)
	return r.free(ctx, name, uid)
}

// free gives back the grants to uid. Nobody makes use of them any more.
func (r *Reconciler) free(ctx context.Context, name string, uid protocol.UID) (time.Duration, error) {
	held := r.Broker.Held(uid)
	if len(held) == 0 {
		return 0, nil
	}
	if free, err := r.Broker.MayFree(ctx, held); !free {
		return recheckAfter, err //nolint:wrapcheck // says what it is about
	}
	if err := r.Broker.Drop(ctx, held); err != nil {
		return 0, fmt.Errorf("free the address of reservation %s: %w", name, err)
	}
	r.Log.InfoContext(ctx, "reserved address freed", "reservation", name)
	return 0, nil
}

// write writes the condition, if it says something new. A reservation that has changed
// meanwhile is looked at again.
func (r *Reconciler) write(ctx context.Context, obj *v1alpha1.IPReservation, c metav1.Condition) error {
	if !changes(obj, c) {
		return nil
	}
	c.LastTransitionTime = metav1.NewTime(r.Now().Truncate(time.Second))
	st := obj.Status.DeepCopy()
	meta.SetStatusCondition(&st.Conditions, c)
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.UID, "resourceVersion": obj.ResourceVersion}, "status": st,
	})
	if err != nil {
		return fmt.Errorf("encode status of reservation %s: %w", obj.Name, err)
	}
	call, cancel := context.WithTimeout(ctx, kube.CallTimeout)
	defer cancel()
	into := &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: obj.Name}}
	err = r.Status.Status().Patch(call, into, client.RawPatch(types.MergePatchType, raw))
	switch kube.Classify(err) {
	case protocol.Done, protocol.NotFound, protocol.Conflict:
		return nil
	default:
		return fmt.Errorf("write status of reservation %s: %w", obj.Name, err)
	}
}

// Setup has the manager run r for what its watches tell and changed fires.
func (r *Reconciler) Setup(mgr ctrl.Manager, changed *trigger.Source) error {
	first := changed.First(func(context.Context) error {
		for _, name := range r.Broker.Reservations() { // one that is gone sends no event
			changed.Fire("", name)
		}
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("reservations").
		For(&v1alpha1.IPReservation{}).
		Watches(&v1alpha1.IPPool{}, handler.EnqueueRequestsFromMapFunc(r.ofLeaving)).
		WatchesRawSource(first).
		WithOptions(trigger.Workers(8)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up reservations: %w", err)
	}
	return nil
}
