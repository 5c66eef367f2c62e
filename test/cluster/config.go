package cluster

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/test/controlplane"
)

// Where a node's containerd listens, and says what it has done.
const (
	runtimeSocket  = "/run/containerd/containerd.sock"
	runtimeMetrics = "127.0.0.1:1338"
)

// containerdConfig is containerd's, with runc at a path. A machine in a container or
// virtual machine may not be allowed to lower oom_score_adj.
const containerdConfig = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "` + runtimeSocket + `"
[metrics]
  address = "` + runtimeMetrics + `"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "` + pauseImage + `"
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "%s"
      SystemdCgroup = false
`

// kubeletConfig is the kubelet's: cgroup root, authority's certificate and address
// are filled in.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
enforceNodeAllocatable: [pods]
containerRuntimeEndpoint: unix://` + runtimeSocket + `
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
address: %s
healthzBindAddress: 127.0.0.1
resolvConf: ""
clusterDNS: [10.0.0.10]
clusterDomain: cluster.local
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
volumePluginDir: /var/lib/kubelet/volume-plugins
nodeStatusUpdateFrequency: 4s
registryPullQPS: 0
eventRecordQPS: 0
serializeImagePulls: false
`

// proxyConfig is kube-proxy's; its kubeconfig and the pods' ranges are filled in. It leaves the
// size of the kernel's table of connections alone, which is one for the whole machine.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %s}
detectLocalMode: ClusterCIDR
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
`

// podNetwork is the cluster's default network, which is none of Tenure's business. Its ranges and
// routes are filled in.
const podNetwork = `{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [%s], "routes": [%s]}
  }]
}
`

// plugins are the CNI plugins that a node has before Tenure is installed.
var plugins = []string{"bridge", "host-local", "loopback", "macvlan", "static", "tuning"}

// writeFiles puts what an administrator has set up on the node's disk. The kubelet and
// kube-proxy are the given users.
func (n *Node) writeFiles(families []family, kubelet, proxy *rest.Config) error {
	join := func(of func(family) string) string { return strings.Join(ofEach(families, of), ",") }
	authority := filepath.Join(n.dir, "ca.crt")
	files := map[string]string{
		authority:                 string(kubelet.CAData),
		n.file("containerd.toml"): fmt.Sprintf(containerdConfig, filepath.Join(n.rig, "runc")),
		n.file("kubelet.yaml"):    fmt.Sprintf(kubeletConfig, cgroup(n.Name), authority, n.ips[0]),
		n.file("kube-proxy.yaml"): fmt.Sprintf(proxyConfig, n.file("kube-proxy.kubeconfig"), join(func(f family) string { return f.pods })),
		n.file("etc/machine-id"):  strings.Repeat(fmt.Sprintf("%016x", n.index), 2) + "\n",
		n.file("etc/cni/net.d/10-pods.conflist"): fmt.Sprintf(podNetwork,
			join(func(f family) string { return fmt.Sprintf(`[{"subnet": "%s"}]`, f.podsOf(n.index)) }),
			join(func(f family) string { return fmt.Sprintf(`{"dst": "%s"}`, f.all) })),
	}
	for _, name := range plugins {
		program, err := os.ReadFile(filepath.Join(n.rig, name))
		if err != nil {
			return fmt.Errorf("CNI plugin %s: %w", name, err)
		}
		files[n.file("opt/cni/bin/"+name)] = string(program)
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return err
		}
	}
	for path, user := range map[string]*rest.Config{"kubeconfig": kubelet, "kube-proxy.kubeconfig": proxy} {
		url, err := url.Parse(user.Host)
		if err != nil {
			return err
		}
		user = rest.CopyConfig(user)
		user.Host = "https://" + net.JoinHostPort(families[0].host, url.Port())
		if err := controlplane.WriteKubeconfig(n.file(path), user); err != nil {
			return err
		}
	}
	return nil
}

// file returns the path of a file of the node's disk.
func (n *Node) file(path string) string { return filepath.Join(n.dir, path) }
