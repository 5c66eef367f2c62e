package state

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// Missed returns the networks that a pod selects, where its present sandbox has none of them:
// nobody has said that he attached it. since is when the sandbox was made, as far as is known.
func Missed(o *corev1.Pod) (selected []string, since time.Time) {
	if o.Spec.HostNetwork || len(o.Status.PodIPs) == 0 || noSandbox(o) || npwg.StatusIsOf(o.Annotations[npwg.AnnotationStatus], PodIPs(o)) {
		return nil, time.Time{}
	}
	if o.Status.StartTime != nil {
		since = o.Status.StartTime.Time
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			since = c.LastTransitionTime.Time
		}
	}
	return selectedBy(o), since
}

// Waits returns the networks that a pod selects, where it has not all of them: its node has not
// said that it attached it.
func Waits(o *corev1.Pod) []string {
	if lacks, _ := Missed(o); len(lacks) > 0 {
		return lacks
	}
	if o.Spec.HostNetwork || o.DeletionTimestamp != nil || o.Status.Phase != corev1.PodPending || len(o.Status.PodIPs) > 0 && !noSandbox(o) {
		return nil
	}
	return selectedBy(o)
}

// selectedBy returns what a pod selects beside the default network.
func selectedBy(o *corev1.Pod) []string {
	return plan.Selected(facts.Pod{PodRef: facts.PodRef{Namespace: o.Namespace, Name: o.Name}, Annotations: o.Annotations})
}

// PodIPs are the addresses of a pod on the default network.
func PodIPs(o *corev1.Pod) (addrs []netip.Addr) {
	for _, ip := range o.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// StatusOf reads a pod's status annotation.
func StatusOf(pod metav1.Object) (status []nad.NetworkStatus, err error) {
	text := pod.GetAnnotations()[npwg.AnnotationStatus]
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, fmt.Errorf("annotation %s does not read: %w", npwg.AnnotationStatus, err)
	}
	return status, nil
}

// noSandbox reports whether the kubelet says that a pod has no sandbox with a network. Its
// status annotation is then of one that it had, or is only about to have.
func noSandbox(o *corev1.Pod) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse
	})
}

// Unfinished selects pods that run, or will.
var Unfinished = fields.ParseSelectorOrDie(fmt.Sprintf("status.phase!=%s,status.phase!=%s", corev1.PodSucceeded, corev1.PodFailed))
