package vifs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

const (
	// recheckAfter is when a pod is looked at again of whose trouble no event tells the end.
	recheckAfter = 30 * time.Second
	// reportDelay is how long a fault that may pass in a moment is kept from people.
	reportDelay = 5 * time.Second
	// soon is when the cache shows what somebody else has written meanwhile.
	soon = 50 * time.Millisecond
	// maxEvents is how many faults of one look are told by Events of their own.
	maxEvents = 5
)

// Reconciler looks after the claims of pods, and their maps. On the way that needs no mending it
// makes one call for each claim, and one for the map in all its words.
type Reconciler struct {
	// Cache has pods with the annotations of [Few], claims with their owners, pools and
	// definitions. It has the indices of [Index].
	Cache client.Reader
	// Live reads and writes at the API server.
	Live client.Client
	// PortShown reports whether Neutron has shown a port as that of the claim with this UID. What
	// the claim's annotation tells is not believed before.
	PortShown func(claim types.UID, port vif.Port) bool
	Events    events.EventRecorder
	Log       *slog.Logger
	Now       func() time.Time
	// Kuryr says that pods get the map in Kuryr's words as well.
	Kuryr bool

	reported reported.Faults[trouble] // of pods
}

// trouble is a fault of one pod: another of its name is told of it anew.
type trouble struct {
	pod types.UID
	fault
}

// Reconcile looks at one pod.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := r.Cache.Get(ctx, req.NamespacedName, &pod); err != nil {
		r.reported.Forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if pod.DeletionTimestamp != nil || ended(&pod) {
		return reconcile.Result{}, nil
	}
	f, err := r.facts(ctx, &pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := decide(f)
	for _, w := range p.create {
		var why *fault
		if why, err = r.create(ctx, f, w); why != nil {
			p.faults = append(p.faults, *why)
		}
		if err != nil {
			break
		}
	}
	again := false
	if err == nil && len(p.write) > 0 {
		var why *fault
		if why, again, err = r.write(ctx, &pod, p.write); why != nil {
			p.faults = append(p.faults, *why)
		}
	}
	waits := r.tell(ctx, &pod, p.faults)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case again:
		return reconcile.Result{RequeueAfter: soon}, nil
	case waits || len(p.create) > 0: // of a claim that gets nothing no event tells
		return reconcile.Result{RequeueAfter: reportDelay}, nil
	case len(p.faults) > 0:
		return reconcile.Result{RequeueAfter: recheckAfter}, nil
	}
	return reconcile.Result{}, nil
}

// ended reports whether a pod runs no more, and never again.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// create makes a claim. One that is there already has to be the pod's.
func (r *Reconciler) create(ctx context.Context, f facts, w wanted) (*fault, error) {
	o := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: w.name, Labels: map[string]string{vif.LabelClaim: string(f.uid)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: f.name, UID: f.uid}},
		},
		Spec: ipamclaims.IPAMClaimSpec{Network: w.network, Interface: w.ifName},
	}
	if w.requested != "" {
		o.Annotations = map[string]string{workload.AnnotationRequested: w.requested}
	}
	err := kube.Call(ctx, func(ctx context.Context) error { return r.Live.Create(ctx, o) })
	switch out := kube.Classify(err); {
	case out == protocol.Done:
		return nil, nil //nolint:nilnil // nothing to tell
	case out == protocol.Exists:
		return r.adopt(ctx, f, w)
	case out == protocol.Refused:
		return &fault{ReasonNotReady, fmt.Sprintf("interface %s: IPAMClaim %s is not made: %v", w.ifName, w.name, err), "", w.name, false}, fmt.Errorf("make claim %s/%s: %w", f.namespace, w.name, err)
	}
	return nil, fmt.Errorf("make claim %s/%s: %w", f.namespace, w.name, err)
}

// adopt looks at the claim that has the name of one that is to be made: another leader's, or one
// that the cache does not show yet, is as good.
func (r *Reconciler) adopt(ctx context.Context, f facts, w wanted) (*fault, error) {
	var o ipamclaims.IPAMClaim
	err := kube.Call(ctx, func(ctx context.Context) error {
		return r.Live.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: w.name}, &o)
	})
	if err != nil {
		return nil, fmt.Errorf("read claim %s/%s: %w", f.namespace, w.name, err)
	}
	e := element{ifName: w.ifName, network: &network{name: w.network}, claim: claimOf(&o)}
	if why := e.notOurs(f); why != "" {
		return &fault{ReasonTaken, fmt.Sprintf("interface %s: IPAMClaim %s %s", w.ifName, w.name, why), "", w.name, false}, nil
	}
	return nil, nil //nolint:nilnil // likewise
}

// write writes annotations of a pod, if this is still as it was seen. again says that it is not.
func (r *Reconciler) write(ctx context.Context, pod *corev1.Pod, annotations map[string]string) (why *fault, again bool, err error) {
	seen := kube.MetaOf(pod)
	patch, err := kube.SwapPatch(seen, map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return nil, false, err //nolint:wrapcheck // says what it is about
	}
	into := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = kube.Call(ctx, func(ctx context.Context) error { return r.Live.Patch(ctx, into, patch) })
	switch out := kube.Classify(err); {
	case out == protocol.Done || out == protocol.NotFound:
		return nil, false, nil
	case out == protocol.Conflict:
		return nil, true, nil
	case out == protocol.Refused:
		why = &fault{reason: ReasonNotReady, message: fmt.Sprintf("the map of its interfaces is not written: %v", err)}
	}
	return why, false, fmt.Errorf("write the map of pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// related returns what a fault is about beside the pod, nil if that is nothing alone: Events about
// a pod that differ in their words alone would be counted in one.
func related(namespace string, f fault) runtime.Object {
	if f.claim != "" {
		return &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: f.claim}}
	}
	if at, name, ok := strings.Cut(f.network, "/"); ok {
		return &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: at, Name: name}}
	}
	return nil
}

// tell makes Events of the faults that people were not told at the last look. waits says that there
// are some of which they are to be told only if they last.
func (r *Reconciler) tell(ctx context.Context, pod *corev1.Pod, faults []fault) (waits bool) {
	key := client.ObjectKeyFromObject(pod)
	all := make([]trouble, len(faults))
	for i, f := range faults {
		all[i] = trouble{pod.UID, f}
	}
	due, wait := r.reported.Due(key, r.Now(), trouble.reportDelay, all...)
	for i, f := range due {
		if i < maxEvents {
			// The API server takes 1 KiB.
			r.Events.Eventf(pod, related(pod.Namespace, f.fault), corev1.EventTypeWarning, f.reason, "MakeVIFs", "%.1000s", f.message)
		}
		r.Log.WarnContext(ctx, "interfaces of a pod", "pod", key.String(), "reason", f.reason, "message", f.message)
	}
	return wait > 0
}

// reportDelay is how long a fault has to last before people are told.
func (t trouble) reportDelay() time.Duration {
	if t.patient {
		return reportDelay
	}
	return 0
}
