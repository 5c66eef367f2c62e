package manifests

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// openShiftAPI has helm template take the cluster for one of OpenShift's.
const openShiftAPI = "--api-versions=security.openshift.io/v1"

// TestChartOnOpenShift: on OpenShift the directories are OpenShift's but for those that a value
// names, and its constraints admit what pods have that values ask for.
func TestChartOnOpenShift(t *testing.T) {
	charted, err := Chart(t.Context(), openShiftAPI, "--set=attach.enabled=true,metrics.agents=true,directories.cniBin=/x",
		"--set=agent.extraVolumes[0].name=boot,agent.extraVolumes[0].emptyDir.medium=Memory")
	got := render(t, charted, err)
	text, err := json.Marshal(got["DaemonSet tenure-system/tenured"].Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"--cni-conf-dir=/etc/kubernetes/cni/net.d"`, `"path":"/etc/kubernetes/cni/net.d"`, `"--to=/x"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the agent lacks %s: %s", want, text)
		}
	}
	conf, _, _ := unstructured.NestedString(got["ConfigMap tenure-system/tenure-attach"].Object, "data", "tenure.conflist")
	for _, want := range []string{`"confDir": "/etc/kubernetes/cni/net.d"`, `"defaultNetwork": "/etc/kubernetes/cni/net.d"`, `"binDir": "/x"`} {
		if !strings.Contains(conf, want) {
			t.Errorf("the configuration of tenure-attach lacks %s: %s", want, conf)
		}
	}
	admits := got["SecurityContextConstraints /tenured"].Object
	if want := []any{"configMap", "emptyDir", "hostPath", "projected"}; admits["allowHostPorts"] != true || !slices.Equal(admits["volumes"].([]any), want) {
		t.Errorf("the agent's constraints are %v; want host ports, and volumes %v", admits, want)
	}
}

// TestConstraintsAdmit: what the pods of the base ask for, OpenShift's constraints of their service
// accounts admit, and admit no more of it.
func TestConstraintsAdmit(t *testing.T) {
	charted, err := Chart(t.Context(), openShiftAPI, "--set=attach.enabled=true")
	got := render(t, charted, err)
	for _, workload := range []string{"DaemonSet tenure-system/tenured", "Deployment tenure-system/tenure-controller"} {
		var pod corev1.PodSpec
		template, _, _ := unstructured.NestedMap(got[workload].Object, "spec", "template", "spec")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod); err != nil {
			t.Fatal(err)
		}
		admits := got["SecurityContextConstraints /"+pod.ServiceAccountName].Object
		asks := asksFor(pod)
		asks["users"] = []any{"system:serviceaccount:tenure-system:" + pod.ServiceAccountName}
		for field, want := range asks {
			if diff := cmp.Diff(want, admits[field]); diff != "" {
				t.Errorf("%s of %s (-asked for +admitted):\n%s", field, workload, diff)
			}
		}
	}
}

// asksFor returns what a pod asks for, as fields of constraints.
func asksFor(pod corev1.PodSpec) map[string]any {
	volumes, capabilities, readOnly, escalates, ports := map[string]bool{}, map[string]bool{}, true, false, false
	for _, v := range pod.Volumes {
		switch {
		case v.HostPath != nil:
			volumes["hostPath"] = true
		case v.ConfigMap != nil:
			volumes["configMap"] = true
		case v.Secret != nil:
			volumes["secret"] = true
		case v.Projected != nil:
			volumes["projected"] = true
		}
	}
	if ptr.Deref(pod.AutomountServiceAccountToken, true) {
		volumes["projected"] = true
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, added := range c.SecurityContext.Capabilities.Add {
			capabilities[string(added)] = true
		}
		readOnly = readOnly && ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false)
		escalates = escalates || ptr.Deref(c.SecurityContext.AllowPrivilegeEscalation, true)
		ports = ports || pod.HostNetwork && len(c.Ports) > 0
	}
	list := func(set map[string]bool) []any {
		all := []any{}
		for _, name := range slices.Sorted(maps.Keys(set)) {
			all = append(all, name)
		}
		return all
	}
	return map[string]any{
		"allowHostNetwork": pod.HostNetwork, "allowHostPID": pod.HostPID, "allowHostIPC": pod.HostIPC, "allowHostPorts": ports,
		"allowHostDirVolumePlugin": volumes["hostPath"], "allowPrivilegedContainer": false, "allowPrivilegeEscalation": escalates,
		"readOnlyRootFilesystem": readOnly, "requiredDropCapabilities": []any{"ALL"}, "allowedCapabilities": list(capabilities),
		"volumes": list(volumes), "seccompProfiles": []any{"runtime/default"},
		"runAsUser": map[string]any{"type": "MustRunAs", "uid": float64(*pod.SecurityContext.RunAsUser)},
	}
}
