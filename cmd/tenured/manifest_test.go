package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/deploy"
	"github.com/tenure-ipam/tenure/test/manifests"
)

// TestManifestFitsTheProgram: in the pod of deploy/programs/tenured.yaml, and in those
// that the chart makes of it, the program finds every directory of the host where the
// host has it, may write where it does, and is probed where it listens.
func TestManifestFitsTheProgram(t *testing.T) {
	text, err := deploy.FS.ReadFile("programs/tenured.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	checkFits(t, set.Spec.Template.Spec, "/opt/cni/bin")
	const attach = "--set=attach.enabled=true"
	for name, tt := range map[string]struct {
		bin, conf string
		args      []string
	}{
		"defaults":  {"/opt/cni/bin", "", nil},
		"attach":    {"/opt/cni/bin", "/etc/cni/net.d", []string{attach}},
		"k3s":       {"/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/agent/etc/cni/net.d", []string{attach, "--values=values-k3s.yaml"}},
		"microk8s":  {"/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/current/args/cni-network", []string{attach, "--values=values-microk8s.yaml"}},
		"openshift": {"/var/lib/cni/bin", "/etc/kubernetes/cni/net.d", []string{attach, "--api-versions=security.openshift.io/v1"}},
		"all moved": {"/a", "/b", []string{
			attach, "--set=directories.cniBin=/a,directories.cniConf=/b,directories.cniState=/c,directories.state=/d",
			"--set=directories.run=/e,directories.kubelet=/f,metrics.agents=true",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, conf := charted(t, tt.args...)
			agent := checkFits(t, pod, tt.bin)
			if tt.conf == "" {
				return
			}
			if agent.Ready.Dir != tt.conf {
				t.Errorf("the agent keeps the configuration in %s; want %s", agent.Ready.Dir, tt.conf)
			}
			// What the agent, and the plugin by its configuration, mean by the same.
			got := []string{conf.Socket, conf.StateDir, conf.ConfDir, conf.BinDir}
			if want := []string{agent.Socket, agent.AttachState, tt.conf, tt.bin}; !slices.Equal(got, want) {
				t.Errorf("tenure-attach is told of %q; want %q", got, want)
			}
		})
	}
}

// TestChartTakesTheConfiguration: the keys of tenure-attach's configuration that the chart
// lets through are those that the program reads, with values that it takes.
func TestChartTakesTheConfiguration(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(`attach:
  enabled: true
  config:
    defaultNetwork: {cniVersion: 1.0.0, name: cluster, plugins: [{type: flannel}]}
    defaultNetworks: [storage, infra/lan@lan0]
    defaultNamespace: infra
    systemNamespaces: [kube-system, tenure-system, infra]
    specVersion: "1"
    invalidAnnotation: Fail
    ipsWithClaim: Allow
    statusIPs: CIDR
    readinessindicatorfile: /run/flannel/subnet.env
    capabilities: {bandwidth: true}
    example.org/of-others: [1]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, conf := charted(t, "--values="+values)
	if conf.Default.Inline == nil || len(conf.Extra) != 2 || conf.Namespace != "infra" || len(conf.SystemNamespaces) != 3 || !conf.StatusCIDRs || len(conf.Ignored) > 0 {
		t.Errorf("the program reads %+v", conf)
	}
}

// charted returns the agent's pod, and tenure-attach's configuration, nil without one, as
// the chart makes them.
func charted(t *testing.T, args ...string) (pod corev1.PodSpec, conf *plan.Config) {
	t.Helper()
	objects, err := manifests.Chart(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.DaemonSet
		var files corev1.ConfigMap
		switch o.GetKind() {
		case "DaemonSet":
			err = yaml.UnmarshalStrict(text, &set)
			pod = set.Spec.Template.Spec
		case "ConfigMap":
			if err = yaml.UnmarshalStrict(text, &files); err == nil {
				conf, err = plan.ParseInstalled([]byte(files.Data["tenure.conflist"]))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return pod, conf
}

// checkFits checks the agent's pod, which is to install plugins in bin, and returns what
// the program makes of its arguments.
func checkFits(t *testing.T, pod corev1.PodSpec, bin string) daemon.Config {
	t.Helper()
	if len(pod.Containers) != 2 || len(pod.InitContainers) != 1 || !pod.HostNetwork {
		t.Fatalf("%d containers, %d init containers, host network %t; want two and one in the host's network", len(pod.Containers), len(pod.InitContainers), pod.HostNetwork)
	}
	c := pod.Containers[0]
	checkInstalls(t, pod, pod.InitContainers[0], bin, "install", "--to="+bin)
	checkInstalls(t, pod, pod.Containers[1], bin, "install", "--keep", "--to="+bin)
	if no := pod.AutomountServiceAccountToken; no == nil || *no {
		t.Error("the kubelet gives every container a token; want the agent alone to have one")
	}
	if m, _ := mountOf(pod, "/var/run/secrets/kubernetes.io/serviceaccount/token"); m.Name != "token" {
		t.Errorf("the agent finds its token on volume %q; want the one that has it", m.Name)
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
		// Where these are two directories, one in the other's place would show all pods as gone.
		if _, host := mountOf(pod, dir); host != dir {
			t.Errorf("%s is the host's %s", dir, host)
		}
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if at := probe.HTTPGet; at.Path != path || !slices.Contains([]string{at.Host + ":" + at.Port.String(), ":" + at.Port.String()}, d.Listen) {
			t.Errorf("%s is asked for at %s:%s%s; the program listens at %s", path, at.Host, at.Port.String(), at.Path, d.Listen)
		}
	}
	return d
}

// checkInstalls checks a container that installs the plugins of the agent's image in bin, and has
// no other directory, and no token.
func checkInstalls(t *testing.T, pod corev1.PodSpec, c corev1.Container, bin string, args ...string) {
	t.Helper()
	if c.Image != pod.Containers[0].Image || !slices.Equal(c.Args, args) {
		t.Errorf("container %s of image %s does %q; want the plugins of the agent's image installed by %q", c.Name, c.Image, c.Args, args)
	}
	if mounts := c.VolumeMounts; len(mounts) != 1 || mounts[0].MountPath != bin || hostPath(pod, mounts[0].Name) != bin {
		t.Errorf("container %s has %+v; want the host's %s alone", c.Name, mounts, bin)
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
		mount, host = m, hostPath(pod, m.Name)
	}
	return mount, host
}

// hostPath returns the host's directory that a volume is, empty if it is none.
func hostPath(pod corev1.PodSpec, volume string) string {
	for _, v := range pod.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

// noLink returns path without the link that /var/run is on a host.
func noLink(path string) string {
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + rest
	}
	return path
}
