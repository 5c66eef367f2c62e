package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cleanerName is the name of the DaemonSet that cleans nodes.
const cleanerName = "tenure-uninstall"

// Names of volumes of the agent's.
const (
	pluginsVolume = "plugins"
	confVolume    = "cni-conf"
)

// cleanNodes runs `tenured uninstall` on every node, and waits until each has answered.
// A node that refuses, as a pod of its still has a network, keeps all of it. Whether all
// nodes are clean is known after it alone: one that is at work already may be another's,
// of other flags, and is replaced.
func (c *cluster) cleanNodes(ctx context.Context, cleaner *appsv1.DaemonSet, force bool) (clean bool, err error) {
	if err := c.deleteProgram(ctx, cleanerObject(), force); err != nil {
		return false, err
	}
	cleaner = cleaner.DeepCopy()
	if init := &cleaner.Spec.Template.Spec.InitContainers[0]; force {
		init.Args = append(init.Args, "--force")
	}
	if err := c.Create(ctx, cleaner); err != nil {
		return false, fmt.Errorf("create %s: %w", cleanerName, err)
	}
	away, err := c.await(ctx, rollout{new(appsv1.DaemonSet), cleanerName})
	if err == nil && len(away) > 0 {
		err = fmt.Errorf("nodes that are NotReady do not answer: %s", strings.Join(away, ", "))
	}
	if err != nil && (!force || ctx.Err() != nil) {
		return false, fmt.Errorf("%w. The nodes named are not clean yet, and their pods get no addresses; run it again when the cause is gone, with FORCE=1 to do without them, or install Tenure again", err)
	}
	if err != nil {
		c.say("not clean: %v", err)
	}
	return err == nil, c.deleteProgram(ctx, cleanerObject(), force)
}

// stopCleaner ends what cleans the nodes, and forgets how, where an uninstallation was
// broken off: it would clean them again, of what is installed now. A node that does not
// answer does not stand in the way: its kubelet ends there what the cluster has forgotten.
func (c *cluster) stopCleaner(ctx context.Context) error {
	if err := c.deleteProgram(ctx, cleanerObject(), true); err != nil {
		return err
	}
	if err := c.Delete(ctx, recordObject()); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ConfigMap %s: %w", cleanerName, err)
	}
	return nil
}

// cleanerObject names the DaemonSet that cleans nodes.
func cleanerObject() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cleanerName}}
}

// cleanerOf returns the DaemonSet that cleans the nodes of the agent, with its image and
// in its directories: the init container does it, and then nothing is done until it is
// deleted. It says whether the agent kept a configuration of tenure-attach's.
func cleanerOf(agent *appsv1.DaemonSet) *appsv1.DaemonSet {
	pod := agent.Spec.Template.Spec.DeepCopy()
	old, init := pod.Containers[0], pod.InitContainers[0]
	mounts := old.VolumeMounts
	for _, m := range init.VolumeMounts {
		if m.Name == pluginsVolume {
			mounts = append(mounts, m)
		}
	}
	args := []string{
		"uninstall", "--bin=" + hostPath(agent, pluginsVolume), "--state=" + hostPath(agent, "state"), "--run=" + hostPath(agent, "run"),
		"--attach-state=" + filepath.Join(hostPath(agent, "cni-state"), "tenure-attach"),
	}
	// One that is no longer installed may have left its configuration.
	dir := hostPath(agent, confVolume)
	if dir == "" {
		dir = "/etc/cni/net.d"
		kind := corev1.HostPathDirectoryOrCreate
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: confVolume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}}})
		mounts = append(mounts, corev1.VolumeMount{Name: confVolume, MountPath: dir})
	}
	args = append(args, "--conf="+filepath.Join(dir, confName(old.Args)))
	no := false
	pod.ServiceAccountName, pod.DeprecatedServiceAccount, pod.AutomountServiceAccountToken = "", "", &no
	clean := old
	clean.Name, clean.Args, clean.Env, clean.Ports, clean.VolumeMounts = "uninstall", args, nil, nil, mounts
	clean.LivenessProbe, clean.ReadinessProbe, clean.SecurityContext = nil, nil, init.SecurityContext
	hold := clean
	hold.Name, hold.Args, hold.VolumeMounts = "hold", []string{"uninstall", "--hold"}, nil
	pod.InitContainers, pod.Containers = []corev1.Container{clean}, []corev1.Container{hold}
	keepFromAgents(pod)
	labels := map[string]string{"app.kubernetes.io/name": cleanerName, "app.kubernetes.io/part-of": "tenure"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: cleanerName, Labels: labels,
			Annotations: map[string]string{attachesAnnotation: strconv.FormatBool(attaches(agent))},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": cleanerName}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: *pod},
		},
	}
}

// keepFromAgents keeps the cleaner's pod and the agent's off each other's nodes, whoever
// applies the agent again: an agent on a node that is being cleaned would lose what it
// serves.
func keepFromAgents(pod *corev1.PodSpec) {
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": agentName}},
		TopologyKey:   corev1.LabelHostname,
	}}}
}

// attachesAnnotation, on the cleaner, says by true or false whether its agent kept a
// configuration of tenure-attach's on the nodes.
const attachesAnnotation = "tenure.dev/attaches"

// attaches reports whether an agent keeps a configuration of tenure-attach's, so that
// pods are attached to networks by it. The volume alone does not say so: the cleaner has
// it in any case.
func attaches(agent *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(agent.Spec.Template.Spec.Containers[0].Args, func(arg string) bool {
		return strings.HasPrefix(arg, "--cni-conf=")
	})
}

// confName is the name of the configuration that an agent with these arguments keeps.
func confName(args []string) string {
	for _, a := range args {
		if name, ok := strings.CutPrefix(a, "--cni-conf-name="); ok {
			return name
		}
	}
	return "00-tenure.conflist"
}

// hostPath returns the host's directory that a volume of the agent is, empty if there is
// none.
func hostPath(agent *appsv1.DaemonSet, volume string) string {
	for _, v := range agent.Spec.Template.Spec.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}
