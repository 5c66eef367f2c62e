package main

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
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// agentSet returns the agent as it is shipped, with further arguments.
func agentSet(t *testing.T, args ...string) *appsv1.DaemonSet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "programs", "tenured.yaml"))
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

// TestCleaner: the cleaner has the agent's directories and image, and keeps off the agent's
// nodes. By whom the agent was installed decides how the rest is removed.
func TestCleaner(t *testing.T) {
	for name, tt := range map[string]struct {
		args     []string
		conf     string
		attaches bool
	}{
		"with Multus":                          {nil, "--conf=/etc/cni/net.d/00-tenure.conflist", false},
		"with Multus, and a name in two words": {[]string{"--cni-conf-name", "07-net.conflist"}, "--conf=/etc/cni/net.d/07-net.conflist", false},
		"with the meta-plugin":                 {[]string{"--cni-conf=/etc/tenure/cni/tenure.conflist", "--cni-conf-name=05-net.conflist"}, "--conf=/etc/cni/net.d/05-net.conflist", true},
	} {
		t.Run(name, func(t *testing.T) {
			agent := agentSet(t, tt.args...)
			cleaner, err := cleanerOf(agent)
			if err != nil {
				t.Fatal(err)
			}
			u := &uninstall{session: &session{}}
			if got := attaches(agent); got != tt.attaches {
				t.Errorf("attaches = %v; want %v", got, tt.attaches)
			}
			pod := cleaner.Spec.Template.Spec
			want := []string{"uninstall", "--bin=/opt/cni/bin", "--state=/var/lib/tenure", "--run=/run/tenure", "--attach-state=/var/lib/cni/tenure-attach", tt.conf}
			if got := pod.InitContainers[0].Args; !slices.Equal(got, want) {
				t.Errorf("it runs %q; want %q", got, want)
			}
			if got, want := pod.InitContainers[0].Image, agent.Spec.Template.Spec.Containers[0].Image; got != want {
				t.Errorf("its image is %s; want the agent's, %s", got, want)
			}
			mounted := map[string]bool{}
			for _, m := range pod.InitContainers[0].VolumeMounts {
				mounted[m.MountPath] = true
			}
			for _, arg := range want[1:5] {
				if _, dir, _ := strings.Cut(arg, "="); !mounted[dir] && !mounted[filepath.Dir(dir)] {
					t.Errorf("%s is not mounted", dir)
				}
			}
			if mounted["/var/run/secrets/kubernetes.io/serviceaccount"] {
				t.Error("it has a token")
			}
			if !mounted["/etc/cni/net.d"] {
				t.Error("the directory of configurations is not mounted")
			}
			if !keepsOff(pod, agent.Spec.Template.Labels) {
				t.Error("it may run on a node beside the agent")
			}
			_, conf, _ := strings.Cut(tt.conf, "=")
			if want := "rm -rf " + conf + " /opt/cni/bin/tenure /opt/cni/bin/tenure-attach /var/lib/tenure/agent /var/lib/tenure/journal /run/tenure/agent.sock /run/tenure/agent.sock.* /var/lib/cni/tenure-attach/*\n"; !strings.HasSuffix(later(cleaner), want) {
				t.Errorf("of nodes that were not cleaned it says %q; want %q at its end", later(cleaner), want)
			}
			if text := u.rest(cleaner); !strings.Contains(text, "kubectl delete --ignore-not-found -f") || strings.Contains(text, "helm") {
				t.Errorf("of the rest it says %q; want no word of Helm", text)
			}
			agent.Annotations = map[string]string{releaseAnnotation: "net"}
			u.kubeconfig, u.overrides.CurrentContext = "other.conf", "staging"
			byHelm, err := cleanerOf(agent)
			if text := u.rest(byHelm); err != nil || !strings.Contains(text, "helm --kubeconfig other.conf --kube-context staging uninstall net --namespace tenure-system") ||
				!strings.Contains(text, "kubectl --kubeconfig other.conf --context staging delete namespace") {
				t.Errorf("of the rest it says %q, %v; want how Helm removes its release net of that cluster", text, err)
			}
			if pod.ServiceAccountName != "" || *pod.AutomountServiceAccountToken {
				t.Error("it has the agent's credentials")
			}
		})
	}
}

