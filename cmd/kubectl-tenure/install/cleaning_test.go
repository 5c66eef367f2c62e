package install

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// agentSet returns the agent as it is shipped, with further arguments.
func agentSet(t *testing.T, args ...string) *appsv1.DaemonSet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "programs", "tenured.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	agent := &set.Spec.Template.Spec.Containers[0]
	agent.Args = append(agent.Args, args...)
	return &set
}

// TestTurn: what cleans has the agent's image, directories and flags, and the directory of plugins.
// A pod is ready when its node is clean.
func TestTurn(t *testing.T) {
	for name, tt := range map[string]struct {
		args     []string
		attaches bool
	}{
		"with Multus":                {[]string{"--store", "/data/tenured.db"}, false},
		"with the meta-plugin":       {[]string{"--cni-conf=/etc/tenure/cni/tenure.conflist", "--cni-conf-name=05-net.conflist"}, true},
		"with its flag in two words": {[]string{"--cni-conf", "/etc/tenure/cni/tenure.conflist"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			set := agentSet(t, tt.args...)
			if got := attaches(set); got != tt.attaches {
				t.Errorf("attaches = %v; want %v", got, tt.attaches)
			}
			agent := set.Spec.Template.Spec.Containers[0]
			turn(set, false)
			turn(set, true) // by force, the second time
			pod := set.Spec.Template.Spec
			if len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
				t.Fatalf("%d and %d containers; want one each", len(pod.InitContainers), len(pod.Containers))
			}
			clean, hold := pod.InitContainers[0], pod.Containers[0]
			if want := slices.Concat([]string{"uninstall", "--bin=/opt/cni/bin"}, tt.args, []string{"--force"}); !slices.Equal(clean.Args, want) {
				t.Errorf("it runs %q; want %q", clean.Args, want)
			}
			if clean.Image != agent.Image || hold.Image != agent.Image || !slices.Equal(hold.Args, []string{"uninstall", "--hold"}) {
				t.Errorf("it runs %s, then %s %q", clean.Image, hold.Image, hold.Args)
			}
			for _, m := range append(slices.Clone(agent.VolumeMounts), corev1.VolumeMount{Name: "plugins", MountPath: "/opt/cni/bin"}, corev1.VolumeMount{Name: "cni-conf", MountPath: "/etc/cni/net.d"}) {
				if !slices.ContainsFunc(clean.VolumeMounts, func(has corev1.VolumeMount) bool { return has.Name == m.Name && has.MountPath == m.MountPath }) {
					t.Errorf("%s is not mounted", m.MountPath)
				}
			}
			if set.Labels["tenure.dev/uninstall"] != "true" {
				t.Error("nothing tells that the agents have ended")
			}
		})
	}
}

// TestRest: how the rest is removed depends on how Tenure was installed.
func TestRest(t *testing.T) {
	u, set := &uninstall{Session: &session.Session{}}, agentSet(t)
	if text := u.rest(set); !strings.Contains(text, "kubectl delete --ignore-not-found -f") || strings.Contains(text, "helm") {
		t.Errorf("of the rest it says %q; want no word of Helm", text)
	}
	set.Annotations = map[string]string{releaseAnnotation: "net"}
	u.Kubeconfig, u.Overrides.CurrentContext = "other.conf", "staging"
	if text := u.rest(set); !strings.Contains(text, "helm --kubeconfig other.conf --kube-context staging uninstall net --namespace tenure-system") ||
		!strings.Contains(text, "kubectl --kubeconfig other.conf --context staging delete namespace") {
		t.Errorf("of the rest it says %q; want how Helm removes its release net of that cluster", text)
	}
}

// TestCleaningOf: a node is done when the pod that cleans it is ready and no other pod of Tenure's
// is there. Of each other one it says why.
func TestCleaningOf(t *testing.T) {
	pod := func(program, node string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: program + "-1"}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: program}}}}
	}
	done := pod(holds, "a")
	done.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	refused := pod(holds, "b")
	refused.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "pods of this node have networks\n"}},
	}}
	waits := pod(holds, "")
	waits.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Values: []string{"c"}}}}},
	}}}
	waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
	for name, tt := range map[string]struct {
		status appsv1.DaemonSetStatus
		pods   []corev1.Pod
		want   map[string]string
		done   bool
	}{
		"all clean":                        {appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 1, NumberReady: 1, UpdatedNumberScheduled: 1}, []corev1.Pod{done}, map[string]string{}, true},
		"the controller has not seen it":   {appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1, NumberReady: 1, UpdatedNumberScheduled: 1}, []corev1.Pod{done}, map[string]string{}, false},
		"a pod of an earlier one is ready": {appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 1, NumberReady: 1}, []corev1.Pod{done}, map[string]string{}, false},
		"a program has not ended": {
			appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 1, NumberReady: 1, UpdatedNumberScheduled: 1},
			[]corev1.Pod{done, pod(controllerName, "a")}, map[string]string{"a": "pod tenure-controller-1 has not ended"}, false,
		},
		"each node has its reason": {
			appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 5, NumberReady: 1, UpdatedNumberScheduled: 5},
			[]corev1.Pod{done, refused, waits, pod(agentName, "c"), pod(agentName, "dead"), pod(holds, "e")},
			map[string]string{
				"b": "exit code 1: pods of this node have networks", "c": "pod tenured-1 has not ended", "dead": "the node is not Ready",
				"e": "its pod hold-1 does not say why",
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: tt.status}
			got := cleaningOf(set, tt.pods, map[string]bool{"dead": true})
			if !maps.Equal(got.obstacles, tt.want) || got.done() != tt.done {
				t.Errorf("not clean: %q, done %t; want %q, %t", got.obstacles, got.done(), tt.want, tt.done)
			}
		})
	}
}
