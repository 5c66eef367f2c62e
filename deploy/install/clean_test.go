package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// agentSet returns the agent as it is shipped, with further arguments.
func agentSet(t *testing.T, args ...string) *appsv1.DaemonSet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "programs", "tenured.yaml"))
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

// TestCleaner: the cleaner has the agent's directories and image, keeps off the agent's
// nodes, and remembers whether tenure-attach was installed, by the argument alone.
func TestCleaner(t *testing.T) {
	for name, tt := range map[string]struct {
		args     []string
		conf     string
		attaches bool
	}{
		"with Multus":          {nil, "--conf=/etc/cni/net.d/00-tenure.conflist", false},
		"with the meta-plugin": {[]string{"--cni-conf=/etc/tenure/cni/tenure.conflist", "--cni-conf-name=05-net.conflist"}, "--conf=/etc/cni/net.d/05-net.conflist", true},
	} {
		t.Run(name, func(t *testing.T) {
			agent := agentSet(t, tt.args...)
			cleaner := cleanerOf(agent)
			if got := (record{cleaner: cleaner}).attaches(); got != tt.attaches {
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
			if !mounted["/etc/cni/net.d"] {
				t.Error("the directory of configurations is not mounted")
			}
			if !keepsOff(pod, agent.Spec.Template.Labels) {
				t.Error("it may run on a node beside the agent")
			}
			later := (record{cleaner: cleaner}).later()
			_, conf, _ := strings.Cut(tt.conf, "=")
			if want := "rm -rf " + conf + " /opt/cni/bin/tenure /opt/cni/bin/tenure-attach /var/lib/tenure/agent /var/lib/tenure/journal /run/tenure/* /var/lib/cni/tenure-attach/*"; !strings.HasSuffix(later, want) {
				t.Errorf("of nodes that were not cleaned it says %q; want %q at its end", later, want)
			}
			if strings.Contains(later, "No new pod starts") != tt.attaches {
				t.Errorf("of nodes that were not cleaned it says %q; want it to speak of new pods only with tenure-attach", later)
			}
			if pod.ServiceAccountName != "" || *pod.AutomountServiceAccountToken {
				t.Error("it has the agent's credentials")
			}
		})
	}
}

// keepsOff reports whether a pod may not be on a node where one with the labels is.
func keepsOff(pod corev1.PodSpec, set labels.Set) bool {
	return slices.ContainsFunc(pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(term corev1.PodAffinityTerm) bool {
		return term.TopologyKey == corev1.LabelHostname && labels.SelectorFromSet(term.LabelSelector.MatchLabels).Matches(set)
	})
}

func TestSplit(t *testing.T) {
	const text = "kind: Namespace\nmetadata: {name: a}\n---\nkind: Deployment\nspec: {replicas: 2}\n---\nkind: DaemonSet\n"
	these, others, err := split([]byte(text), func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	if err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string][]byte{"Deployment": these, "Namespace DaemonSet": others} {
		objects, err := parse(got)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, o := range objects {
			kinds = append(kinds, o.GetKind())
		}
		if strings.Join(kinds, " ") != want {
			t.Errorf("got %q; want %s", kinds, want)
		}
	}
	if !strings.Contains(string(these), `"replicas":2`) {
		t.Errorf("%s: replicas are not 2", these)
	}
}
