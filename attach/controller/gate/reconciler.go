package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/judge"
)

const (
	// recheckAfter is when a pod is judged again that is refused. No event tells of a role that was
	// bound since.
	recheckAfter = 30 * time.Second
	// callTimeout is how long one call to the API server may take.
	callTimeout = 10 * time.Second
	// maxMessage is how long a condition's message is at most.
	maxMessage = 4096
)

// Reconciler lifts the gate of pods.
type Reconciler struct {
	// Cache has pods, of which those that list PodNetworks have their list, gates and conditions,
	// with the index of [Index]; and PodNetworkAttachments.
	Cache client.Reader
	// Live writes at the API server.
	Live   client.Client
	Known  judge.Known
	Events events.EventRecorder
	Log    *slog.Logger
	Now    func() time.Time
}

// A finding is what the condition of a pod is to say.
type finding struct{ reason, message string }

func (f finding) passes() bool { return f.reason == ReasonNetworksReady }

// Reconcile looks at one pod.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := r.Cache.Get(ctx, req.NamespacedName, &pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if !isGated(&pod) || pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	f, err := r.find(ctx, &pod)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("judge the PodNetworks of pod %s: %w", req, err)
	}
	if err := r.say(ctx, &pod, f); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case f.passes():
		return reconcile.Result{}, lift(ctx, r.Live, &pod)
	case f.reason == ReasonNetworksRefused:
		return reconcile.Result{RequeueAfter: recheckAfter}, nil
	}
	return reconcile.Result{}, nil
}

// find judges a pod.
func (r *Reconciler) find(ctx context.Context, pod *corev1.Pod) (finding, error) {
	elements, err := podnetwork.Parse(pod.Annotations[podnetwork.AnnotationNetworks])
	if err != nil {
		return finding{ReasonInvalidList, faultsOf(err) + ". A pod's list cannot be changed: delete the pod, and make it again with a right one"}, nil
	}
	verdicts, err := judge.List(ctx, r.Known, pod.Namespace, elements)
	if err != nil {
		return finding{}, err //nolint:wrapcheck // says what it is about
	}
	f := finding{reason: ReasonNetworksReady}
	var missing []string
	for i, v := range verdicts {
		if v.Refused == "" {
			continue
		}
		missing = append(missing, fmt.Sprintf("element %d: %s", i+1, v.Refused))
		if f.passes() {
			f.reason = ReasonNetworksNotReady
		}
		if !v.Later {
			f.reason = ReasonNetworksRefused
		}
	}
	if f.passes() {
		f.message = "the pod may be attached to all PodNetworks that it lists"
	} else {
		f.message = strings.Join(missing, "; ")
	}
	return f, nil
}

// say writes the pod's condition, and makes an Event, where they do not say so yet. Of a pod that
// never waited nothing is said.
func (r *Reconciler) say(ctx context.Context, pod *corev1.Pod, f finding) error {
	f.message = strings.ToValidUTF8(f.message[:min(len(f.message), maxMessage)], "")
	before := conditionOf(pod)
	if before.Type == "" && f.passes() || before.Reason == f.reason && before.Message == f.message {
		return nil
	}
	c := corev1.PodCondition{Type: ConditionNetworksReady, Status: corev1.ConditionFalse, Reason: f.reason, Message: f.message, LastTransitionTime: before.LastTransitionTime}
	if f.passes() {
		c.Status = corev1.ConditionTrue
	}
	if before.Status != c.Status {
		c.LastTransitionTime = metav1.NewTime(r.Now())
	}
	patch := map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"conditions": []any{c}},
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("write the condition of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = r.Live.Status().Patch(call, metaOf(pod), client.RawPatch(types.StrategicMergePatchType, text))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the condition of pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	if !f.passes() {
		// The API server takes 1 KiB.
		r.Events.Eventf(pod, nil, corev1.EventTypeWarning, f.reason, "WaitForPodNetworks", "%.1000s", f.message)
		r.Log.InfoContext(ctx, "a pod waits for its PodNetworks", "pod", pod.Namespace+"/"+pod.Name, "reason", f.reason, "message", f.message)
	}
	return nil
}

// lift removes the gate, and no other, from this very pod.
func lift(ctx context.Context, live client.Client, pod client.Object) error {
	patch := podnetwork.LiftPatch(string(pod.GetUID()))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := live.Patch(ctx, metaOf(pod), client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("lift the gate of pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err))
	}
	return nil
}

// metaOf names a pod. The API server's answer then has no more than the metadata.
func metaOf(pod client.Object) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: pod.GetName()}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return o
}
