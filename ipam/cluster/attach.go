package cluster

import (
	"context"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ReadDefinition reads a network attachment definition live.
func (a *API) ReadDefinition(ctx context.Context, key client.ObjectKey) (*nad.NetworkAttachmentDefinition, protocol.Outcome, error) {
	var obj nad.NetworkAttachmentDefinition
	out, err := a.get(ctx, key, &obj)
	return &obj, out, err
}

// ReadNamespaceMetadata reads the metadata of a namespace live.
func (a *API) ReadNamespaceMetadata(ctx context.Context, name string) (*metav1.PartialObjectMetadata, protocol.Outcome, error) {
	obj := metadataOf("Namespace")
	out, err := a.get(ctx, client.ObjectKey{Name: name}, obj)
	return obj, out, err
}

// AnnotatePod sets one annotation of the pod that has this UID, and leaves alone
// whatever else others write. It goes through the pod's status, whose writers cannot
// change what the pod runs. Conflict means that the pod of that name is another one.
func (a *API) AnnotatePod(ctx context.Context, key client.ObjectKey, uid protocol.UID, annotation, value string) (protocol.Outcome, error) {
	patch, err := swapPatch(protocol.Meta{Name: key.String(), UID: uid}, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{annotation: value}},
	})
	if err != nil {
		return protocol.Refused, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	pod := metadataOf("Pod")
	pod.SetNamespace(key.Namespace)
	pod.SetName(key.Name)
	return outcome(ctx, a.c.Status().Patch(ctx, pod, patch))
}

// PodEvents returns a function that says something to the owner of a pod by an event
// of type Warning, without waiting for the API server: repetitions are counted in one
// event, and a pod gets only so many. It works until ctx ends; call stop then.
func (a *API) PodEvents(ctx context.Context, component, host string) (warn func(pod protocol.PodRef, reason, message string), stop func()) {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(eventSink{
		create: func(e *corev1.Event) error {
			ctx, cancel := bounded(ctx)
			defer cancel()
			return a.c.Create(ctx, e)
		},
		update: func(e *corev1.Event) error {
			ctx, cancel := bounded(ctx)
			defer cancel()
			return a.c.Update(ctx, e)
		},
		patch: func(e *corev1.Event, patch client.Patch) error {
			ctx, cancel := bounded(ctx)
			defer cancel()
			return a.c.Patch(ctx, e, patch)
		},
	})
	recorder := b.NewRecorder(a.c.Scheme(), corev1.EventSource{Component: component, Host: host})
	return func(pod protocol.PodRef, reason, message string) {
		recorder.Event(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
		}, corev1.EventTypeWarning, reason, message)
	}, b.Shutdown
}

// eventSink writes events.
type eventSink struct {
	create, update func(*corev1.Event) error
	patch          func(*corev1.Event, client.Patch) error
}

// Create implements [record.EventSink].
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	e = e.DeepCopy()
	return e, s.create(e)
}

// Update implements [record.EventSink].
func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	e = e.DeepCopy()
	return e, s.update(e)
}

// Patch implements [record.EventSink].
func (s eventSink) Patch(old *corev1.Event, patch []byte) (*corev1.Event, error) {
	e := old.DeepCopy()
	return e, s.patch(e, client.RawPatch(types.StrategicMergePatchType, patch))
}
