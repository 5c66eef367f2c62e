package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Events tells people of pods and nodes, by events of type Warning. It waits for
// nobody: what the API server has not taken after some tries is lost. Repetitions are
// counted in one event, and a pod or a node gets only so many. Safe for concurrent
// use.
type Events struct {
	recorder record.EventRecorder
	shutDown func()
}

// Events returns what writes events in the name of component on host. It works until
// ctx ends; call Stop then.
func (a *API) Events(ctx context.Context, component, host string) *Events {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(eventSink{
		create: func(e *corev1.Event) error {
			ctx, cancel := withTimeout(ctx)
			defer cancel()
			return notYet(a.c.Create(ctx, e))
		},
		update: func(e *corev1.Event) error {
			ctx, cancel := withTimeout(ctx)
			defer cancel()
			return notYet(a.c.Update(ctx, e))
		},
		patch: func(e *corev1.Event, patch client.Patch) error {
			ctx, cancel := withTimeout(ctx)
			defer cancel()
			return notYet(a.c.Patch(ctx, e, patch))
		},
	})
	return &Events{recorder: b.NewRecorder(a.c.Scheme(), corev1.EventSource{Component: component, Host: host}), shutDown: b.Shutdown}
}

// notYet has the recorder try again later, some times, where the API server cannot serve
// now: it takes every answer for final whose type it knows. One that starts forbids
// everything until it has read who may do what, and that is when agents have something to
// say.
func notYet(err error) error {
	starting := apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsUnauthorized(err)
	if err != nil && (starting || away(err)) {
		return fmt.Errorf("the API server does not take it now: %w", err)
	}
	return err
}

// Stop ends what e does in the background.
func (e *Events) Stop() { e.shutDown() }

// WarnPod says something to the owner of a pod.
func (e *Events) WarnPod(pod protocol.PodRef, reason, message string) {
	e.recorder.Event(referenceTo(pod), corev1.EventTypeWarning, reason, message)
}

// NotePod says to the owner of a pod what is no warning.
func (e *Events) NotePod(pod protocol.PodRef, reason, message string) {
	e.recorder.Event(referenceTo(pod), corev1.EventTypeNormal, reason, message)
}

func referenceTo(pod protocol.PodRef) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}
}

// WarnNode says something to whoever looks after a node; uid is the Node's. The event
// lies in the namespace default, as all of nodes do.
func (e *Events) WarnNode(name protocol.NodeName, uid protocol.UID, reason, message string) {
	e.recorder.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Node", Name: string(name), UID: types.UID(uid),
	}, corev1.EventTypeWarning, reason, message)
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
