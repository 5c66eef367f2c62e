package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// nameLabel says of a pod which program it runs.
const nameLabel = "app.kubernetes.io/name"

// releaseAnnotation says of which release of Helm's an object is.
const releaseAnnotation = "meta.helm.sh/release-name"

// tokenVolume is the volume that has the agent's token.
const tokenVolume = "token"

// cleanerOf returns the DaemonSet that cleans the nodes of the agent, with its image and in its
// directories. The init container runs `tenured uninstall`; then a pod does nothing until it is
// deleted. The agent's pod and the cleaner's keep off each other's nodes.
//
// It is an error if a volume is not there that stock Tenure has.
func cleanerOf(agent *appsv1.DaemonSet) (*appsv1.DaemonSet, error) {
	pod := agent.Spec.Template.Spec.DeepCopy()
	old, install := pod.Containers[0], pod.InitContainers[0]
	at := map[string]string{} // where the containers see them: a patch may have moved the host's directory alone
	for _, volume := range []string{"plugins", "state", "run", "cni-state"} {
		at[volume] = mountPath(volume, old, install)
		if at[volume] == "" || hostPath(agent, volume) == "" {
			return nil, fmt.Errorf("DaemonSet %s has no directory of the host for its volume %q: it is not known where on the nodes Tenure is", agent.Name, volume)
		}
	}
	attach, moved, err := movedFiles(agent, at)
	if err != nil {
		return nil, err
	}
	// A cleaner says nothing to the API server.
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == tokenVolume })
	mounts := slices.DeleteFunc(old.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == tokenVolume })
	for _, m := range install.VolumeMounts {
		if m.Name == "plugins" {
			mounts = append(mounts, m)
		}
	}
	// An agent that keeps no configuration now may have left one.
	conf := mountPath("cni-conf", old, install)
	if conf == "" {
		conf = "/etc/cni/net.d"
		kind := corev1.HostPathDirectoryOrCreate
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "cni-conf", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: conf, Type: &kind}}})
		mounts = append(mounts, corev1.VolumeMount{Name: "cni-conf", MountPath: conf})
	}
	no := false
	pod.ServiceAccountName, pod.DeprecatedServiceAccount, pod.AutomountServiceAccountToken = "", "", &no
	clean := old
	clean.Name, clean.Env, clean.Ports, clean.VolumeMounts = "uninstall", nil, nil, mounts
	clean.Args = append([]string{
		"uninstall", "--bin=" + at["plugins"], "--state=" + at["state"], "--run=" + at["run"],
		"--attach-state=" + attach, "--conf=" + filepath.Join(conf, confName(old.Args)),
	}, moved...)
	clean.LivenessProbe, clean.ReadinessProbe, clean.SecurityContext = nil, nil, install.SecurityContext
	hold := clean
	hold.Name, hold.Args, hold.VolumeMounts = "hold", []string{"uninstall", "--hold"}, nil
	pod.InitContainers, pod.Containers = []corev1.Container{clean}, []corev1.Container{hold}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: agentName}}, TopologyKey: corev1.LabelHostname,
	}}}
	labels := map[string]string{nameLabel: cleanerName, "app.kubernetes.io/part-of": "tenure"}
	all := intstr.FromString("100%")
	cleaner := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cleanerName, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: cleanerName}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &all}},
			Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: *pod},
		},
	}
	if release := agent.Annotations[releaseAnnotation]; release != "" {
		cleaner.Annotations = map[string]string{releaseAnnotation: release}
	}
	return cleaner, nil
}

// movedFiles returns the directory of tenure-attach, and the flags by which the agent was told to
// have its files elsewhere than is usual in the directories at.
func movedFiles(agent *appsv1.DaemonSet, at map[string]string) (attach string, flags []string, err error) {
	attach = filepath.Join(at["cni-state"], "tenure-attach")
	for _, f := range []struct{ name, usual string }{
		{"--attach-state", attach},
		{"--store", filepath.Join(at["state"], "agent", "store.db")}, {"--reports", filepath.Join(at["state"], "agent", "reports")},
		{"--journal", filepath.Join(at["state"], "journal")}, {"--socket", filepath.Join(at["run"], "agent.sock")},
	} {
		path, given := flagOf(agent.Spec.Template.Spec.Containers[0].Args, f.name)
		switch {
		case !given || path == f.usual:
		case onHost(agent, path) == "":
			return "", nil, fmt.Errorf("DaemonSet %s has %s=%s, which is in no directory of the host: it is not known where on the nodes that is", agent.Name, f.name, path)
		case f.name == "--attach-state":
			attach = path
		default:
			flags = append(flags, f.name+"="+path)
		}
	}
	return attach, flags, nil
}

// attaches reports whether an agent keeps a configuration of tenure-attach's.
func attaches(agent *appsv1.DaemonSet) bool {
	_, ok := flagOf(agent.Spec.Template.Spec.Containers[0].Args, "--cni-conf")
	return ok
}

// confName returns the name of the configuration that an agent with these arguments keeps.
func confName(args []string) string {
	name, _ := flagOf(args, "--cni-conf-name")
	return cmp.Or(name, "00-tenure.conflist")
}

