package ports

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

// Reasons of the Events about definitions that describe a subnet.
const (
	// ReasonSubnetNotAllowed: definitions of this namespace may not describe subnets.
	ReasonSubnetNotAllowed = "SubnetNotAllowed"
	// ReasonSubnetStays: the definition describes another subnet than was made for it.
	ReasonSubnetStays = "SubnetStays"
)

// waitForUsers is when a pool that waits for its leases, or for Neutron, is looked at again.
const waitForUsers = 5 * time.Second

// Subnets makes the subnets that definitions describe, with a pool for each, and deletes both when
// the definition is gone and nobody has an address any more. Its requests are definitions.
type Subnets struct {
	// Cache has definitions and pools, and Live reads them at the API server.
	Cache   client.Reader
	Live    client.Reader
	Write   client.Client
	Connect func(context.Context) (SubnetMaker, error)
	// Namespaces are those whose definitions may describe subnets.
	Namespaces []string
	Events     events.EventRecorder
	Log        *slog.Logger
	// SweepEvery is how often what is in Neutron is compared with definitions and pools.
	SweepEvery time.Duration

	reported reported.Faults[string] // of definitions
	making   sync.Mutex              // held while a subnet and its pool are made, or a subnet without either is deleted
}

// SubnetMaker is what is asked of Neutron: a [neutron.Client].
type SubnetMaker interface {
	EnsureSubnet(ctx context.Context, s neutron.NewSubnet) (id string, err error)
	DeleteSubnet(ctx context.Context, key string) error
	SubnetKeys(ctx context.Context) ([]string, error)
}

// Setup has the manager run r.
func (r *Subnets) Setup(mgr ctrl.Manager) error {
	ofPool := func(_ context.Context, o client.Object) []reconcile.Request {
		namespace, name, ok := strings.Cut(o.GetAnnotations()[vif.AnnotationSubnetOf], "/")
		if !ok {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("neutron-made-subnets").
		For(&nad.NetworkAttachmentDefinition{}).
		Watches(&v1alpha1.IPPool{}, handler.EnqueueRequestsFromMapFunc(ofPool)).
		WithOptions(trigger.Workers(1)).Complete(r)
	if err != nil {
		return fmt.Errorf("set up the subnets of definitions: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(r.sweeps)) //nolint:wrapcheck // says what it is about
}

// Reconcile looks at one definition, and the pool that was made for it.
func (r *Subnets) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var o nad.NetworkAttachmentDefinition
	err := r.Cache.Get(ctx, req.NamespacedName, &o)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("read definition %s: %w", req, err)
	}
	var wanted *vif.NewSubnet
	known := true
	if err == nil && o.DeletionTimestamp == nil {
		wanted, known = r.wanted(ctx, &o)
	}
	var pool v1alpha1.IPPool
	err = r.Cache.Get(ctx, client.ObjectKey{Name: vif.PoolName(req.Namespace, req.Name)}, &pool)
	switch {
	case apierrors.IsNotFound(err):
		if wanted == nil {
			return reconcile.Result{}, nil
		}
		return r.make(ctx, &o, *wanted)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read pool: %w", err)
	case pool.Annotations[vif.AnnotationSubnetOf] != req.String():
		return reconcile.Result{}, nil // somebody else's
	case pool.DeletionTimestamp != nil:
		return r.finish(ctx, &pool, req.String())
	case !known:
		return reconcile.Result{}, nil
	case wanted == nil:
		err := kube.Call(ctx, func(ctx context.Context) error {
			return r.Write.Delete(ctx, &pool, client.Preconditions{UID: &pool.UID})
		})
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if n := pool.Status.Neutron; n != nil && len(n.Subnets) > 0 && n.Subnets[0].CIDR != wanted.CIDR {
		r.tell(ctx, &o, ReasonSubnetStays, fmt.Sprintf("subnet %s was made for the definition, which describes %s by now: a subnet is never changed: delete the definition, and make it again", n.Subnets[0].CIDR, wanted.CIDR))
	}
	return reconcile.Result{}, nil
}

// wanted returns the subnet that a definition describes; nil: none. It is not known of a definition
// that cannot be read, or may not describe one: nothing is made for it, and what was made stays.
func (r *Subnets) wanted(ctx context.Context, o *nad.NetworkAttachmentDefinition) (s *vif.NewSubnet, known bool) {
	if s, known = described(o); s == nil {
		return nil, known
	}
	if !slices.Contains(r.Namespaces, o.Namespace) {
		r.tell(ctx, o, ReasonSubnetNotAllowed, fmt.Sprintf("no subnet is made for definitions of namespace %s, and one that was made stays while its definition is there: have the administrator name it by --neutron-subnet-namespaces of the controller, or name a pool in annotation %s", o.Namespace, vif.AnnotationNetwork))
		return nil, false
	}
	return s, true
}

// described returns the subnet that a definition describes; nil: none. It is not known of one that
// cannot be read: who makes definitions of it says what is wrong.
func described(o *nad.NetworkAttachmentDefinition) (s *vif.NewSubnet, known bool) {
	if !vif.Is(o.Annotations, o.Spec.Config) {
		return nil, true
	}
	n, err := vif.NetworkOf(o.Annotations)
	if err != nil {
		return nil, false
	}
	return n.Subnet, true
}

// make makes the subnet that a definition describes, and its pool.
func (r *Subnets) make(ctx context.Context, o *nad.NetworkAttachmentDefinition, s vif.NewSubnet) (reconcile.Result, error) {
	cidr, gateway, err := s.Parse()
	if err != nil {
		return reconcile.Result{}, nil // who makes definitions of it says what is wrong
	}
	name := vif.PoolName(o.Namespace, o.Name)
	nc, err := r.Connect(ctx)
	if err != nil {
		r.tell(ctx, o, v1alpha1.ReasonNotConfigured, err.Error())
		return reconcile.Result{RequeueAfter: longWait}, nil
	}
	r.making.Lock()
	defer r.making.Unlock()
	id, err := nc.EnsureSubnet(ctx, neutron.NewSubnet{
		Key: name, Name: clip("tenure "+o.Namespace+"/"+o.Name, 255), Prefix: cidr, Gateway: gateway, Network: s.NetworkID,
	})
	if err != nil {
		r.tell(ctx, o, string(reasonOf(err)), err.Error())
		return reconcile.Result{RequeueAfter: longWait}, nil
	}
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{vif.AnnotationSubnetOf: o.Namespace + "/" + o.Name}, Finalizers: []string{vif.FinalizerSubnet},
		},
		Spec: v1alpha1.IPPoolSpec{Domain: name, Source: &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: []string{id}}}},
	}
	err = kube.Call(ctx, func(ctx context.Context) error { return r.Write.Create(ctx, pool) })
	if out := kube.Classify(err); out != protocol.Done && out != protocol.Exists {
		return reconcile.Result{}, fmt.Errorf("make pool %s: %w", name, err)
	}
	r.reported.Forget(client.ObjectKeyFromObject(o))
	r.Log.InfoContext(ctx, "subnet made", "definition", o.Namespace+"/"+o.Name, "subnet", id, "pool", name)
	return reconcile.Result{}, nil
}

