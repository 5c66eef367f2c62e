package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

// Implicit makes the pools that definitions describe inline, changes them with
// their definitions, and removes them when no definition names them and no lease
// is left. Its requests are names of pools; [poolspec.DefaultDomain] is for all of that domain.
type Implicit struct {
	// Cache has pools, leases and definitions.
	Cache    client.Reader
	Write    client.Client
	Live     Live
	Networks Describing
	Events   events.EventRecorder
	Log      *slog.Logger

	reported reported.Faults[notice] // of definitions
}

// Describing has the definitions that describe ranges inline.
type Describing interface {
	Describers
	Naming(ctx context.Context, pool string) ([]networks.Network, error)
	Unnamed(ctx context.Context) ([]networks.Network, error)
	DomainPools(ctx context.Context) ([]poolspec.DomainPool, error)
}

// Reconcile looks at one implicit pool, or at all of the default domain.
func (r *Implicit) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name == poolspec.DefaultDomain {
		return r.domain(ctx)
	}
	by, err := r.Networks.OfPool(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	return r.pool(ctx, described{name: req.Name, domain: req.Name, by: by})
}

// pool looks at one implicit pool, of which d has the definitions.
func (r *Implicit) pool(ctx context.Context, d described) (reconcile.Result, error) {
	var pool v1alpha1.IPPool
	switch err := r.Cache.Get(ctx, client.ObjectKey{Name: d.name}, &pool); {
	case err == nil:
		d.pool = &pool
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, fmt.Errorf("read pool %s: %w", d.name, err)
	}
	leases, err := leasesOf(ctx, r.Cache, d.name)
	if err != nil {
		return reconcile.Result{}, err
	}
	d.inUse = len(leases) > 0
	p, err := decideImplicit(d)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("pool %s: %w", d.name, err))
	}
	for _, name := range p.sorted() {
		r.tell(ctx, name, p.notices[name])
	}
	return r.apply(ctx, d, p)
}

// leasesOf returns the leases of a pool, as the cache has them.
func leasesOf(ctx context.Context, cache client.Reader, pool string) ([]v1alpha1.IPLease, error) {
	var leases v1alpha1.IPLeaseList
	if err := cache.List(ctx, &leases, client.MatchingFields{leasesByPool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list leases of pool %s: %w", pool, err)
	}
	return leases.Items, nil
}

// apply does what p says.
func (r *Implicit) apply(ctx context.Context, d described, p implicitPlan) (reconcile.Result, error) {
	var err error
	ctx, cancel := context.WithTimeout(ctx, kube.CallTimeout)
	defer cancel()
	switch {
	case p.create != nil:
		err = r.Write.Create(ctx, p.create)
	case p.update != nil:
		err = r.update(ctx, d.pool, *p.update)
	case p.remove:
		err = r.remove(ctx, d.pool)
	default:
		return reconcile.Result{}, nil
	}
	switch kube.Classify(err) {
	case protocol.Done:
		r.Log.InfoContext(ctx, "implicit pool changes", "pool", d.name, "created", p.create != nil, "removed", p.remove, "definitions", definitions(d.by))
	case protocol.Exists, protocol.Conflict, protocol.NotFound:
		// The cache is behind. Its next event may be none that concerns this
		// reconciler, such as a change of the status.
		return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, nil
	case protocol.Refused:
		for _, n := range d.by {
			r.tell(ctx, n.String(), notice{reasonRefused, fmt.Sprintf("pool %s is refused: %v", d.name, err)})
		}
		err := fmt.Errorf("write pool %s: %w", d.name, err)
		if faulty(err) {
			err = reconcile.TerminalError(err)
		}
		return reconcile.Result{}, err
	default:
		return reconcile.Result{}, fmt.Errorf("write pool %s: %w", d.name, err)
	}
	return reconcile.Result{}, nil
}

// faulty reports whether a write was refused for what is written, so that it is to be made
// again only when the definitions change. Who may not write may do so later: an API server
// that has just started knows no rights.
func faulty(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func (r *Implicit) update(ctx context.Context, pool *v1alpha1.IPPool, u update) error {
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": pool.UID, "resourceVersion": pool.ResourceVersion,
			"annotations": map[string]string{v1alpha1.AnnotationDefinitions: u.definitions},
		},
		"spec": map[string]any{"ranges": u.ranges},
	})
	if err != nil {
		return fmt.Errorf("encode pool %s: %w", pool.Name, err)
	}
	into := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}}
	return r.Write.Patch(ctx, into, client.RawPatch(types.MergePatchType, raw))
}

// remove deletes a pool that nobody describes and nobody uses. Should somebody
// lease a block meanwhile, the finalizer waits for it.
func (r *Implicit) remove(ctx context.Context, pool *v1alpha1.IPPool) error {
	leases, err := r.Live.LeasesOfPool(ctx, protocol.PoolName(pool.Name))
	if err != nil || len(leases) > 0 {
		return err
	}
	return r.Write.Delete(ctx, pool, client.Preconditions{UID: &pool.UID, ResourceVersion: &pool.ResourceVersion})
}

// tell makes an Event of a notice, if it is another than the last for its
// definition.
func (r *Implicit) tell(ctx context.Context, definition string, n notice) {
	namespace, name, _ := strings.Cut(definition, "/")
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if len(r.reported.New(key, n)) == 0 {
		return
	}
	var obj nad.NetworkAttachmentDefinition
	if err := r.Cache.Get(ctx, key, &obj); err != nil {
		r.reported.Forget(key)
		return // it is gone, and with it whoever would read of this
	}
	r.Log.WarnContext(ctx, "definition is not followed", "definition", definition, "reason", n.reason, "message", n.message)
	r.Events.Eventf(&obj, nil, corev1.EventTypeWarning, n.reason, "DescribePool", "%.1000s", n.message)
}

var _ Describing = (*networks.Catalog)(nil)