// TestCleanerOfMovedFiles: the cleaner is told every path that the agent was told, and people where
// that is on the host.
func TestCleanerOfMovedFiles(t *testing.T) {
	moved := []string{"--store=/data/tenured.db", "--journal", "/data/late", "--socket=/run/tenure/s", "--reports=/data/told", "--attach-state=/data/attach"}
	agent := agentSet(t, moved...)
	if _, err := cleanerOf(agent); err == nil || !strings.Contains(err.Error(), "=/data/attach, which is in no directory of the host") {
		t.Errorf("%v; want it refused", err)
	}
	pod := &agent.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/mnt/disk"}}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	cleaner, err := cleanerOf(agent)
	if err != nil {
		t.Fatal(err)
	}
	args := cleaner.Spec.Template.Spec.InitContainers[0].Args
	for _, want := range []string{"--store=/data/tenured.db", "--journal=/data/late", "--socket=/run/tenure/s", "--reports=/data/told", "--attach-state=/data/attach"} {
		if !slices.Contains(args, want) {
			t.Errorf("it runs %q; want %s", args, want)
		}
	}
	for _, want := range []string{"/mnt/disk/tenured.db", "/mnt/disk/tenured.db.*", "/mnt/disk/late", "/run/tenure/s", "/run/tenure/s.*", "/mnt/disk/told", "/mnt/disk/attach/*"} {
		if !slices.Contains(strings.Fields(later(cleaner)), want) {
			t.Errorf("of nodes that were not cleaned it says %q; want %s", later(cleaner), want)
		}
	}
}

// TestCleanerOfMovedDirectories: where the host's directory alone has been moved, the cleaner looks
// where it is mounted, and a person is told the host's.
func TestCleanerOfMovedDirectories(t *testing.T) {
	agent := agentSet(t)
	for i, v := range agent.Spec.Template.Spec.Volumes {
		if v.Name == "state" {
			agent.Spec.Template.Spec.Volumes[i].HostPath.Path = "/data/tenure"
		}
	}
	cleaner, err := cleanerOf(agent)
	if err != nil {
		t.Fatal(err)
	}
	if args := cleaner.Spec.Template.Spec.InitContainers[0].Args; !slices.Contains(args, "--state=/var/lib/tenure") {
		t.Errorf("it runs %q; want the state where it is mounted", args)
	}
	if text := later(cleaner); !strings.Contains(text, " /data/tenure/agent ") {
		t.Errorf("of nodes that were not cleaned it says %q; want the host's directory", text)
	}
	agent.Spec.Template.Spec.Volumes = slices.DeleteFunc(agent.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "run" })
	if _, err := cleanerOf(agent); err == nil || !strings.Contains(err.Error(), `volume "run"`) {
		t.Errorf("without a volume: %v", err)
	}
}

// keepsOff reports whether a pod may not be on a node where one with the labels is.
func keepsOff(pod corev1.PodSpec, set labels.Set) bool {
	return slices.ContainsFunc(pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(term corev1.PodAffinityTerm) bool {
		return term.TopologyKey == corev1.LabelHostname && labels.SelectorFromSet(term.LabelSelector.MatchLabels).Matches(set)
	})
}

// TestCleaningOf: a node is done when its cleaner's pod is ready and no other pod of Tenure's is
// there. Of each other one it says why.
func TestCleaningOf(t *testing.T) {
	pod := func(program, node string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: program + "-1", Labels: map[string]string{nameLabel: program}}, Spec: corev1.PodSpec{NodeName: node}}
	}
	done := pod(cleanerName, "a")
	done.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	refused := pod(cleanerName, "b")
	refused.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "pods of this node have networks\n"}},
	}}
	waits := pod(cleanerName, "")
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
			[]corev1.Pod{done, refused, waits, pod(agentName, "c"), pod(agentName, "dead"), pod(cleanerName, "e")},
			map[string]string{
				"b": "exit code 1: pods of this node have networks", "c": "pod tenured-1 has not ended", "dead": "the node is not Ready",
				"e": "its pod tenure-uninstall-1 does not say why",
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
