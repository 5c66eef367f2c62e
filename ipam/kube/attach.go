package kube

import (
	"context"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ReadDefinition reads a network attachment definition live.
func (a *API) ReadDefinition(ctx context.Context, key client.ObjectKey) (*nad.NetworkAttachmentDefinition, protocol.Outcome, error) {
	var obj nad.NetworkAttachmentDefinition
	out, err := a.get(ctx, key, &obj)
	return &obj, out, err
}

// ReadPodNetwork reads a PodNetwork live.
func (a *API) ReadPodNetwork(ctx context.Context, name string) (*v1alpha1.PodNetwork, protocol.Outcome, error) {
	var obj v1alpha1.PodNetwork
	out, err := a.get(ctx, client.ObjectKey{Name: name}, &obj)
	return &obj, out, err
}

// ReadPodNetworkAttachment reads a PodNetworkAttachment live.
func (a *API) ReadPodNetworkAttachment(ctx context.Context, key client.ObjectKey) (*v1alpha1.PodNetworkAttachment, protocol.Outcome, error) {
	var obj v1alpha1.PodNetworkAttachment
	out, err := a.get(ctx, key, &obj)
	return &obj, out, err
}

// ReadNamespaceMetadata reads the metadata of a namespace live.
func (a *API) ReadNamespaceMetadata(ctx context.Context, name string) (*metav1.PartialObjectMetadata, protocol.Outcome, error) {
	obj := metadataOf("Namespace")
	out, err := a.get(ctx, client.ObjectKey{Name: name}, obj)
	return obj, out, err
}

// AnnotatePod sets annotations of the pod that has this UID, takes off those whose text is empty,
// and leaves alone whatever else others write. It goes through the pod's status, whose writers
// cannot change what the pod runs. Conflict means that the pod of that name is another one.
func (a *API) AnnotatePod(ctx context.Context, key client.ObjectKey, uid protocol.UID, annotations map[string]string) (protocol.Outcome, error) {
	texts := map[string]any{}
	for name, text := range annotations {
		if texts[name] = text; text == "" {
			texts[name] = nil
		}
	}
	pod := metadataOf("Pod")
	pod.SetNamespace(key.Namespace)
	pod.SetName(key.Name)
	return a.swapStatus(ctx, pod, protocol.Meta{Name: key.String(), UID: uid}, map[string]any{"metadata": map[string]any{"annotations": texts}})
}
