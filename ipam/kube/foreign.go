package kube

import (
	"context"
	"fmt"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// pageSize is how many objects one call lists of what there may be very many of.
const pageSize = 500

// BoundPods calls see with every pod that is bound to a node and has not ended, read live
// and in pages.
func (a *API) BoundPods(ctx context.Context, see func(*corev1.Pod)) error {
	selector := fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	next := ""
	for {
		var page corev1.PodList
		err := a.list(ctx, &page, client.Limit(pageSize), client.Continue(next), client.MatchingFieldsSelector{Selector: selector})
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for i := range page.Items {
			see(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// whereabouts is the API group of whereabouts' objects.
var whereabouts = schema.GroupVersion{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1"}

// WhereaboutsPools calls see with each of whereabouts' IPPools, read live and in pages.
// served is false where the cluster has no such kind.
func (a *API) WhereaboutsPools(ctx context.Context, see func(*unstructured.Unstructured)) (served bool, err error) {
	return a.Others(ctx, whereabouts.WithKind("IPPoolList"), see)
}

// WhereaboutsReservations does for OverlappingRangeIPReservations what WhereaboutsPools does for
// IPPools.
func (a *API) WhereaboutsReservations(ctx context.Context, see func(*unstructured.Unstructured)) (served bool, err error) {
	return a.Others(ctx, whereabouts.WithKind("OverlappingRangeIPReservationList"), see)
}

// NewWhereaboutsPool returns one of whereabouts' IPPools without a spec, to be read or made.
func NewWhereaboutsPool(namespace, name string) *unstructured.Unstructured {
	return newWhereabouts("IPPool", namespace, name)
}

// NewWhereaboutsReservation returns an OverlappingRangeIPReservation without a spec, to be read
// or made.
func NewWhereaboutsReservation(namespace, name string) *unstructured.Unstructured {
	return newWhereabouts("OverlappingRangeIPReservation", namespace, name)
}

func newWhereabouts(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(whereabouts.WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// Others calls see with each object of a kind that is not Tenure's, read live and in pages; kind is
// that of the list. served is false where the cluster has no such kind.
func (a *API) Others(ctx context.Context, kind schema.GroupVersionKind, see func(*unstructured.Unstructured)) (served bool, err error) {
	next := ""
	for {
		var page unstructured.UnstructuredList
		page.SetGroupVersionKind(kind)
		err := a.list(ctx, &page, client.Limit(pageSize), client.Continue(next))
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return true, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range page.Items {
			see(&page.Items[i])
		}
		if next = page.GetContinue(); next == "" {
			return true, nil
		}
	}
}

// FencePolicyName is the policy that holds whereabouts to the pools' status.fenced.
const FencePolicyName = "foreign-fence.tenure.dev"

// FencePolicy reports whether the policy of that name is bound in the cluster.
func (a *API) FencePolicy(ctx context.Context) (there bool, err error) {
	var o admissionregistration.ValidatingAdmissionPolicyBinding
	out, err := a.get(ctx, client.ObjectKey{Name: FencePolicyName}, &o)
	switch out {
	case protocol.Done:
		return true, nil
	case protocol.NotFound:
		return false, nil
	default:
		return false, fmt.Errorf("read policy %s: %w", FencePolicyName, err)
	}
}

// AskNode writes what is to be looked for into a node's registration, "" for nothing, and nothing
// else of it.
func (a *API) AskNode(ctx context.Context, m protocol.Meta, look string) (protocol.Outcome, error) {
	_, out, err := a.annotateRegistration(ctx, m, annotationQuery, look)
	return out, err
}
