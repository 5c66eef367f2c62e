package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// program is one program of the rig.
type program struct {
	name   string
	module string // whose version it has
	pkg    string

	// controlPlane programs may come from elsewhere. The CNI plugins do not:
	// tests look for them in one directory, and they take seconds to build.
	controlPlane bool

	// seccomp programs are linked, statically, with libseccomp, which is C.
	seccomp bool
}

// set is what is built together, out of one module.
type set struct {
	dir      string // of the module, from that of this program
	programs []program
	files    []files
	nft      bool // nft(8) belongs to it, which is not of Go

	// debian is the set where it is not built.
	debian *debian
}

// The modules that the programs are of.
const (
	kubernetes = "k8s.io/kubernetes"
	etcd       = "go.etcd.io/etcd/server/v3"
	plugins    = "github.com/containernetworking/plugins"
	containerd = "github.com/containerd/containerd/v2"
	runc       = "github.com/opencontainers/runc"

	multus      = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"
	whereabouts = "github.com/k8snetworkplumbingwg/whereabouts"

	coreDNS = "github.com/coredns/coredns"
)

// oldestKubernetes is the oldest minor version 1.N that Tenure supports.
const oldestKubernetes = 32

// local is what containers on one machine need, without a cluster.
var local = set{dir: ".", programs: []program{
	{name: "bridge", module: plugins, pkg: plugins + "/plugins/main/bridge"},
}}

// controlPlane is what tests and the demo run against.
var controlPlane = set{dir: ".", programs: []program{
	{name: "kube-apiserver", module: kubernetes, pkg: kubernetes + "/cmd/kube-apiserver", controlPlane: true},
	{name: "kube-controller-manager", module: kubernetes, pkg: kubernetes + "/cmd/kube-controller-manager", controlPlane: true},
	{name: "kubectl", module: kubernetes, pkg: kubernetes + "/cmd/kubectl", controlPlane: true},
	{name: "etcd", module: etcd, pkg: etcd, controlPlane: true},
	{name: "bridge", module: plugins, pkg: plugins + "/plugins/main/bridge"},
	{name: "macvlan", module: plugins, pkg: plugins + "/plugins/main/macvlan"},
	{name: "loopback", module: plugins, pkg: plugins + "/plugins/main/loopback"},
	{name: "host-local", module: plugins, pkg: plugins + "/plugins/ipam/host-local"},
	{name: "static", module: plugins, pkg: plugins + "/plugins/ipam/static"},
	{name: "tuning", module: plugins, pkg: plugins + "/plugins/meta/tuning"},
}}

// nodes is what a real cluster has beyond that: what schedules pods, and what
// runs them.
var nodes = set{dir: "node", programs: []program{
	// First what can fail for want of a C compiler.
	{name: "runc", module: runc, pkg: runc, seccomp: true},
	{name: "kube-scheduler", module: kubernetes, pkg: kubernetes + "/cmd/kube-scheduler"},
	{name: "kube-proxy", module: kubernetes, pkg: kubernetes + "/cmd/kube-proxy"},
	{name: "kubelet", module: kubernetes, pkg: kubernetes + "/cmd/kubelet"},
	{name: "containerd", module: containerd, pkg: containerd + "/cmd/containerd"},
	{name: "containerd-shim-runc-v2", module: containerd, pkg: containerd + "/cmd/containerd-shim-runc-v2"},
	{name: "ctr", module: containerd, pkg: containerd + "/cmd/ctr"},
}, nft: true}

// anotherKube is what a cluster has of another minor version of Kubernetes than the usual one,
// with the etcd that this version is made for. All else it has of the other sets.
func anotherKube(minor string) (set, error) {
	s := set{dir: filepath.Join("kube", minor), programs: []program{{name: "etcd", module: etcd, pkg: etcd}}}
	if _, err := os.Stat(filepath.Join(s.dir, "go.mod")); err != nil {
		there, _ := filepath.Glob("kube/*")
		return set{}, fmt.Errorf("-kube=%s: there is no test/rig/kube/%[1]s/go.mod, must be one of %q", minor, there)
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"} {
		s.programs = append(s.programs, program{name: name, module: kubernetes, pkg: kubernetes + "/cmd/" + name})
	}
	return s, nil
}

