// Package nodelabels tells each node's agent the labels of its node that node selectors of pools
// name: it copies them into the node's registration, which the agent watches. The agents need no
// right to watch Nodes, and hear of no label that no pool names.
package nodelabels

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// mostText bounds the labels on a registration, in bytes: an object has room for 256 KiB of
// annotations, and the heartbeat needs some.
const mostText = 16 << 10

// Teller writes labels to a registration: a [kube.API].
type Teller interface {
	TellLabels(ctx context.Context, m protocol.Meta, labels string) (protocol.Outcome, error)
}

// Reconciler tells the agents. All its fields must be set. It looks at a registration whenever the
// Node's labels, the registration's, or the keys that pools name have changed.
type Reconciler struct {
	// Cache has Nodes with their labels, registrations, and pools.
	Cache                 client.Reader
	RegistrationNamespace string
	Live                  Teller
	Log                   *slog.Logger
}

// Reconcile looks at the registration of one node.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var obj coordination.Lease
	if err := r.Cache.Get(ctx, client.ObjectKey{Namespace: r.RegistrationNamespace, Name: req.Name}, &obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !kube.IsRegistration(&obj) {
		return reconcile.Result{}, nil
	}
	var node corev1.Node
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: req.Name}, &node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	keys, err := r.keys(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	some := fitting(keys, &node)
	if left := len(keys) - len(some); left > 0 {
		r.Log.WarnContext(ctx, "labels that pools name are too many for a node's registration: its agent does not hear of some", "node", req.Name, "left", left)
	}
	want := kube.LabelsOf(&node, some).String()
	reg, _ := kube.RegistrationOf(&obj) // what can be read of it
	if reg.Labels == want {
		return reconcile.Result{}, nil
	}
	switch out, err := r.Live.TellLabels(ctx, reg.Meta, want); out {
	case protocol.Done, protocol.NotFound, protocol.Conflict: // another registration: its watch brings it here
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{}, fmt.Errorf("tell the agent of node %s its labels: %w", req.Name, err)
	}
}

// keys returns the keys of labels that pools' node selectors name, sorted.
func (r *Reconciler) keys(ctx context.Context) ([]string, error) {
	var pools v1alpha1.IPPoolList
	if err := r.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	var all []string
	for i := range pools.Items {
		all = append(all, keysOf(&pools.Items[i])...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// keysOf returns the keys that a pool names.
func keysOf(pool *v1alpha1.IPPool) []string { return kube.SpecText(pool).LabelKeys() }

// fitting returns the first of keys: those of which a node's labels fit on its registration.
func fitting(keys []string, node *corev1.Node) []string {
	room := mostText
	for i, key := range keys {
		if room -= len(key) + len(node.Labels[key]) + len(`"":null,`); room < 0 {
			return keys[:i]
		}
	}
	return keys
}
