package install

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// uninstallLabel is on the agents' DaemonSet while its pods clean their nodes, and on the namespace
// when all are clean.
const uninstallLabel = "tenure.dev/uninstall"

// releaseAnnotation says of which release of Helm's an object is.
const releaseAnnotation = "meta.helm.sh/release-name"

// holds is the container of a pod whose node is clean.
const holds = "hold"

// turn has the agents' pods clean their nodes: an init container, with what the agent has, runs
// `tenured uninstall` with the agent's flags. Then a pod does nothing until it is deleted.
func turn(agents *appsv1.DaemonSet, force bool) {
	pod := &agents.Spec.Template.Spec
	if agents.Labels[uninstallLabel] == "" {
		clean, install := pod.Containers[0], pod.InitContainers[0]
		bin := mountOf(install, "plugins")
		clean.Name, clean.Ports, clean.LivenessProbe, clean.ReadinessProbe = "uninstall", nil, nil, nil
		clean.Args = append([]string{"uninstall", "--bin=" + bin.MountPath}, clean.Args...)
		clean.SecurityContext = install.SecurityContext
		clean.VolumeMounts = append(slices.Clone(clean.VolumeMounts), bin)
		if mountOf(clean, "cni-conf").Name == "" { // an agent that keeps no configuration now may have left one
			conf, kind := "/etc/cni/net.d", corev1.HostPathDirectoryOrCreate
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "cni-conf", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: conf, Type: &kind}}})
			clean.VolumeMounts = append(clean.VolumeMounts, corev1.VolumeMount{Name: "cni-conf", MountPath: conf})
		}
		hold := clean
		hold.Name, hold.Args, hold.VolumeMounts = holds, []string{"uninstall", "--hold"}, nil
		pod.InitContainers, pod.Containers = []corev1.Container{clean}, []corev1.Container{hold}
		all := intstr.FromString("100%")
		agents.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &all}}
		metav1.SetMetaDataLabel(&agents.ObjectMeta, uninstallLabel, "true")
	}
	if clean := &pod.InitContainers[0]; force && !slices.Contains(clean.Args, "--force") {
		clean.Args = append(clean.Args, "--force")
	}
}

// mountOf returns where a container mounts a volume, nothing if it does not.
func mountOf(c corev1.Container, volume string) corev1.VolumeMount {
	for _, m := range c.VolumeMounts {
		if m.Name == volume {
			return m
		}
	}
	return corev1.VolumeMount{}
}

// attaches reports whether agents keep a configuration of tenure-attach's.
func attaches(agents *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(agents.Spec.Template.Spec.Containers[0].Args, func(a string) bool {
		return a == "--cni-conf" || strings.HasPrefix(a, "--cni-conf=")
	})
}

// cleaning is how far the cleaning of the nodes is.
type cleaning struct {
	clean, nodes int32
	seen         bool // the DaemonSet's controller knows of it
	// obstacles say by node why it is not clean yet.
	obstacles map[string]string
}

func (c cleaning) done() bool { return c.seen && c.clean == c.nodes && len(c.obstacles) == 0 }

// cleaningOf judges the agents' DaemonSet, which cleans, and the pods of Tenure's programs. The
// nodes in away are not Ready.
func cleaningOf(agents *appsv1.DaemonSet, pods []corev1.Pod, away map[string]bool) cleaning {
	s := agents.Status
	c := cleaning{
		clean: min(s.NumberReady, s.UpdatedNumberScheduled), nodes: s.DesiredNumberScheduled,
		seen: s.ObservedGeneration >= agents.Generation, obstacles: map[string]string{},
	}
	for i := range pods {
		p := &pods[i]
		node, cleans := nodeOf(p), p.Spec.Containers[0].Name == holds
		switch {
		case cleans && isReady(p):
		case away[node]:
			c.obstacles[node] = "the node is not Ready"
		case cleans:
			c.obstacles[node] = cmp.Or(c.obstacles[node], obstacle(p), "its pod "+p.Name+" does not say why")
		default:
			c.obstacles[node] = fmt.Sprintf("pod %s has not ended", p.Name)
		}
	}
	return c
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// nodeOf returns the node that a pod runs on, or that a DaemonSet's pod waits for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return p.Spec.NodeName
	}
	if required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for _, term := range required.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return ""
}

// obstacle says why a pod that cleans is not ready: what its container said when it failed, what
// it waits for, or why the pod was not scheduled.
func obstacle(p *corev1.Pod) (why string) {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			why = condition.Message
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Message != "" {
			why = w.Reason + ": " + w.Message
		}
		for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
			if t := state.Terminated; t != nil && t.ExitCode != 0 {
				return strings.TrimSpace(fmt.Sprintf("exit code %d: %s", t.ExitCode, t.Message))
			}
		}
	}
	return why
}

// rest says what removes the rest of Tenure from the cluster that this was about. The agents tell
// how Tenure was installed.
func (u *uninstall) rest(agents *appsv1.DaemonSet) string {
	kubectl, helm := "kubectl", "helm"
	if u.Kubeconfig != "" {
		kubectl, helm = kubectl+" --kubeconfig "+u.Kubeconfig, helm+" --kubeconfig "+u.Kubeconfig
	}
	if c := u.Overrides.CurrentContext; c != "" {
		kubectl, helm = kubectl+" --context "+c, helm+" --kube-context "+c
	}
	text := "This removes what is left of Tenure in the cluster:\n\n"
	if agents != nil && agents.Annotations[releaseAnnotation] != "" {
		return text + fmt.Sprintf("    %s uninstall %s --namespace %s\n    %s delete namespace %s\n    %s delete crd interfaceparameters.tenure.dev ipleases.tenure.dev ippools.tenure.dev ipreservations.tenure.dev ipsubleases.tenure.dev podnetworkattachments.tenure.dev podnetworks.tenure.dev",
			helm, agents.Annotations[releaseAnnotation], namespace, kubectl, namespace, kubectl)
	}
	return text + fmt.Sprintf("    %s delete --ignore-not-found -f FILE      # the manifest that was applied, or -k deploy", kubectl)
}
