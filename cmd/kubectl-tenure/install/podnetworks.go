package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// networksBinding is what gives the controller its rights over PodNetworks.
const networksBinding = "tenure-controller-pod-networks"

// freePodNetworks takes off what keeps PodNetworks and PodNetworkAttachments from being deleted:
// the controller, which would do so, has ended. One on a node that does not answer may go on
// running, and would put it back. So its rights go first.
func (u *uninstall) freePodNetworks(ctx context.Context) error {
	if err := u.freePods(ctx); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: networksBinding}}
	if err := u.Client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ClusterRoleBinding %s, by which a controller that still runs could keep PodNetworks: %w", networksBinding, err)
	}
	networks, err := u.freeAll(ctx, &v1alpha1.PodNetworkList{})
	if err != nil {
		return err
	}
	attachments, err := u.freeAll(ctx, &v1alpha1.PodNetworkAttachmentList{})
	if err != nil {
		return err
	}
	if networks+attachments > 0 {
		u.Screen().Line("took the finalizer %s from %s and %s: they stay, and can be deleted", v1alpha1.InUseFinalizer,
			screen.Number(networks, "PodNetwork", "PodNetworks"), screen.Number(attachments, "PodNetworkAttachment", "PodNetworkAttachments"))
	}
	return nil
}

// freePods takes away what gives new pods their gate, and then the gate from those that have it,
// until no pod has: an API server may give it for a moment longer.
func (u *uninstall) freePods(ctx context.Context) error {
	found := false
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: podnetwork.Admission}}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		err := u.Client.Delete(ctx, o)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("delete %s %s: %w", kind, podnetwork.Admission, err)
		}
		found = found || err == nil
	}
	freed := 0
	for {
		n, err := u.liftAll(ctx)
		if freed += n; err != nil {
			return err
		}
		if n == 0 && !found {
			break
		}
		found = false // once more, when every API server has heard of it
		if !pause.For(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	if freed > 0 {
		u.Screen().Line("took the scheduling gate %s from %s: what waited for PodNetworks starts without them", podnetwork.Gate, screen.Number(freed, "pod", "pods"))
	}
	return nil
}

// liftAll takes the gate from every pod, and returns from how many. Only pods without a node have
// one.
func (u *uninstall) liftAll(ctx context.Context) (freed int, err error) {
	pods, err := session.ListAll(ctx, u.Client, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, client.MatchingFields{"spec.nodeName": ""})
	if err != nil {
		return 0, fmt.Errorf("list pods without a node: %w", err)
	}
	for i := range pods {
		p := &pods[i]
		if !slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == podnetwork.Gate }) {
			continue
		}
		lift := client.RawPatch(types.StrategicMergePatchType, podnetwork.LiftPatch(string(p.UID)))
		if err := u.Client.Patch(ctx, p, lift); client.IgnoreNotFound(err) != nil {
			return freed, fmt.Errorf("take the gate %s from pod %s/%s: %w", podnetwork.Gate, p.Namespace, p.Name, err)
		}
		freed++
	}
	return freed, nil
}

// freeAll frees the objects of one kind, and returns of how many it has taken something off: of
// none, where nothing defines the kind.
func (u *uninstall) freeAll(ctx context.Context, list client.ObjectList) (freed int, err error) {
	if err := u.Client.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("list every %s: %w", session.KindOf(list), err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return 0, fmt.Errorf("list every %s: %w", session.KindOf(list), err)
	}
	var errs []error
	for _, object := range objects {
		o, ok := object.(client.Object)
		if !ok {
			continue
		}
		before := client.MergeFromWithOptions(o.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
		_, kept := o.GetAnnotations()[podnetwork.AnnotationKept]
		delete(o.GetAnnotations(), podnetwork.AnnotationKept)
		if !controllerutil.RemoveFinalizer(o, v1alpha1.InUseFinalizer) && !kept {
			continue
		}
		if err := u.Client.Patch(ctx, o, before); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("take the finalizer from %s %s: %w", session.KindOf(list), o.GetName(), err))
			continue
		}
		freed++
	}
	return freed, errors.Join(errs...)
}
