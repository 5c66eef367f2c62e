package podnetworks

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// Indices of objects in the cache.
const (
	// byNetwork is of pods that have not ended, by the PodNetworks that they list; and of
	// attachments, by their network.
	byNetwork = podnetwork.IndexNetwork
	// byAttachment is of pods that have not ended, by the attachments that they list.
	byAttachment = "tenure.podnetworkattachment"
	// byReference is of networks and attachments, by the objects of their parametersRefs and the
	// definition that is made of these.
	byReference = "tenure.parameters"
)

// anyDefinition is in the index byReference for each network that names a definition.
const anyDefinition = "definitions"

// Index adds the indices that the reconcilers need. Call it before the cache starts.
func Index(ctx context.Context, to client.FieldIndexer) error {
	err := errors.Join(
		to.IndexField(ctx, &corev1.Pod{}, byNetwork, func(o client.Object) []string { networks, _ := running(o); return networks }),
		to.IndexField(ctx, &corev1.Pod{}, byAttachment, func(o client.Object) []string { _, attachments := running(o); return attachments }),
		to.IndexField(ctx, &v1alpha1.PodNetworkAttachment{}, byNetwork, func(o client.Object) []string {
			return []string{o.(*v1alpha1.PodNetworkAttachment).Spec.PodNetworkName}
		}),
		to.IndexField(ctx, &v1alpha1.PodNetworkAttachment{}, byReference, func(o client.Object) []string {
			a := o.(*v1alpha1.PodNetworkAttachment)
			return keysOf(a.Spec.ParametersRefs, a.Namespace, podnetwork.AttachmentOf(a).Definition)
		}),
		to.IndexField(ctx, &v1alpha1.PodNetwork{}, byReference, func(o client.Object) []string {
			n := o.(*v1alpha1.PodNetwork)
			return keysOf(n.Spec.ParametersRefs, "", podnetwork.Of(n, access.Rule{}).Definition)
		}),
	)
	if err != nil {
		return fmt.Errorf("index what refers to PodNetworks: %w", err)
	}
	return nil
}

// running returns what a pod refers to, nothing once it has ended.
func running(o client.Object) (networks, attachments []string) {
	if pod, ok := o.(*corev1.Pod); !ok || !isRunning(pod) {
		return nil, nil
	}
	return references(o)
}

// keysOf returns the keys in the index byReference of what has these refs, and ends at that
// definition. namespace is that of references that name none.
func keysOf(refs []v1alpha1.ParametersRef, namespace string, end facts.Ref) (keys []string) {
	if end != (facts.Ref{}) {
		keys = append(keys, definitionKey(end.Namespace, end.Name))
	}
	for _, ref := range refs {
		switch {
		case podnetwork.IsDefinition(ref):
			keys = append(keys, anyDefinition)
		case podnetwork.IsParameters(ref):
			keys = append(keys, parametersKey(cmp.Or(ref.Namespace, namespace), ref.Name))
		case podnetwork.IsPool(ref):
			keys = append(keys, poolKey(ref.Name))
		}
	}
	return keys
}

func definitionKey(namespace, name string) string { return "definition " + namespace + "/" + name }
func parametersKey(namespace, name string) string { return "parameters " + namespace + "/" + name }
func poolKey(name string) string                  { return "pool " + name }
