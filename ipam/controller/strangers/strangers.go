// Package strangers keeps the addresses that strangers on a segment have from all pods. Nodes tell
// of these on their registrations. Each gets an IPReservation, which who administers the pool
// deletes to end it.
package strangers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ReasonAddressInUse is of the Event of a pool by which it says that a stranger has an address.
const ReasonAddressInUse = "AddressInUse"

// Reconciler makes reservations of what nodes tell. All its exported fields must be set.
type Reconciler struct {
	// Cache has pools, registrations and reservations.
	Cache                 client.Reader
	RegistrationNamespace string
	Write                 client.Client
	Shapes                *pools.Shapes
	Events                events.EventRecorder
	Log                   *slog.Logger
	Now                   func() time.Time

	mu sync.Mutex
	// done are the strangers of which a reservation was made, by node. The registration tells of
	// them for some minutes more, in which somebody may delete the reservation. Guarded by mu.
	done map[string][]protocol.Stranger
}

// Reconcile looks at the registration of one node.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.mu.Lock() // one after the other: they are few, and are counted
	defer r.mu.Unlock()
	var obj coordination.Lease
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: r.RegistrationNamespace, Name: req.Name}, &obj)
	if apierrors.IsNotFound(err) {
		delete(r.done, req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read registration %s: %w", req.Name, err)
	}
	reg, _ := kube.RegistrationOf(&obj) // what can be read of it
	told := reg.Strangers[:min(len(reg.Strangers), protocol.MaxStrangers)]
	before, errs := r.done[req.Name], []error(nil)
	var done []protocol.Stranger
	for _, x := range told {
		isDone := slices.ContainsFunc(before, func(y protocol.Stranger) bool { return y.Pool == x.Pool && y.Addr == x.Addr && y.At.Equal(x.At) })
		if !isDone && r.Now().Sub(x.At).Abs() < tooOld {
			if err := r.keep(ctx, req.Name, x); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		done = append(done, x)
	}
	if r.done == nil {
		r.done = map[string][]protocol.Stranger{}
	}
	r.done[req.Name] = done
	return reconcile.Result{}, errors.Join(errs...)
}

// tooOld is how long ago a stranger was found of whom a registration tells that nobody writes any
// more: the next leader must not keep again what somebody has given back. Clocks may differ by
// minutes.
const tooOld = time.Hour

// longestFor is how long the text of a reservation may be that says what has its address.
const longestFor = 253

// keep makes the reservation of a stranger's address, and says so. What a pool does not ask for, or
// does not have, is passed over: the node's word is worth no more than the pool allows.
func (r *Reconciler) keep(ctx context.Context, node string, x protocol.Stranger) error {
	var pool v1alpha1.IPPool
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: string(x.Pool)}, &pool); err != nil {
		return client.IgnoreNotFound(err)
	}
	mac, err := net.ParseMAC(x.MAC)
	shape, _ := r.Shapes.Of(&pool)
	if err != nil || pool.DeletionTimestamp != nil || !pool.Spec.DetectConflicts || shape == nil || shape.Assignable(x.Addr) != nil {
		r.Log.WarnContext(ctx, "a stranger is passed over: the pool does not ask for it, does not give the address, or is being deleted", "node", node, "pool", x.Pool, "address", x.Addr, "mac", x.MAC)
		return nil
	}
	kept, err := pools.StrangersOf(ctx, r.Cache, pool.Name)
	if err != nil {
		return err
	}
	if len(kept) >= protocol.MaxStrangers {
		r.Log.WarnContext(ctx, "strangers have too many addresses of a pool: this one is not kept", "node", node, "pool", x.Pool, "address", x.Addr, "mac", x.MAC)
		return nil
	}
	text := fmt.Sprintf("a stranger with hardware address %s, found at %s by node %s", mac, x.At.UTC().Format(time.RFC3339), node)
	made := &v1alpha1.IPReservation{
		ObjectMeta: metav1.ObjectMeta{
			Name: nameOf(x), Labels: map[string]string{v1alpha1.LabelStranger: strings.ReplaceAll(mac.String(), ":", "-")},
			// It goes with the pool, which does not wait for it.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPPool", Name: pool.Name, UID: pool.UID}},
		},
		Spec: v1alpha1.IPReservationSpec{
			Pool: pool.Name, Address: x.Addr.String(),
			For: text[:min(len(text), longestFor)],
		},
	}
	call, cancel := context.WithTimeout(ctx, kube.CallTimeout)
	defer cancel()
	if err := r.Write.Create(call, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep %s of pool %s from pods: %w", x.Addr, pool.Name, err)
	}
	r.Log.InfoContext(ctx, "a stranger's address is kept from pods", "node", node, "pool", x.Pool, "address", x.Addr, "mac", mac.String(), "reservation", made.Name)
	r.Events.Eventf(&pool, nil, corev1.EventTypeWarning, ReasonAddressInUse, "Keep",
		"%s is in use on the segment by %s, which node %s has found: it is given to no pod. When that has gone: kubectl delete ipreservation %s", x.Addr, mac, node, made.Name)
	return nil
}

// nameOf returns the name of the reservation of a stranger's address.
func nameOf(x protocol.Stranger) string {
	return fmt.Sprintf("stranger-%s-%s", x.Pool, strings.NewReplacer(".", "-", ":", "-").Replace(x.Addr.StringExpanded()))
}

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	tells := predicate.NewPredicateFuncs(func(o client.Object) bool {
		lease, ok := o.(*coordination.Lease)
		if !ok || !kube.IsRegistration(lease) {
			return false
		}
		reg, _ := kube.RegistrationOf(lease)
		return len(reg.Strangers) > 0
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("strangers").
		For(&coordination.Lease{}).
		WithEventFilter(tells).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up strangers: %w", err)
	}
	return nil
}