// finish deletes the subnet of a pool that is being deleted, once nobody has an address of it.
func (r *Subnets) finish(ctx context.Context, pool *v1alpha1.IPPool, definition string) (reconcile.Result, error) {
	switch {
	case !slices.Contains(pool.Finalizers, vif.FinalizerSubnet):
		return reconcile.Result{}, nil
	case slices.Contains(pool.Finalizers, v1alpha1.LeasesFinalizer): // its going leads here again
		return reconcile.Result{}, nil
	}
	nc, err := r.Connect(ctx)
	if err == nil {
		err = nc.DeleteSubnet(ctx, pool.Name)
	}
	if err != nil {
		r.Log.WarnContext(ctx, "the subnet of a definition that is gone is not deleted yet", "definition", definition, "pool", pool.Name, "error", err)
		return reconcile.Result{RequeueAfter: waitForUsers}, nil
	}
	seen := kube.MetaOf(pool)
	left := slices.DeleteFunc(slices.Clone(pool.Finalizers), func(f string) bool { return f == vif.FinalizerSubnet })
	if _, err := patchPool(ctx, r.Write, seen, map[string]any{"metadata": map[string]any{"finalizers": left}}, false); err != nil {
		return reconcile.Result{}, err
	}
	r.Log.InfoContext(ctx, "subnet deleted", "definition", definition, "pool", pool.Name)
	return reconcile.Result{}, nil
}

// tell makes an Event of what stands against a definition's subnet, if it is another than before.
func (r *Subnets) tell(ctx context.Context, o *nad.NetworkAttachmentDefinition, reason, message string) {
	key := client.ObjectKeyFromObject(o)
	if len(r.reported.New(key, reason+message)) == 0 {
		return
	}
	r.Log.WarnContext(ctx, "no subnet for a definition", "definition", key.String(), "reason", reason, "message", message)
	r.Events.Eventf(o, nil, corev1.EventTypeWarning, reason, "MakeSubnet", "%.1000s", message)
}
