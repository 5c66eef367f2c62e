package workloads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

// recheckAfter is when a set is looked at again of whose claim no event comes: a claim that is
// somebody else's may be gone by then.
const recheckAfter = 30 * time.Second

// Catalog reads network attachment definitions.
type Catalog interface {
	Placed(ctx context.Context, o *nad.NetworkAttachmentDefinition, namespace string) (networks.Network, error)
}

// Reconciler looks after the claims of StatefulSets.
type Reconciler struct {
	// Cache has StatefulSets, claims and definitions, condensed.
	Cache client.Reader
	// Live reads and writes at the API server.
	Live     client.Client
	Networks Catalog
	Events   events.EventRecorder
	Log      *slog.Logger

	reported reported.Faults[fault]
}

// Reconcile looks at one StatefulSet.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var obj appsv1.StatefulSet
	if err := r.Cache.Get(ctx, req.NamespacedName, &obj); err != nil {
		r.reported.Forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if obj.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	set, asks, err := kube.SetOf(&obj)
	if !asks {
		r.reported.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		r.tell(ctx, &obj, fault{ReasonInvalid, err.Error()})
		return reconcile.Result{}, nil //nolint:nilerr // an edit brings it here again
	}
	f := facts{set: set, uid: obj.UID, made: int(obj.Status.Replicas)}
	var why *fault
	if f.networks, why, err = r.networks(ctx, set); err != nil {
		return reconcile.Result{}, err
	}
	if why != nil {
		r.tell(ctx, &obj, *why)
		return reconcile.Result{}, nil // so does the definition
	}
	if f.claims, err = r.claims(ctx, req.NamespacedName); err != nil {
		return reconcile.Result{}, err
	}
	if why := f.unassignable(); why != nil {
		r.tell(ctx, &obj, *why)
		return reconcile.Result{RequeueAfter: recheckAfter}, nil // the pool may be edited
	}
	if f.pods, err = r.pods(ctx, f); err != nil {
		return reconcile.Result{}, err
	}
	p := decide(f)
	found, err := r.apply(ctx, &obj, f, p)
	faults := append(p.faults, found...)
	r.tell(ctx, &obj, faults...)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case p.more:
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil // the cache should see these first
	case len(faults) > 0:
		return reconcile.Result{RequeueAfter: recheckAfter}, nil
	}
	return reconcile.Result{}, nil
}

// networks returns the CNI networks of a set's elements, or why there are none.
func (r *Reconciler) networks(ctx context.Context, set workload.Set) (map[workload.Element]network, *fault, error) {
	found := map[workload.Element]network{}
	for _, e := range set.Elements {
		n, why, err := networkOf(ctx, r.Cache, r.Networks, e, set.Namespace)
		if why != nil || err != nil {
			return nil, why, err
		}
		found[e] = network{name: n.Name}
		if len(set.Addresses(set.First, e)) == 0 {
			continue
		}
		if found[e], err = r.pooled(ctx, n); err != nil {
			return nil, nil, err
		}
	}
	return found, nil, nil
}

// networkOf returns the network of an element of a workload in a namespace, or why its claims
// cannot be made.
func networkOf(ctx context.Context, cache client.Reader, catalog Catalog, e workload.Element, namespace string) (networks.Network, *fault, error) {
	var obj nad.NetworkAttachmentDefinition
	err := cache.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, &obj)
	if apierrors.IsNotFound(err) {
		return networks.Network{}, &fault{ReasonNetworkNotFound, fmt.Sprintf("network attachment definition %s/%s does not exist: no claim is made before it does", e.Namespace, e.Name)}, nil
	}
	if err != nil {
		return networks.Network{}, nil, fmt.Errorf("read network attachment definition %s/%s: %w", e.Namespace, e.Name, err)
	}
	n, err := catalog.Placed(ctx, &obj, namespace)
	if err != nil {
		return n, nil, fmt.Errorf("network attachment definition %s/%s: %w", e.Namespace, e.Name, err)
	}
	if n.Owner != networks.Tenure {
		return n, &fault{ReasonNetworkNotFound, fmt.Sprintf("network attachment definition %s/%s does not have its addresses of Tenure's pools: no claim is made", e.Namespace, e.Name)}, nil
	}
	return n, nil, nil
}

