package workloads

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// machineEvery is how often a claim without an owner is looked at: of a VirtualMachine that
// appears no event comes.
const machineEvery = time.Minute

// MachineClaims gives claims that have lost their owner back to the VirtualMachine of that name, as
// after a restore: KubeVirt's controller takes none that is not its machine's.
type MachineClaims struct {
	// Cache has claims, condensed.
	Cache client.Reader
	// Live reads and writes at the API server.
	Live client.Client
	Log  *slog.Logger
}

// Reconcile looks at one claim.
func (m *MachineClaims) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var claim ipamclaims.IPAMClaim
	if err := m.Cache.Get(ctx, req.NamespacedName, &claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if !ownerless(&claim) || claim.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	var vm metav1.PartialObjectMetadata
	vm.SetGroupVersionKind(kube.VirtualMachine)
	err := kube.Call(ctx, func(ctx context.Context) error {
		return m.Live.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: claim.Labels[kube.VMLabel]}, &vm)
	})
	switch {
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return reconcile.Result{}, nil // no machine is going to be seen
	case apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: machineEvery}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read VirtualMachine %s/%s: %w", req.Namespace, claim.Labels[kube.VMLabel], err)
	case vm.DeletionTimestamp != nil:
		return reconcile.Result{RequeueAfter: machineEvery}, nil
	}
	return reconcile.Result{}, m.give(ctx, &claim, &vm)
}

// give makes a machine the owner of a claim, and only of the claim as it was seen.
func (m *MachineClaims) give(ctx context.Context, claim *ipamclaims.IPAMClaim, vm *metav1.PartialObjectMetadata) error {
	yes := true // it does not block the machine's deletion: that would need a right on machines
	owner := metav1.OwnerReference{
		APIVersion: kube.VirtualMachine.GroupVersion().String(), Kind: kube.VirtualMachine.Kind, Name: vm.Name, UID: vm.UID, Controller: &yes,
	}
	seen := kube.MetaOf(claim)
	err := writeMeta(ctx, m.Live, claim.Namespace, seen, map[string]any{"ownerReferences": []metav1.OwnerReference{owner}})
	switch out := kube.Classify(err); out {
	case protocol.Done:
		m.Log.InfoContext(ctx, "claim given back to its machine", "claim", claim.Namespace+"/"+claim.Name, "machine", vm.Name)
	case protocol.NotFound, protocol.Conflict: // that change brings it here again
	default:
		return fmt.Errorf("write owner of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// ownerless reports whether a claim is a VirtualMachine's by its label, and nobody owns it.
func ownerless(o client.Object) bool {
	return o.GetLabels()[kube.VMLabel] != "" && len(o.GetOwnerReferences()) == 0
}

// Setup has the manager run m.
func (m *MachineClaims) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("machines").
		For(&ipamclaims.IPAMClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(ownerless))).
		WithOptions(trigger.Workers(1)).
		Complete(m)
	if err != nil {
		return fmt.Errorf("set up the claims of VirtualMachines: %w", err)
	}
	return nil
}
