package endpoints

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/attach/names"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

const (
	// batch is how long a change of a pod or a slice waits for others: each write of a slice is
	// sent to every node that watches it.
	batch = 500 * time.Millisecond
	// soon is when the cache shows what was written here.
	soon = 50 * time.Millisecond
	// perSlice is how many endpoints a slice has at most, as in Kubernetes.
	perSlice = 100
)

// Reconciler keeps the slices of Services. Make one with [New].
type Reconciler struct {
	Config
	slices   *endpointslice.Reconciler
	tracker  *util.EndpointSliceTracker
	reported reported.Faults[refusal]
}

// Config is what a Reconciler needs.
type Config struct {
	// Own is a cache of its own, with the [Options]: of Services, pods, and the slices made here.
	Own client.Reader
	// Cache has definitions, Nodes, labels of namespaces and, where they are served, PodNetworks.
	Cache client.Reader
	// Live writes the slices. Each of its calls has to have its deadline.
	Live   kubernetes.Interface
	Events events.EventRecorder
	Log    *slog.Logger
	// PodNetworks says that PodNetworks are served.
	PodNetworks bool
}

// refusal is why a Service gets nothing: another of its name is told anew.
type refusal struct {
	service types.UID
	why     string
}

// New returns a Reconciler.
func New(cfg Config) *Reconciler {
	r := &Reconciler{Config: cfg, tracker: util.NewEndpointSliceTracker()}
	// It tells people nothing but of hints for traffic between zones, which there are not.
	r.slices = endpointslice.NewReconciler(cfg.Live, nodes{cfg.Cache}, perSlice, r.tracker, nil, nil, names.ManagedBy)
	return r
}

// Reconcile looks at one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var s corev1.Service
	if err := r.Own.Get(ctx, req.NamespacedName, &s); err != nil {
		r.reported.Forget(req.NamespacedName)
		if apierrors.IsNotFound(err) { // its slices go with it
			r.tracker.DeleteService(req.Namespace, req.Name)
			r.slices.DeleteService(req.Namespace, req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if s.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	all, err := r.existing(ctx, &s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.tracker.StaleSlices(&s, all) {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	q, n, why, err := r.wanted(ctx, &s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.tell(ctx, &s, why); n == (names.Network{}) {
		return reconcile.Result{}, r.remove(ctx, all)
	}
	pods, err := r.pods(ctx, s.Namespace, q, n)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.slices.Reconcile(logr.FromSlogHandler(r.Log.Handler()), &s, pods, all, time.Time{}); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the EndpointSlices of Service %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// wanted returns what a Service asks for. It gets nothing where the network is zero: why says why,
// if it asks at all.
func (r *Reconciler) wanted(ctx context.Context, s *corev1.Service) (q names.Request, n names.Network, why string, err error) {
	if !names.Asks(s) {
		return q, n, "", nil
	}
	q, refused := names.Read(s)
	if refused != nil {
		return q, n, refused.Error(), nil //nolint:nilerr // people are told
	}
	n, why, err = r.network(ctx, s.Namespace, q)
	return q, n, why, err
}

// existing returns the slices that were made here for a Service, to be changed by who calls.
func (r *Reconciler) existing(ctx context.Context, s *corev1.Service) (all []*discovery.EndpointSlice, err error) {
	var list discovery.EndpointSliceList
	of := client.MatchingLabels{discovery.LabelServiceName: s.Name, discovery.LabelManagedBy: names.ManagedBy}
	if err := r.Own.List(ctx, &list, client.InNamespace(s.Namespace), of); err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// remove deletes slices.
func (r *Reconciler) remove(ctx context.Context, all []*discovery.EndpointSlice) error {
	for _, o := range all {
		err := r.Live.DiscoveryV1().EndpointSlices(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.UID))})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete EndpointSlice %s/%s: %w", o.Namespace, o.Name, err)
		}
		r.tracker.ExpectDeletion(o)
	}
	return nil
}

// pods returns the pods that a request selects, with their addresses on the network in place of
// those on the cluster's.
func (r *Reconciler) pods(ctx context.Context, namespace string, q names.Request, n names.Network) (all []*corev1.Pod, err error) {
	var list corev1.PodList
	// Nothing of the list is changed: it may share memory with the cache.
	if err := r.Own.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: q.Pods}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		all = append(all, withAddresses(&list.Items[i], n.Addresses(&list.Items[i]))...)
	}
	return all, nil
}

// withAddresses returns a pod once for each address that it has of the family of which it has most:
// an endpoint has one address. The copies share memory with the pod.
func withAddresses(pod *corev1.Pod, addrs []netip.Addr) (all []*corev1.Pod) {
	used := map[bool]int{} // by whether it is an IPv4 address
	for _, a := range addrs {
		at := used[a.Is4()]
		if used[a.Is4()]++; at == len(all) {
			shown := *pod
			shown.Status.PodIP, shown.Status.PodIPs = "", nil
			all = append(all, &shown)
		}
		all[at].Status.PodIPs = append(all[at].Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	return all
}
