package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/deploy"
)

// TestManifestFitsTheProgram: in the pod of deploy/programs/tenured.yaml the program
// finds every directory of the host where the host has it, may write where it does,
// and is probed where it listens.
func TestManifestFitsTheProgram(t *testing.T) {
	text, err := deploy.FS.ReadFile("programs/tenured.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	if len(pod.Containers) != 1 || !pod.HostNetwork {
		t.Fatalf("%d containers, host network %t; want one in the host's network", len(pod.Containers), pod.HostNetwork)
	}
	c := pod.Containers[0]
	if len(pod.InitContainers) != 1 || pod.InitContainers[0].Image != c.Image || !slices.Equal(pod.InitContainers[0].Args, []string{"install", "--to=/opt/cni/bin"}) {
		t.Errorf("init containers %+v; want one that installs the plugins of the agent's image", pod.InitContainers)
	}
	env := func(name string) string {
		for _, e := range c.Env {
			if e.Name == name && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
				return "n"
			}
		}
		return ""
	}
	opts, err := parse(append(c.Args, "--machine-id=m"), env, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	d := opts.daemon
	written := []string{d.Store, d.Socket, d.Agent.JournalDir, d.AttachState}
	read := append(append([]string{d.PodResources}, d.NetnsDirs...), d.ResultDirs...)
	if d.Ready.Source != "" {
		written = append(written, d.Ready.Dir)
	}
	for i, path := range append(written, read...) {
		mount, host := mountOf(pod, path)
		if onHost := host + strings.TrimPrefix(path, mount.MountPath); host == "" || noLink(onHost) != noLink(path) {
			t.Errorf("%s is the host's %q; want the same path", path, onHost)
		}
		if i < len(written) && mount.ReadOnly {
			t.Errorf("%s cannot be written", path)
		}
	}
	for _, dir := range d.NetnsDirs {
		if m, _ := mountOf(pod, dir); m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationHostToContainer {
			t.Errorf("%s: network namespaces that are made later are not seen", dir)
		}
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if at := probe.HTTPGet; at.Path != path || at.Host+":"+at.Port.String() != d.Listen {
			t.Errorf("%s is asked for at %s:%s%s; the program listens at %s", path, at.Host, at.Port.String(), at.Path, d.Listen)
		}
	}
}

// mountOf returns the mount that path is on, and the host's directory there, empty if
// there is none.
func mountOf(pod corev1.PodSpec, path string) (mount corev1.VolumeMount, host string) {
	for _, m := range pod.Containers[0].VolumeMounts {
		rel, err := filepath.Rel(m.MountPath, path)
		if err != nil || !filepath.IsLocal(rel) || len(m.MountPath) < len(mount.MountPath) {
			continue
		}
		mount = m
		for _, v := range pod.Volumes {
			if v.Name == m.Name {
				host = v.HostPath.Path
			}
		}
	}
	return mount, host
}

// noLink returns path without the link that /var/run is on a host.
func noLink(path string) string {
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + rest
	}
	return path
}
