package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/test/programs"
)

// TestChartValues: each file of values that is shipped for a platform says whether that was tried,
// is in the table of platforms with its directories, and gives the agent these.
func TestChartValues(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/howto/platforms.md"))
	if err != nil {
		t.Fatal(err)
	}
	// What differs from the defaults, which all have besides.
	want := map[string]map[string]string{
		"openshift": {"plugins": "/var/lib/cni/bin", "cni-conf": "/etc/kubernetes/cni/net.d"},
		"talos":     {},
		"k0s":       {"pod-resources": "/var/lib/k0s/kubelet/pod-resources"},
		"rke2":      {},
		"k3s":       {"plugins": "/var/lib/rancher/k3s/data/cni", "cni-conf": "/var/lib/rancher/k3s/agent/etc/cni/net.d"},
		"microk8s": {
			"plugins": "/var/snap/microk8s/current/opt/cni/bin", "cni-conf": "/var/snap/microk8s/current/args/cni-network",
			"pod-resources": "/var/snap/microk8s/common/var/lib/kubelet/pod-resources",
		},
	}
	defaults := map[string]string{"plugins": "/opt/cni/bin", "cni-conf": "/etc/cni/net.d", "pod-resources": "/var/lib/kubelet/pod-resources"}
	says := regexp.MustCompile(`^# [A-Za-z0-9]+, (tried|by the book): `)
	files, err := filepath.Glob(filepath.Join(root, "deploy/chart/values-*.yaml"))
	if err != nil || len(files) != len(want) {
		t.Fatalf("files %q, %v; want one each of %v", files, err, want)
	}
	for _, file := range files {
		base := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !says.Match(text) {
			t.Errorf("%s begins with %.60q; want whether it was tried, and its source", base, text)
		}
		row := regexp.MustCompile(`(?m)^\|.*` + regexp.QuoteMeta(base) + `.*$`).FindString(string(page))
		charted, err := Chart(t.Context(), "--values="+base, "--set=attach.enabled=true")
		volumes, _, _ := unstructured.NestedSlice(render(t, charted, err)["DaemonSet tenure-system/tenured"].Object, "spec", "template", "spec", "volumes")
		differ := want[strings.TrimSuffix(strings.TrimPrefix(base, "values-"), ".yaml")]
		for _, v := range volumes {
			name, _, _ := unstructured.NestedString(v.(map[string]any), "name")
			path, _, _ := unstructured.NestedString(v.(map[string]any), "hostPath", "path")
			kind, _, _ := unstructured.NestedString(v.(map[string]any), "hostPath", "type")
			if is, ok := differ[name]; ok && (path != is || !strings.Contains(row, strings.TrimSuffix(is, "/pod-resources"))) {
				t.Errorf("%s: %s is %s; want %s, and the row %q of the page to tell it", base, name, path, is, row)
			} else if is := defaults[name]; !ok && is != "" && path != is {
				t.Errorf("%s: %s is %s; want %s", base, name, path, is)
			}
			if wants := base != "values-talos.yaml"; name == "plugins" && (kind == "Directory") != wants {
				t.Errorf("%s: the kubelet looks for the plugins' directory as %q; want that: %t", base, kind, wants)
			}
		}
	}
}
