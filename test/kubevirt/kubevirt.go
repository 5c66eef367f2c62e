package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/ipam/kube"
)

// Run is KubeVirt: it looks after machines and their claims until ctx ends.
func Run(ctx context.Context, rc *rest.Config) error {
	scheme, err := kube.Scheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(rc, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return fmt.Errorf("kubevirt: %w", err)
	}
	live, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("kubevirt: %w", err)
	}
	vm, vmi := object(vmKind, "", ""), object(vmiKind, "", "")
	byName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		name := o.GetName()
		switch o.(type) {
		case *corev1.Pod:
			name = o.GetLabels()[labelName]
		case *ipamclaims.IPAMClaim:
			name = o.GetLabels()[LabelVM]
		}
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	})
	r := &reconciler{c: live}
	err = ctrl.NewControllerManagedBy(mgr).Named("kubevirt").For(vm).
		Watches(vmi, byName).Watches(&corev1.Pod{}, byName).Watches(&ipamclaims.IPAMClaim{}, byName).
		Complete(r)
	if err != nil {
		return fmt.Errorf("kubevirt: %w", err)
	}
	return mgr.Start(ctx)
}

// reconciler looks after everything of one name: machine, instance, launcher pods
// and claims. It reads live, so that what it has just written is there.
type reconciler struct{ c client.Client }

// world is what there is of one name; vm and vmi are nil where there is none.
type world struct {
	vm, vmi *unstructured.Unstructured
	pods    []corev1.Pod
}

func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var w world
	var err error
	if w.vm, err = r.get(ctx, object(vmKind, req.Namespace, req.Name)); err != nil {
		return reconcile.Result{}, err
	}
	if w.vmi, err = r.get(ctx, object(vmiKind, req.Namespace, req.Name)); err != nil {
		return reconcile.Result{}, err
	}
	if w.pods, err = Launchers(ctx, r.c, req.Namespace, req.Name); err != nil {
		return reconcile.Result{}, err
	}
	err = errors.Join(r.machine(ctx, w), r.instance(ctx, w), r.claims(ctx, req.NamespacedName, w))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return reconcile.Result{}, err
}

// get reads an object, or returns nil.
func (r *reconciler) get(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	err := r.c.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is one of the cases that the caller tells apart
	}
	return o, err
}

// Launchers returns the launcher pods of a machine.
func Launchers(ctx context.Context, c client.Client, namespace, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{labelLauncher: "virt-launcher", labelName: name})
	return list.Items, err
}

// machine gives a machine the instance that it should have, and lets a deleted one
// go when it has none.
func (r *reconciler) machine(ctx context.Context, w world) error {
	if w.vm == nil {
		return nil
	}
	if w.vm.GetDeletionTimestamp() != nil {
		if w.vmi != nil {
			return r.delete(ctx, w.vmi)
		}
		return r.unfinalize(ctx, w.vm, vmFinalizer)
	}
	if controllerutil.AddFinalizer(w.vm, vmFinalizer) {
		return r.c.Update(ctx, w.vm)
	}
	strategy, _, _ := unstructured.NestedString(w.vm.Object, "spec", "runStrategy")
	switch {
	case strategy == "Halted" && w.vmi != nil:
		return r.delete(ctx, w.vmi)
	case strategy != "Halted" && w.vmi == nil:
		spec, _, _ := unstructured.NestedMap(w.vm.Object, "spec", "template", "spec")
		finalizers, _, _ := unstructured.NestedStringSlice(w.vm.Object, "spec", "template", "metadata", "finalizers")
		vmi := VMI(w.vm.GetNamespace(), w.vm.GetName(), nil)
		vmi.Object["spec"] = spec
		vmi.SetFinalizers(append(vmi.GetFinalizers(), finalizers...))
		vmi.SetOwnerReferences([]metav1.OwnerReference{ownerOf(w.vm)})
		return client.IgnoreAlreadyExists(r.c.Create(ctx, vmi))
	}
	return nil
}

// instance gives an instance its first launcher pod, notes its pods in its status,
// and lets a deleted one go when it has none.
func (r *reconciler) instance(ctx context.Context, w world) error {
	if w.vmi == nil {
		return nil
	}
	if err := r.note(ctx, w); err != nil {
		return err
	}
	if w.vmi.GetDeletionTimestamp() != nil {
		for i := range w.pods {
			if err := r.delete(ctx, &w.pods[i]); err != nil {
				return err
			}
		}
		if len(w.pods) > 0 {
			return nil
		}
		return r.unfinalize(ctx, w.vmi, vmiFinalizer)
	}
	if len(w.pods) > 0 {
		return nil
	}
	_, err := r.launch(ctx, w.vmi)
	return err
}

// note writes the instance's pods into its status.
func (r *reconciler) note(ctx context.Context, w world) error {
	active := map[string]any{}
	for _, p := range w.pods {
		active[string(p.UID)] = p.Spec.NodeName
	}
	was, _, _ := unstructured.NestedMap(w.vmi.Object, "status", "activePods")
	if fmt.Sprint(was) == fmt.Sprint(active) {
		return nil
	}
	if err := unstructured.SetNestedMap(w.vmi.Object, active, "status", "activePods"); err != nil {
		return err
	}
	return r.c.Status().Update(ctx, w.vmi)
}