// flagOf returns the value that a flag has among arguments, which have it in one word or in two.
func flagOf(args []string, flag string) (value string, ok bool) {
	for i, a := range args {
		if v, is := strings.CutPrefix(a, flag+"="); is {
			return v, true
		}
		if a == flag && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

// mountPath returns where the first of the containers that mounts a volume has it, empty if none
// does.
func mountPath(volume string, containers ...corev1.Container) string {
	for _, c := range containers {
		for _, m := range c.VolumeMounts {
			if m.Name == volume {
				return m.MountPath
			}
		}
	}
	return ""
}

// hostPath returns the host's directory that a volume of the agent is, empty if there is none.
func hostPath(agent *appsv1.DaemonSet, volume string) string {
	for _, v := range agent.Spec.Template.Spec.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

// onHost returns where on the host a path in the containers of a DaemonSet is, empty if that is in
// no directory of the host.
func onHost(set *appsv1.DaemonSet, path string) (on string) {
	longest := ""
	pod := set.Spec.Template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			below, err := filepath.Rel(m.MountPath, path)
			if err != nil || !filepath.IsLocal(below) || len(m.MountPath) < len(longest) {
				continue
			}
			longest, on = m.MountPath, ""
			if dir := hostPath(set, m.Name); dir != "" {
				on = filepath.Join(dir, m.SubPath, below)
			}
		}
	}
	return on
}

// cleaning is how far the cleaning of the nodes is.
type cleaning struct {
	clean, nodes int32
	seen         bool // the DaemonSet's controller knows of it
	// obstacles say by node why it is not clean yet.
	obstacles map[string]string
}

func (c cleaning) done() bool { return c.seen && c.clean == c.nodes && len(c.obstacles) == 0 }

// cleaningOf judges the DaemonSet that cleans, and the pods of Tenure's programs. The nodes in
// away are not Ready.
func cleaningOf(cleaner *appsv1.DaemonSet, pods []corev1.Pod, away map[string]bool) cleaning {
	s := cleaner.Status
	c := cleaning{
		clean: min(s.NumberReady, s.UpdatedNumberScheduled), nodes: s.DesiredNumberScheduled,
		seen: s.ObservedGeneration >= cleaner.Generation, obstacles: map[string]string{},
	}
	for i := range pods {
		p := &pods[i]
		node, program := nodeOf(p), p.Labels[nameLabel]
		switch {
		case program == cleanerName && isReady(p):
		case away[node]:
			c.obstacles[node] = "the node is not Ready"
		case program == cleanerName:
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

// obstacle says why a cleaner's pod is not ready: what its container said when it failed, what
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

// later says how nodes are cleaned that could not be.
func later(cleaner *appsv1.DaemonSet) string {
	args := cleaner.Spec.Template.Spec.InitContainers[0].Args
	conf, _ := flagOf(args, "--conf")
	attach, _ := flagOf(args, "--attach-state")
	on := func(volume, name string) string { return filepath.Join(hostPath(cleaner, volume), name) }
	// moved is where a file is that the flag may name, else the usual one.
	moved := func(flag, usual string) string {
		if path, ok := flagOf(args, flag); ok {
			return onHost(cleaner, path)
		}
		return usual
	}
	socket := moved("--socket", on("run", "agent.sock"))
	remove := []string{
		on("cni-conf", filepath.Base(conf)), on("plugins", "tenure"), on("plugins", "tenure-attach"), on("state", "agent"),
		moved("--journal", on("state", "journal")), socket, socket + ".*", filepath.Join(onHost(cleaner, attach), "*"),
	}
	if store := moved("--store", ""); store != "" {
		remove = append(remove, store, store+".*", filepath.Join(filepath.Dir(store), "reports"), filepath.Join(filepath.Dir(store), "cni-conf.json"))
	}
	if reports := moved("--reports", ""); reports != "" {
		remove = append(remove, reports)
	}
	return "With the configuration of tenure-attach no new pod starts on such a node before it is clean. When it is back, install\n" +
		"Tenure again as it was and uninstall it, or run there, when the agent has ended:\n\n    rm -rf " + strings.Join(remove, " ") + "\n"
}

// rest says what removes the rest of Tenure from the cluster that this was about. A cleaner tells
// how Tenure was installed.
func (u *uninstall) rest(cleaner *appsv1.DaemonSet) string {
	kubectl, helm := "kubectl", "helm"
	if u.kubeconfig != "" {
		kubectl, helm = kubectl+" --kubeconfig "+u.kubeconfig, helm+" --kubeconfig "+u.kubeconfig
	}
	if c := u.overrides.CurrentContext; c != "" {
		kubectl, helm = kubectl+" --context "+c, helm+" --kube-context "+c
	}
	text := "This removes what is left of Tenure in the cluster:\n\n"
	if cleaner != nil && cleaner.Annotations[releaseAnnotation] != "" {
		return text + fmt.Sprintf("    %s uninstall %s --namespace %s\n    %s delete namespace %s\n    %s delete crd interfaceparameters.tenure.dev ipleases.tenure.dev ippools.tenure.dev ipreservations.tenure.dev ipsubleases.tenure.dev podnetworkattachments.tenure.dev podnetworks.tenure.dev",
			helm, cleaner.Annotations[releaseAnnotation], namespace, kubectl, namespace, kubectl)
	}
	return text + fmt.Sprintf("    %s delete --ignore-not-found -f FILE      # the manifest that was applied, or -k deploy", kubectl)
}