// pooled returns a network with its pools, if all of these exist and can be read.
func (r *Reconciler) pooled(ctx context.Context, of networks.Network) (network, error) {
	n, known := network{name: of.Name}, map[string]bool{}
	for _, source := range of.Sources {
		if known[source.Pool] {
			continue
		}
		known[source.Pool] = true
		var o v1alpha1.IPPool
		err := r.Cache.Get(ctx, client.ObjectKey{Name: source.Pool}, &o)
		if apierrors.IsNotFound(err) {
			return network{name: of.Name}, nil
		}
		if err != nil {
			return n, fmt.Errorf("read pool %s: %w", source.Pool, err)
		}
		shape, err := poolspec.ParsePool(kube.SpecText(&o))
		if err != nil || len(shape.Ranges()) == 0 {
			return network{name: of.Name}, nil //nolint:nilerr // the pool serves nobody, and says so
		}
		n.pools = append(n.pools, pool{source.Pool, shape})
	}
	return n, nil
}

// claims returns the claims with the set's label.
func (r *Reconciler) claims(ctx context.Context, set types.NamespacedName) ([]claim, error) {
	var list ipamclaims.IPAMClaimList
	// Nothing of the list is changed: it may share memory with the cache.
	err := r.Cache.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingFields{bySet: set.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the claims of StatefulSet %s: %w", set, err)
	}
	all := make([]claim, len(list.Items))
	for i := range list.Items {
		all[i] = read(&list.Items[i])
	}
	return all, nil
}

func read(o *ipamclaims.IPAMClaim) claim {
	return claim{
		name: o.Name, uid: o.UID, revision: o.ResourceVersion, network: o.Spec.Network, ifName: o.Spec.Interface,
		deleting: o.DeletionTimestamp != nil, set: o.Labels[workload.LabelSet], vm: o.Labels[kube.VMLabel],
		byName: types.UID(o.Labels[workload.LabelOwner]), owners: o.OwnerReferences,
	}
}

// pods reads the set's pods of the ordinals that it has no more, as far as they matter.
func (r *Reconciler) pods(ctx context.Context, f facts) (map[int]types.UID, error) {
	var mu sync.Mutex
	pods := map[int]types.UID{} // guarded by mu
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, ordinal := range f.condemned() {
		group.Go(func() error {
			uid, err := r.pod(ctx, f, ordinal)
			if uid != "" {
				mu.Lock()
				defer mu.Unlock()
				pods[ordinal] = uid
			}
			return err
		})
	}
	return pods, group.Wait() //nolint:wrapcheck // says what it is about
}

// pod returns the UID of the set's pod of an ordinal, empty if it has none.
func (r *Reconciler) pod(ctx context.Context, f facts, ordinal int) (types.UID, error) {
	var pod metav1.PartialObjectMetadata
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := kube.Call(ctx, func(ctx context.Context) error {
		return r.Live.Get(ctx, client.ObjectKey{Namespace: f.set.Namespace, Name: f.podName(ordinal)}, &pod)
	})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read pod %s/%s: %w", f.set.Namespace, f.podName(ordinal), err)
	}
	if c := metav1.GetControllerOfNoCopy(&pod); c == nil || c.UID != f.uid {
		return "", nil
	}
	return pod.UID, nil
}

// tell makes Events of the faults that people were not told at the last look.
func (r *Reconciler) tell(ctx context.Context, obj *appsv1.StatefulSet, faults ...fault) {
	tell(ctx, &r.reported, r.Events, r.Log.With("statefulset", client.ObjectKeyFromObject(obj).String()), obj, faults)
}

// errChanged says that a set has changed since it was looked at: the event of that brings it
// here again.
var errChanged = errors.New("the StatefulSet has changed since")