// foreign is what a cluster may have in Tenure's place, and beside it while it changes over.
var foreign = set{dir: "foreign", programs: []program{
	{name: "multus", module: multus, pkg: multus + "/cmd/multus"},
	{name: "whereabouts", module: whereabouts, pkg: whereabouts + "/cmd"},
	{name: "ip-control-loop", module: whereabouts, pkg: whereabouts + "/cmd/controlloop"},
	{name: "ip-reconciler", module: whereabouts, pkg: whereabouts + "/cmd/reconciler"},
}, files: []files{
	{name: "multus-manifests", module: multus, pattern: "deployments/multus-daemonset.yml"},
	{name: "whereabouts-manifests", module: whereabouts, pattern: "doc/crds/*.yaml"},
}}

// dns is what answers for the names of Services.
var dns = set{dir: "dns", programs: []program{
	{name: "coredns", module: coreDNS, pkg: "github.com/tenure-ipam/tenure/test/rig/dns"},
}}

// openstack is what administers addresses where a cluster runs on OpenStack.
var openstack = set{debian: &neutron}

// site is what renders the documentation.
var site = set{debian: &mkdocs}

// prometheus is what collects metrics, and tells which alerts fire. It needs nothing of what its
// package depends on, which is of pages for browsers.
var prometheus = set{debian: &debian{
	name: "prometheus", last: "usr/bin/promtool", cost: "a Debian package, 19 MB: some seconds", download: []string{"download", "prometheus"},
}}

// chromium is the browser that looks at the page of kubectl tenure ui.
var chromium = set{debian: &headless}

// tags are the build tags of p: without its own, runc starts no container that has
// a seccomp profile, as every sandbox has.
func (p program) tags() string {
	if p.seccomp {
		return "seccomp,netgo,osusergo"
	}
	return ""
}

// ldflags strips the program and, for those of Kubernetes, stamps the version:
// unstamped ones call themselves "v0.0.0-master+$Format:%H$", which kubectl
// cannot parse.
func (p program) ldflags(version string) string {
	flags := "-s -w"
	if p.seccomp {
		return flags + " -extldflags -static"
	}
	if p.module != kubernetes {
		return flags
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, kv := range [][2]string{
			{"gitVersion", version}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]},
			{"gitTreeState", "clean"}, {"gitCommit", "unknown"}, {"buildDate", "2026-01-01T00:00:00Z"},
		} {
			flags += fmt.Sprintf(" -X %s.%s=%s", pkg, kv[0], kv[1])
		}
	}
	return flags
}

// elsewhere finds p outside the rig: what $KUBEBUILDER_ASSETS has was chosen by
// the user, what PATH has must not be too old.
func elsewhere(ctx context.Context, p program, getenv func(string) string) (path string, ok bool) {
	if !p.controlPlane {
		return "", false
	}
	if assets := getenv("KUBEBUILDER_ASSETS"); assets != "" {
		path = filepath.Join(assets, p.name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		path = filepath.Join(dir, p.name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, p.module != kubernetes || supported(ctx, path, p.name)
		}
	}
	return "", false
}

var kubernetesVersion = regexp.MustCompile(`v1\.(\d+)\.`)

// supported reports whether the program of Kubernetes at path is not too old.
func supported(ctx context.Context, path, name string) bool {
	args := []string{"--version"}
	if name == "kubectl" {
		args = []string{"version", "--client"}
	}
	said, err := exec.CommandContext(ctx, path, args...).Output()
	found := kubernetesVersion.FindSubmatch(said)
	if err != nil || found == nil {
		return false
	}
	minor, err := strconv.Atoi(string(found[1]))
	return err == nil && minor >= oldestKubernetes
}
