package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cleanerName is the name of the DaemonSet that cleans nodes.
const cleanerName = "tenure-uninstall"

// Names of the agent's volumes.
const (
	pluginsVolume = "plugins"
	confVolume    = "cni-conf"
)

// cleanNodes runs `tenured uninstall` on every node, of the image and in the directories
// of the agent that ran there, and waits until each has answered. A node that refuses, as
// a pod of its still has a network, keeps all of it.
func (c *cluster) cleanNodes(ctx context.Context, agent *appsv1.DaemonSet, force bool) error {
	cleaner := cleanerOf(agent, force)
	if err := c.Create(ctx, cleaner); apierrors.IsAlreadyExists(err) {
		c.say("%s is at work already", cleanerName)
	} else if err != nil {
		return fmt.Errorf("create %s: %w", cleanerName, err)
	}
	if err := c.await(ctx, rollout{new(appsv1.DaemonSet), cleanerName}); err != nil {
		if !force {
			return fmt.Errorf("%w. The nodes named are not clean yet, and their pods get no addresses; run it again when the cause is gone, with FORCE=1 to do without them, or install Tenure again", err)
		}
		c.say("not clean: %v", err)
	}
	return c.deleteProgram(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cleanerName}})
}

// cleanerOf returns the DaemonSet that cleans the nodes of the agent: its init container
// does it, and then nothing is done until it is deleted.
func cleanerOf(agent *appsv1.DaemonSet, force bool) *appsv1.DaemonSet {
	if agent.Name == cleanerName {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cleanerName}, Spec: agent.Spec}
	}
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
	if force {
		args = append(args, "--force")
	}
	no := false
	pod.ServiceAccountName, pod.DeprecatedServiceAccount, pod.AutomountServiceAccountToken = "", "", &no
	clean := old
	clean.Name, clean.Args, clean.Env, clean.Ports, clean.VolumeMounts = "uninstall", args, nil, nil, mounts
	clean.LivenessProbe, clean.ReadinessProbe, clean.SecurityContext = nil, nil, init.SecurityContext
	hold := clean
	hold.Name, hold.Args, hold.VolumeMounts = "hold", []string{"uninstall", "--hold"}, nil
	pod.InitContainers, pod.Containers = []corev1.Container{clean}, []corev1.Container{hold}
	labels := map[string]string{"app.kubernetes.io/name": cleanerName, "app.kubernetes.io/part-of": "tenure"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cleanerName, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": cleanerName}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: *pod},
		},
	}
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
