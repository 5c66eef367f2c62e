package ui

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// cluster is the objects that the page shows, kept up to date by watches with the user's rights. It
// is safe for concurrent use.
type cluster struct {
	*session.Session
	cache cache.Cache
	// hidden are the kinds that the user may not list or not watch, in words.
	hidden []string
	// changes counts what has changed of pools' addresses.
	changes atomic.Int64

	mu       sync.Mutex
	answered time.Time // when the API server answered last
	silent   error     // why it has not since
}

// kinds are what is watched. Without pools and leases there is nothing to show.
var kinds = []struct {
	object client.Object
	list   client.ObjectList
	what   string
	must   bool
}{
	{&v1alpha1.IPPool{}, &v1alpha1.IPPoolList{}, "pools", true},
	{&v1alpha1.IPLease{}, &v1alpha1.IPLeaseList{}, "leases", true},
	{&v1alpha1.IPSubLease{}, &v1alpha1.IPSubLeaseList{}, "sub-leases (which pods use claims)", false},
	{&coordination.Lease{}, &coordination.LeaseList{}, "registrations (which nodes are silent)", false},
	{&corev1.Pod{}, &corev1.PodList{}, "pods of all namespaces (which wait)", false},
}

// newCluster makes the watches of what the user may read. It waits for nothing.
func newCluster(ctx context.Context, s *session.Session) (*cluster, error) {
	c := &cluster{Session: s, answered: s.Now()}
	scheme, err := kube.Scheme()
	if err != nil {
		return nil, err //nolint:wrapcheck // says what it is about
	}
	c.cache, err = cache.New(s.Rest, cache.Options{
		Scheme:           scheme,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			// Who wrote a registration last is told by its managed fields.
			&coordination.Lease{}: {Namespaces: map[string]cache.Config{s.API.RegistrationNamespace: {}}, Transform: func(o any) (any, error) { return o, nil }},
			&corev1.Pod{}:         {Field: state.Unfinished, Transform: strip},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch the cluster: %w", err)
	}
	live, err := client.NewWithWatch(s.Rest, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("watch the cluster: %w", err)
	}
	for _, k := range kinds {
		var in []client.ListOption
		if _, ok := k.object.(*coordination.Lease); ok {
			in = append(in, client.InNamespace(s.API.RegistrationNamespace))
		}
		switch err := mayWatch(ctx, live, k.list, in); {
		case err == nil:
		case (session.Forbidden(err) || meta.IsNoMatchError(err)) && !k.must:
			c.hidden = append(c.hidden, k.what)
			continue
		default:
			return nil, fmt.Errorf("list and watch %s: %w", k.what, err)
		}
		informer, err := c.cache.GetInformer(ctx, k.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", k.what, err)
		}
		if _, counted := k.object.(*coordination.Lease); counted { // heartbeats, of which [state.Known] tells in time
			continue
		}
		if _, err := informer.AddEventHandler(clientcache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { c.changes.Add(1) }, DeleteFunc: func(any) { c.changes.Add(1) },
			UpdateFunc: func(any, any) { c.changes.Add(1) },
		}); err != nil {
			return nil, fmt.Errorf("watch %s: %w", k.what, err)
		}
	}
	return c, nil
}

// mayWatch returns why the user may not list, or not watch, the objects of a kind. What cannot be
// watched would stay as it was when the page was opened.
func mayWatch(ctx context.Context, live client.WithWatch, list client.ObjectList, in []client.ListOption) error {
	if err := live.List(ctx, list, append(in, client.Limit(1))...); err != nil {
		return err //nolint:wrapcheck // the caller says what is listed
	}
	w, err := live.Watch(ctx, list, append(in, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})...)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what is watched
	}
	w.Stop()
	return nil
}

// strip drops what the page does not need of a pod: a cluster has many.
func strip(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork}
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses = nil, nil, nil
	return pod, nil
}

// sees reports whether objects of this kind are watched.
func (c *cluster) sees(o client.Object) bool {
	for _, k := range kinds {
		if reflect.TypeOf(k.object) == reflect.TypeOf(o) {
			return !slices.Contains(c.hidden, k.what)
		}
	}
	return false
}

// run watches until ctx ends, and asks now and then whether the API server answers: a watch that
// does not get through says nothing.
func (c *cluster) run(ctx context.Context) {
	// It ends with ctx. What fails is tried again, and the page says that nobody answers.
	go func() { _ = c.cache.Start(ctx) }()
	for {
		calling, cancel := context.WithTimeout(ctx, askEvery)
		err := c.Client.List(calling, &v1alpha1.IPPoolList{}, client.Limit(1))
		cancel()
		c.mu.Lock()
		if c.silent = err; err == nil {
			c.answered = c.Now()
		}
		c.mu.Unlock()
		if !pause.For(ctx, askEvery) {
			return
		}
	}
}

// wait waits until all is listed, for [watched] at most. Before the watches have begun, a cache
// refuses to be read.
func (c *cluster) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watched)
	defer cancel()
	c.cache.WaitForCacheSync(ctx)
}

// askEvery is how often the API server is asked whether it answers.
const askEvery = 5 * time.Second

// facts returns what is known of a pool.
func (c *cluster) facts(ctx context.Context, pool *v1alpha1.IPPool) (facts, error) {
	f := facts{pool: pool, known: state.Known{Hidden: true}, pods: map[string]state.Use{}}
	var leases v1alpha1.IPLeaseList
	if err := c.cache.List(ctx, &leases, client.UnsafeDisableDeepCopy); err != nil {
		return f, fmt.Errorf("list leases: %w", err)
	}
	for i := range leases.Items {
		if l := &leases.Items[i]; l.Spec.Pool == pool.Name {
			f.leases = append(f.leases, l)
		}
	}
	if c.sees(&v1alpha1.IPSubLease{}) {
		var subs v1alpha1.IPSubLeaseList
		if err := c.cache.List(ctx, &subs, client.UnsafeDisableDeepCopy); err != nil {
			return f, fmt.Errorf("list sub-leases: %w", err)
		}
		for i := range subs.Items {
			s := &subs.Items[i]
			switch {
			case s.Spec.Use != nil:
				f.pods[s.Spec.Use.Claim.UID] = state.UseOf(s)
			case s.Spec.Request != nil:
				r := s.Spec.Request
				f.pods[string(s.UID)] = state.Use{Node: s.Spec.Node, Namespace: r.Pod.Namespace, Pod: r.Pod.Name, Interface: r.Interface}
			}
		}
	}
	if c.sees(&coordination.Lease{}) {
		var regs coordination.LeaseList
		if err := c.cache.List(ctx, &regs, client.InNamespace(c.API.RegistrationNamespace), client.UnsafeDisableDeepCopy); err != nil {
			return f, fmt.Errorf("list registrations: %w", err)
		}
		f.known = state.KnownFrom(&regs, c.Now())
	}
	return f, nil
}
