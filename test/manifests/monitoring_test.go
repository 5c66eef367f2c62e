package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/test/programs"
)

// TestChartHasTheAlerts: the PrometheusRule is the file of alerts, with the labels that values say.
func TestChartHasTheAlerts(t *testing.T) {
	charted, err := Chart(t.Context(), "--set=metrics.rules.enabled=true,metrics.rules.labels.release=prometheus", "--api-versions=monitoring.coreos.com/v1/PrometheusRule")
	o := render(t, charted, err)["PrometheusRule tenure-system/tenure"]
	if o == nil {
		t.Fatal("the chart lacks the PrometheusRule")
	}
	if o.GetLabels()["release"] != "prometheus" {
		t.Errorf("its labels are %v; want those of the values", o.GetLabels())
	}
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/alerts/tenure.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
		t.Errorf("it is not what the file has (-file +chart):\n%s", diff)
	}
}

// TestChartPutsDashboardsWhereAsked, each as text that Grafana's sidecar writes into a file of its
// own.
func TestChartPutsDashboardsWhereAsked(t *testing.T) {
	charted, err := Chart(t.Context(), "--set=metrics.dashboards.enabled=true,metrics.dashboards.namespace=grafana,metrics.dashboards.labels.mine=yes")
	files := map[string]bool{}
	for _, o := range render(t, charted, err) {
		if o.GetKind() != "ConfigMap" || o.GetNamespace() != "grafana" {
			continue
		}
		if l := o.GetLabels(); l["mine"] != "yes" || l["grafana_dashboard"] != "1" {
			t.Errorf("%s has the labels %v; want Grafana's and those of the values", Name(o), l)
		}
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			t.Error(err)
		}
		for file, text := range data {
			if files[file] || !json.Valid([]byte(text)) {
				t.Errorf("%s: the file %s is there twice, or is no JSON", Name(o), file)
			}
			files[file] = true
		}
	}
	if len(files) != 3 {
		t.Errorf("there are %v; want the three dashboards", files)
	}
}

// TestMonitorCallsAgentsByTheirNodes: alerts and dashboards show the label instance.
func TestMonitorCallsAgentsByTheirNodes(t *testing.T) {
	charted, err := Chart(t.Context(), "--set=metrics.agents=true,metrics.serviceMonitor.enabled=true")
	o := render(t, charted, err)["ServiceMonitor tenure-system/tenured"]
	endpoints, _, err := unstructured.NestedSlice(o.Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("endpoints %v, %v; want one", endpoints, err)
	}
	want := []any{map[string]any{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "instance"}}
	if got := endpoints[0].(map[string]any)["relabelings"]; !reflect.DeepEqual(got, want) {
		t.Errorf("relabelings are %v; want %v", got, want)
	}
}
