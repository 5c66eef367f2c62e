package main

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podOn returns a DaemonSet's pod of a revision. One that is not ready has not been
// scheduled: its node is in its affinity alone.
func podOn(node, revision string, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-" + node, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}}}
	if ready {
		p.Spec.NodeName = node
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return p
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Values: []string{node}}}}},
	}}}
	return p
}

// TestMissing: an installation lacks NotReady nodes, and may be called done without them,
// only where all others have the newest version, ready.
func TestMissing(t *testing.T) {
	revisions := []appsv1.ControllerRevision{
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "new"}}, Revision: 10},
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "old"}}, Revision: 9},
	}
	for name, tt := range map[string]struct {
		pods    []corev1.Pod
		desired int32
		want    []string
	}{
		"the dead node alone":                  {[]corev1.Pod{podOn("a", "new", true), podOn("dead", "old", false)}, 2, []string{"dead"}},
		"the dead node's pod waits":            {[]corev1.Pod{podOn("a", "new", true), podOn("dead", "new", false)}, 2, []string{"dead"}},
		"a live node has the old version":      {[]corev1.Pod{podOn("a", "old", true), podOn("dead", "new", false)}, 2, nil},
		"a live node is not ready":             {[]corev1.Pod{podOn("a", "new", false), podOn("dead", "old", false)}, 2, nil},
		"a node has no pod yet":                {[]corev1.Pod{podOn("a", "new", true), podOn("dead", "old", false)}, 3, nil},
		"two pods of the dead node count once": {[]corev1.Pod{podOn("a", "new", true), podOn("dead", "old", false), podOn("dead", "new", false)}, 3, nil},
		"nothing is missing":                   {[]corev1.Pod{podOn("a", "new", true)}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: tt.desired}}
			if got := missingOn(set, tt.pods, revisions, map[string]bool{"dead": true}); !slices.Equal(got, tt.want) {
				t.Errorf("missing on %q; want %q", got, tt.want)
			}
		})
	}
}

// TestIsGone: a node is waited for once, and not longer than whatever else is.
func TestIsGone(t *testing.T) {
	c := cluster{timeout: time.Minute, notReady: map[string]time.Time{"late": time.Now().Add(-30 * time.Second), "gone": time.Now().Add(-grace - time.Second)}}
	for _, tt := range []struct {
		node    string
		timeout time.Duration
		want    bool
	}{
		{"ready", time.Minute, false}, {"late", time.Minute, false}, {"gone", time.Minute, true}, {"late", 20 * time.Second, true},
	} {
		c.timeout = tt.timeout
		if got := c.isGone(tt.node); got != tt.want {
			t.Errorf("node %s, timeout %v: gone is %t; want %t", tt.node, tt.timeout, got, tt.want)
		}
	}
}

// TestProgress: what is said once is not said again, and what looks done and is not says why.
func TestProgress(t *testing.T) {
	deployment := func(s appsv1.DeploymentStatus) rollout {
		return rollout{object: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: s}}
	}
	for want, r := range map[string]rollout{
		"1 of 2 ready": deployment(appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 1, AvailableReplicas: 2}),
		"2 of 2 ready, and earlier ones have yet to end": deployment(appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 3}),
		"2 of 2 ready": deployment(appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}),
		"3 of 3 ready": {object: &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3}}},
		"2 of 3 ready": {object: &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 2, NumberAvailable: 3}}},
	} {
		if got := r.progress().text(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