// launch creates a launcher pod.
func (r *reconciler) launch(ctx context.Context, vmi *unstructured.Unstructured) (*corev1.Pod, error) {
	persistent := map[string]bool{}
	for _, n := range networksOf(vmi) {
		name, err := r.persistent(ctx, vmi.GetNamespace(), n)
		if err != nil {
			return nil, err
		}
		persistent[n.Name] = name != ""
	}
	pod, err := launcher(vmi, persistent)
	if err != nil {
		return nil, err
	}
	return pod, r.c.Create(ctx, pod)
}

// persistent returns the network's name if its definition allows persistent
// addresses, else nothing.
func (r *reconciler) persistent(ctx context.Context, namespace string, n Network) (string, error) {
	var d nad.NetworkAttachmentDefinition
	if err := r.c.Get(ctx, n.definition(namespace), &d); err != nil {
		return "", err
	}
	var config struct {
		Name               string `json:"name"`
		AllowPersistentIPs bool   `json:"allowPersistentIPs"`
	}
	if err := json.Unmarshal([]byte(d.Spec.Config), &config); err != nil || !config.AllowPersistentIPs {
		return "", err
	}
	return config.Name, nil
}

// claims makes the claims of an instance, and takes its finalizer off them when
// nobody can need them: with a machine, when it is being deleted and its instance
// is gone; without, when the instance is gone, or is going and has no pod.
func (r *reconciler) claims(ctx context.Context, key types.NamespacedName, w world) error {
	done := w.vmi == nil || w.vmi.GetDeletionTimestamp() != nil && len(w.pods) == 0
	if w.vm != nil {
		done = w.vm.GetDeletionTimestamp() != nil && w.vmi == nil
	}
	if done {
		var list ipamclaims.IPAMClaimList
		if err := r.c.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{LabelVM: key.Name}); err != nil {
			return err
		}
		for i := range list.Items {
			if err := r.unfinalize(ctx, &list.Items[i], claimFinalizer); err != nil {
				return err
			}
		}
		return nil
	}
	if w.vmi == nil || w.vmi.GetDeletionTimestamp() != nil {
		return nil
	}
	owner := w.vmi
	if w.vm != nil {
		owner = w.vm
	}
	for _, n := range networksOf(w.vmi) {
		network, err := r.persistent(ctx, key.Namespace, n)
		if err != nil {
			return err
		}
		if network == "" {
			continue
		}
		claim := &ipamclaims.IPAMClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: ClaimName(key.Name, n.Name), Labels: map[string]string{LabelVM: key.Name},
				Finalizers: []string{claimFinalizer}, OwnerReferences: []metav1.OwnerReference{ownerOf(owner)},
			},
			Spec: ipamclaims.IPAMClaimSpec{Network: network},
		}
		err = r.c.Create(ctx, claim)
		if apierrors.IsAlreadyExists(err) {
			err = r.mine(ctx, claim, owner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mine returns an error unless the claim that is there belongs to owner, and to nobody else:
// KubeVirt's controller takes no other, and tries again.
func (r *reconciler) mine(ctx context.Context, claim *ipamclaims.IPAMClaim, owner client.Object) error {
	if err := r.c.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return err
	}
	if owners := claim.OwnerReferences; len(owners) != 1 || owners[0].UID != owner.GetUID() {
		return fmt.Errorf("claim %s is not of %s", claim.Name, owner.GetName())
	}
	return nil
}

func (r *reconciler) delete(ctx context.Context, o client.Object) error {
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	return client.IgnoreNotFound(r.c.Delete(ctx, o))
}

// unfinalize takes a finalizer off an object.
func (r *reconciler) unfinalize(ctx context.Context, o client.Object, finalizer string) error {
	if !slices.Contains(o.GetFinalizers(), finalizer) {
		return nil
	}
	controllerutil.RemoveFinalizer(o, finalizer)
	return client.IgnoreNotFound(r.c.Update(ctx, o))
}

// Halt stops a machine, and Start starts it again.
func Halt(ctx context.Context, c client.Client, namespace, name string) error {
	return run(ctx, c, namespace, name, "Halted")
}

// Start starts a machine that was halted.
func Start(ctx context.Context, c client.Client, namespace, name string) error {
	return run(ctx, c, namespace, name, "Always")
}

func run(ctx context.Context, c client.Client, namespace, name, strategy string) error {
	patch := fmt.Appendf(nil, `{"spec":{"runStrategy":%q}}`, strategy)
	return c.Patch(ctx, object(vmKind, namespace, name), client.RawPatch(types.MergePatchType, patch))
}

// Restart deletes a machine's instance, which it then makes anew.
func Restart(ctx context.Context, c client.Client, namespace, name string) error {
	return c.Delete(ctx, object(vmiKind, namespace, name))
}

// Plug gives an instance these networks in place of those that it has: it is the next launcher
// pod, of a migration, that has them.
func Plug(ctx context.Context, c client.Client, namespace, name string, networks []Network) error {
	patch, err := json.Marshal(map[string]any{"spec": specOf(networks)})
	if err != nil {
		return err
	}
	return c.Patch(ctx, object(vmiKind, namespace, name), client.RawPatch(types.MergePatchType, patch))
}

// Migrate creates the target pod of a live migration. The migration ends with the
// deletion of the source pod, or, if it fails, of the target.
func Migrate(ctx context.Context, c client.Client, namespace, name string) (*corev1.Pod, error) {
	vmi := object(vmiKind, namespace, name)
	if err := c.Get(ctx, client.ObjectKeyFromObject(vmi), vmi); err != nil {
		return nil, err
	}
	return (&reconciler{c: c}).launch(ctx, vmi)
}
