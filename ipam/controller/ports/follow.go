package ports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

// Follower keeps pools as the subnets are that they consist of. Its requests are names of pools.
type Follower struct {
	// Cache has pools.
	Cache client.Reader
	Write client.Client
	// Connect returns the client of Neutron; its error says why there is none.
	Connect func(context.Context) (Neutron, error)
	// Trouble returns why ports of a pool cannot be made now; none, if they can.
	Trouble func(protocol.PoolName) Problem
	Events  events.EventRecorder
	Log     *slog.Logger
	Now     func() time.Time
	// Every is how often subnets are looked at.
	Every time.Duration

	reported reported.Faults[string] // of pools
}

// Setup has the manager run f for what its watches tell and changed fires.
func (f *Follower) Setup(mgr ctrl.Manager, changed *trigger.Source) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("neutron-subnets").
		For(&v1alpha1.IPPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).WatchesRawSource(changed).WithOptions(trigger.Workers(1)).Complete(f)
	if err != nil {
		return fmt.Errorf("set up what follows subnets: %w", err)
	}
	return nil
}

// Reconcile looks at the subnets of one pool.
func (f *Follower) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pool v1alpha1.IPPool
	if err := f.Cache.Get(ctx, req.NamespacedName, &pool); err != nil {
		f.reported.Forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if pool.Spec.Source == nil || pool.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	next, says := f.look(ctx, &pool)
	if says.None() {
		says = f.Trouble(protocol.PoolName(pool.Name))
	}
	written, err := f.write(ctx, &pool, next, f.condition(&pool, next, says))
	if err != nil {
		return reconcile.Result{}, err
	}
	f.tell(ctx, &pool, says)
	after := f.Every
	if !written { // it has changed meanwhile, which leads here again; but for what the cache lacks
		after = min(after, time.Second)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// look returns what the pool is to be, as far as that is known, and what stands against it.
func (f *Follower) look(ctx context.Context, pool *v1alpha1.IPPool) (followed, Problem) {
	stays := followed{status: pool.Status.Neutron, ranges: pool.Spec.Ranges, routes: pool.Spec.Routes, nameservers: nameserversOf(pool.Spec)}
	nc, err := f.Connect(ctx)
	if err != nil {
		return stays, Problem{Reason: v1alpha1.ReasonNotConfigured, Message: err.Error()}
	}
	subnets, err := nc.Subnets(ctx, pool.Spec.Source.Neutron.SubnetIDs)
	if err != nil {
		return stays, problemOf(err)
	}
	next, err := follow(pool, subnets)
	if unfit, ok := errors.AsType[*unfitError](err); ok {
		return stays, Problem{Reason: unfit.reason, Message: unfit.message}
	}
	return next, next.gone
}

// condition returns the condition SourceReady.
func (f *Follower) condition(pool *v1alpha1.IPPool, next followed, says Problem) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.PoolSourceReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFollowed,
		ObservedGeneration: pool.Generation, LastTransitionTime: metav1.NewTime(f.Now().Truncate(time.Second)),
	}
	if says.None() {
		c.Message = fmt.Sprintf("the pool is as %d subnets of Neutron's network %s are", len(next.status.Subnets), next.status.NetworkID)
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(says.Reason), says.Message
	return c
}

// write writes what is other than it was: the status before the spec, since who asks for ports by
// the new ranges reads it. But the first status of all opens the pool, so that it comes last. It is
// not written if the pool has changed meanwhile.
func (f *Follower) write(ctx context.Context, pool *v1alpha1.IPPool, next followed, says metav1.Condition) (written bool, err error) {
	seen := kube.MetaOf(pool)
	status := func() (protocol.Revision, error) { return f.writeStatus(ctx, pool, seen, next, says) }
	spec := func() (protocol.Revision, error) { return f.writeSpec(ctx, pool, seen, next) }
	parts := []func() (protocol.Revision, error){status, spec}
	if pool.Status.Neutron == nil {
		parts = []func() (protocol.Revision, error){spec, status}
	}
	for _, part := range parts {
		if seen.Revision, err = part(); seen.Revision == "" {
			return false, err
		}
	}
	return true, nil
}

// writeStatus writes the status, if it is another. It returns the revision that the pool has then,
// none if it was not written.
func (f *Follower) writeStatus(ctx context.Context, pool *v1alpha1.IPPool, seen protocol.Meta, next followed, says metav1.Condition) (protocol.Revision, error) {
	conditions := slices.Clone(pool.Status.Conditions)
	before := meta.FindStatusCondition(conditions, says.Type)
	same := before != nil && before.Status == says.Status && before.Reason == says.Reason && before.Message == says.Message
	if same && reflect.DeepEqual(pool.Status.Neutron, next.status) {
		return seen.Revision, nil
	}
	meta.SetStatusCondition(&conditions, says)
	fields := map[string]any{"conditions": conditions}
	if next.status != nil {
		fields["neutron"] = next.status
	}
	return patchPool(ctx, f.Write, seen, map[string]any{"status": fields}, true)
}

// writeSpec does the same for the spec.
func (f *Follower) writeSpec(ctx context.Context, pool *v1alpha1.IPPool, seen protocol.Meta, next followed) (protocol.Revision, error) {
	if next.same(pool.Spec) {
		return seen.Revision, nil
	}
	f.Log.InfoContext(ctx, "pool follows its subnets", "pool", pool.Name, "ranges", len(next.ranges), "routes", len(next.routes))
	revision, err := patchPool(ctx, f.Write, seen, map[string]any{"spec": map[string]any{"ranges": next.ranges, "routes": next.routes, "dns": next.dnsFor(pool.Spec)}}, false)
	if revision != "" && len(pool.Spec.Ranges) > 0 {
		f.Events.Eventf(pool, nil, corev1.EventTypeNormal, v1alpha1.ReasonFollowed, "FollowSubnets", "%.1000s", next.change(pool.Spec))
	}
	return revision, err
}

// patchPool writes fields of exactly this version of a pool. No revision says that it is not there
// any more, or that the write failed.
func patchPool(ctx context.Context, w client.Client, seen protocol.Meta, fields map[string]any, status bool) (protocol.Revision, error) {
	patch, err := kube.SwapPatch(seen, fields)
	if err != nil {
		return "", err //nolint:wrapcheck // says what it is about
	}
	into := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: seen.Name}}
	err = kube.Call(ctx, func(ctx context.Context) error {
		if status {
			return w.Status().Patch(ctx, into, patch)
		}
		return w.Patch(ctx, into, patch)
	})
	switch out := kube.Classify(err); {
	case out == protocol.Done:
		return protocol.Revision(into.ResourceVersion), nil
	case out == protocol.Conflict || out == protocol.NotFound:
		return "", nil
	}
	return "", fmt.Errorf("write pool %s: %w", seen.Name, err)
}

// tell makes an Event of what stands against a pool, if it is another than before.
func (f *Follower) tell(ctx context.Context, pool *v1alpha1.IPPool, says Problem) {
	if says.None() {
		f.reported.Forget(client.ObjectKeyFromObject(pool))
		return
	}
	if len(f.reported.New(client.ObjectKeyFromObject(pool), string(says.Reason)+" "+says.Message)) == 0 {
		return
	}
	f.Log.WarnContext(ctx, "pool cannot follow its subnets", "pool", pool.Name, "reason", says.Reason, "message", says.Message)
	f.Events.Eventf(pool, nil, corev1.EventTypeWarning, string(says.Reason), "FollowSubnets", "%.1000s", says.Message)
}

var _ Neutron = (*neutron.Client)(nil)
