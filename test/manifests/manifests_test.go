package manifests

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/attach/certificate"
)

// images makes the base's images those that Chart names.
const images = `images:
- {name: tenured, newName: tenure.dev/tenured, newTag: dev}
- {name: tenure-controller, newName: tenure.dev/tenure-controller, newTag: dev}
`

const (
	attach      = "components: [../../deploy/attach]\n"
	podNetworks = "components: [../../deploy/attach, ../../deploy/podnetworks]\n"
	hotplug     = "components: [../../deploy/attach, ../../deploy/hotplug]\n"
	vifs        = "components: [../../deploy/attach, ../../deploy/vifs]\n"
	names       = "components: [../../deploy/names]\n"
	dra         = "components: [../../deploy/dra]\n"
	neutron     = "components: [../../deploy/neutron]\n"
	check       = "components: [../../deploy/check]\n"
	openshift   = "components: [../../deploy/openshift]\n"
	dashboards  = "components: [../../deploy/dashboards]\n"
	subnets     = "- op: add\n      path: /spec/template/spec/containers/0/args/-\n      value: --neutron-subnet-namespaces=team-a,team-b\n"
	kuryr       = "patches:\n- target: {kind: Deployment, name: tenure-controller}\n" +
		"  patch: |\n    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --kuryr-annotation}\n"
)

// render fails the test where rendering fails.
func render(t *testing.T, objects []Object, err error) map[string]Object {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]Object{}
	for _, o := range objects {
		if by[Name(o)] != nil {
			t.Errorf("%s is there twice", Name(o))
		}
		by[Name(o)] = o
	}
	return by
}

// TestChartIsTheBase: object by object, the chart installs what kustomize does.
func TestChartIsTheBase(t *testing.T) {
	for name, tt := range map[string]struct {
		overlay string
		args    []string
	}{
		"defaults": {Base + images, nil},
		"the meta-plugin": {
			Base + images + attach, []string{"--set=attach.enabled=true"},
		},
		"networks of running pods": {
			Base + images + hotplug, []string{"--set=attach.enabled=true,attach.hotplug.enabled=true"},
		},
		"W7 PodNetworks": {
			Base + images + podNetworks, []string{"--set=attach.enabled=true,podNetworks.enabled=true"},
		},
		"K1 VIFs": {
			Base + images + vifs, []string{"--set=attach.enabled=true,vifs.enabled=true"},
		},
		"names": {
			Base + images + names, []string{"--set=names.enabled=true"},
		},
		"addresses for ResourceClaims": {
			Base + images + dra, []string{"--set=dra.enabled=true"},
		},
		"Neutron": {
			Base + images + neutron, []string{"--set=neutron.cloudsSecret=tenure-neutron"},
		},
		"K5 VIFs in Kuryr's words": {
			Base + images + vifs + kuryr, []string{"--set=attach.enabled=true,vifs.enabled=true,vifs.kuryrAnnotation=true"},
		},
		"K9 Neutron, and subnets for two namespaces": {
			Base + images + neutron + "patches:\n- target: {kind: Deployment, name: tenure-controller}\n  patch: |\n    " + subnets,
			[]string{"--set=neutron.cloudsSecret=tenure-neutron,neutron.subnetNamespaces={team-a,team-b}"},
		},
		"dashboards": {
			Base + images + dashboards, []string{"--set=metrics.dashboards.enabled=true"},
		},
		"check": {
			Base + images + check, []string{"--set=check.schedule=17 * * * *"},
		},
		"check at another time, and of notes": {
			Base + images + check + "patches:\n- target: {kind: CronJob, name: tenure-check}\n  patch: |\n    - {op: replace, path: /spec/schedule, value: \"@daily\"}\n" +
				"    - {op: add, path: /spec/timeZone, value: Europe/Berlin}\n    - {op: add, path: /spec/jobTemplate/spec/template/spec/containers/0/args/-, value: --strict}\n",
			[]string{"--set=check.schedule=@daily,check.timeZone=Europe/Berlin,check.extraArgs={--strict}"},
		},
		"OpenShift": {
			Base + images + openshift, []string{openShiftAPI},
		},
		"other images": {
			Base + strings.NewReplacer("tenure.dev", "registry.example:5000/net", "dev}", "v7}").Replace(images),
			[]string{"--set=image.registry=registry.example:5000/net/,image.tag=v7"},
		},
		"a tag that is a number": {
			Base + strings.ReplaceAll(images, "newTag: dev}", `newTag: "20261122"}`), []string{"--set=image.tag=20261122"},
		},
		"a tag that is a number, in a file": {
			Base + strings.ReplaceAll(images, "newTag: dev}", `newTag: "20261122"}`), []string{"--values=" + valuesFile(t, "image: {tag: 20261122}\n")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kustomized, err := Kustomize(t.Context(), tt.overlay)
			want := render(t, kustomized, err)
			delete(want, "Namespace /tenure-system") // Helm's to make
			charted, err := Chart(t.Context(), tt.args...)
			got := render(t, charted, err)
			takeCertificate(t, got)
			for name, o := range got {
				if want[name] == nil {
					t.Errorf("only the chart has %s", name)
				}
				if o.GetKind() == "CustomResourceDefinition" {
					checkKept(t, o)
				}
			}
			for name, w := range want {
				if got[name] == nil {
					t.Errorf("the chart lacks %s", name)
				} else if diff := cmp.Diff(plainly(t, w), plainly(t, got[name])); diff != "" {
					t.Errorf("%s is not what kustomize makes of it (-kustomize +chart):\n%s", name, diff)
				}
			}
		})
	}
}

// TestChartHasAHook: before Helm deletes anything it makes what the policy uninstall.tenure.dev
// refuses.
func TestChartHasAHook(t *testing.T) {
	text, err := template(t.Context(), "--set=image.registry="+registry, "--show-only=templates/uninstall.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := parse(text)
	if err != nil || len(objects) != 1 || Name(objects[0]) != "ConfigMap tenure-system/tenure-uninstall" || objects[0].GetAnnotations()["helm.sh/hook"] != "pre-delete" {
		t.Errorf("%v, the chart's hooks are\n%s", err, text)
	}
}

// takeCertificate takes from what the chart makes the certificate of the webhooks, which whoever
// installs by kustomize makes afterwards. The API server must trust it.
func takeCertificate(t *testing.T, of map[string]Object) {
	t.Helper()
	secret := of["Secret tenure-system/tenure-controller-webhook"]
	if secret == nil {
		return
	}
	data, _, err := unstructured.NestedStringMap(secret.Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := base64.StdEncoding.DecodeString(data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	end := pair.Leaf.NotAfter
	if renew, want := secret.GetAnnotations()[certificate.RenewAfter], end.AddDate(0, 0, -365).Format(time.DateOnly); renew != want {
		t.Errorf("the certificate ends %v, and is renewed after %s; want %s", end, renew, want)
	}
	unstructured.RemoveNestedField(secret.Object, "data")
	unstructured.RemoveNestedField(secret.Object, "metadata", "annotations")
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		o := of[kind+" /pod-networks.tenure.dev"]
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hooks {
			config := h.(map[string]any)["clientConfig"].(map[string]any)
			trusted, err := base64.StdEncoding.DecodeString(config["caBundle"].(string))
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(trusted)
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "tenure-controller-webhook.tenure-system.svc", Roots: roots}); err != nil {
				t.Errorf("%s: the API server would not call it: %v", Name(o), err)
			}
			delete(config, "caBundle")
		}
		if err := unstructured.SetNestedSlice(o.Object, hooks, "webhooks"); err != nil {
			t.Fatal(err)
		}
	}
}

// valuesFile writes values, and returns the file's path.
func valuesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestChartRefuses: a value that is mistyped is said, and not left out in silence.
func TestChartRefuses(t *testing.T) {
	for set, want := range map[string]string{
		"attach.enable=true":                                "enable",
		"controler.replicas=3":                              "controler",
		"agent.logLevel=trace":                              "/agent/logLevel",
		"agent.history.size=much":                           "/agent/history/size",
		"agent.history.size=64ki":                           "/agent/history/size",
		"agent.history.size=64Ki":                           "/agent/history/size",
		"agent.history.size=1000":                           "/agent/history/size",
		"agent.history.size=-1":                             "/agent/history/size",
		"agent.history.age=90":                              "/agent/history/age",
		"agent.history.age=-1":                              "/agent/history/age",
		"agent.history.sise=1Gi":                            "sise",
		"agent.extraArgs={--history-size=1Gi}":              "/agent/extraArgs/0",
		"directories.cniBin=opt/cni/bin":                    "/directories/cniBin",
		"directories.state=/a/../b":                         "/directories/state",
		"directories.state=/..":                             "/directories/state",
		"directories.run=/a b":                              "/directories/run",
		"directories.run=/a/":                               "/directories/run",
		"image.pullPolicy=Sometimes":                        "/image/pullPolicy",
		"image.tag=true":                                    "/image/tag",
		"image.registry=null":                               "registry",
		"controller.podDisruptionBudget=no":                 "/controller/podDisruptionBudget",
		"workloadClaims.enabled=yes":                        "/workloadClaims/enabled",
		"advertise.enabled=yes":                             "/advertise/enabled",
		"podNetworks.enabled=yes":                           "/podNetworks/enabled",
		"podNetworks.enabled=true":                          "attach.enabled",
		"vifs.enabled=yes":                                  "/vifs/enabled",
		"vifs.enabled=true":                                 "attach.enabled",
		"names.enabled=yes":                                 "/names/enabled",
		"controller.extraArgs={--names}":                    "/controller/extraArgs/0",
		"dra.enabled=yes":                                   "/dra/enabled",
		"agent.extraArgs={--dra-socket=/x}":                 "/agent/extraArgs/0",
		"neutron.cloudsSecret=true":                         "/neutron/cloudsSecret",
		"controller.extraArgs={--neutron-cloud=x}":          "/controller/extraArgs/0",
		"vifs.kuryrAnnotation=yes":                          "/vifs/kuryrAnnotation",
		"vifs.kuryrAnnotation=true":                         "vifs.enabled",
		"controller.extraArgs={--vifs}":                     "/controller/extraArgs/0",
		"controller.extraArgs={--kuryr-annotation}":         "/controller/extraArgs/0",
		"controller.extraArgs={--webhook-certificate=/x}":   "/controller/extraArgs/0",
		"agent.extraArgs={--vifs}":                          "/agent/extraArgs/0",
		"controller.extraArgs={--multi-network}":            "/controller/extraArgs/0",
		"agent.extraArgs={--multi-network=false}":           "/agent/extraArgs/0",
		"controller.extraArgs={--statefulset-claims=false}": "/controller/extraArgs/0",
		"controller.extraArgs={--health=}":                  "/controller/extraArgs/0",
		"agent.extraArgs={--debug,--listen=:1}":             "/agent/extraArgs/1",
		"agent.extraArgs={--store,/x}":                      "/agent/extraArgs/0",
		"agent.extraArgs={--seat-namespace=x}":              "/agent/extraArgs/0",
		"controller.extraArgs={--registration-namespace=x}": "/controller/extraArgs/0",
		"agent.updateStrategy.rollingUpdate.maxSurge=1":     "/agent/updateStrategy/rollingUpdate/maxSurge",
		"agent.updateStrategy.rollingUpdate.maxSurge=10%":   "/agent/updateStrategy/rollingUpdate/maxSurge",
		"agent.updateStrategy.type=Recreate":                "/agent/updateStrategy/type",
		"attach.config.defaultNetwrks={a}":                  "defaultNetwrks",
		// There is attach.namespaceIsolation for that.
		"attach.config.isolation=None":                              "isolation",
		"attach.config.specVersion=2":                               "/attach/config/specVersion",
		"metrics.service=false,metrics.serviceMonitor.enabled=true": "metrics.agents",
		"metrics.dashboards.enabled=yes":                            "/metrics/dashboards/enabled",
		"metrics.dashboards.namespace=":                             "/metrics/dashboards/namespace",
		"metrics.dashboards.labels.x=true":                          "/metrics/dashboards/labels/x",
		"metrics.rule.enabled=true":                                 "rule",
		"metrics.rules.enabled=true":                                "install the operator first",
		"check.schedule=hourly":                                     "/check/schedule",
		"check.schedule=* * *":                                      "/check/schedule",
		"check.schedule=true":                                       "/check/schedule",
		"check.enabled=true":                                        "enabled",
		"check.extraArgs=--strict":                                  "/check/extraArgs",
	} {
		if _, err := Chart(t.Context(), "--set="+set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want it refused, naming %s", set, err, want)
		}
	}
	if _, err := template(t.Context()); err == nil || !strings.Contains(err.Error(), "/image/registry") {
		t.Errorf("without a registry: %v; want it refused: images of somebody else's would run as root", err)
	}
}

// TestChartTakes: what is like something that is refused, and is not.
func TestChartTakes(t *testing.T) {
	for _, set := range []string{
		"agent.updateStrategy.type=OnDelete",
		"agent.history.size=0",
		"agent.history.size=2048Ki",
		"agent.history.size=2000000",
		"agent.updateStrategy.rollingUpdate.maxSurge=0%,agent.updateStrategy.rollingUpdate.maxUnavailable=3",
		"agent.extraArgs={--cni-conf-at-once,--boot-id-file=/x}",
		"directories.state=/var/lib/..tenure/a.b_c-d",
		"attach.config.confDir=/etc/cni/multus/net.d,attach.config.binDir=/opt/more/bin",
		"metrics.service=false,metrics.agents=true,metrics.serviceMonitor.enabled=true",
	} {
		if _, err := Chart(t.Context(), "--set="+set); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestChartHistory: the values of the history are the agent's flags.
func TestChartHistory(t *testing.T) {
	charted, err := Chart(t.Context(), "--set=agent.history.size=1Gi,agent.history.age=0")
	agent := render(t, charted, err)["DaemonSet tenure-system/tenured"]
	containers, _, _ := unstructured.NestedSlice(agent.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if want := []string{"--history-age=0", "--history-size=1Gi"}; !slices.Equal(args, want) {
		t.Errorf("the agent's arguments are %q; want %q", args, want)
	}
}

// TestChartBudget: a budget that keeps one of one replica would let no node be drained.
func TestChartBudget(t *testing.T) {
	const budget = "PodDisruptionBudget tenure-system/tenure-controller"
	for set, want := range map[string]bool{
		"controller.replicas=1": false, "controller.replicas=2": true, "controller.replicas=3": true, "controller.podDisruptionBudget=false": false,
	} {
		charted, err := Chart(t.Context(), "--set="+set)
		if got := render(t, charted, err)[budget] != nil; got != want {
			t.Errorf("%s: there is a budget: %v; want %v", set, got, want)
		}
	}
}

// TestChartWithoutWorkloadClaims: what is left out is the role by which claims are made, and
// the work.
func TestChartWithoutWorkloadClaims(t *testing.T) {
	with, err := Chart(t.Context())
	left := render(t, with, err)
	without, err := Chart(t.Context(), "--set=workloadClaims.enabled=false,controller.extraArgs={--workers=8}")
	var args []string
	for name, o := range render(t, without, err) {
		delete(left, name)
		if name == "Deployment tenure-system/tenure-controller" {
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			args, _, _ = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		}
	}
	if got, want := slices.Sorted(maps.Keys(left)), []string{"ClusterRole /tenure-controller-workloads", "ClusterRoleBinding /tenure-controller-workloads"}; !slices.Equal(got, want) {
		t.Errorf("left out are %q; want %q", got, want)
	}
	if want := []string{"--statefulset-claims=false", "--workers=8"}; !slices.Equal(args, want) {
		t.Errorf("the controller's arguments are %q; want %q", args, want)
	}
}

// TestChartWithoutAdvertise: what is left out is the role by which Nodes are written.
func TestChartWithoutAdvertise(t *testing.T) {
	with, err := Chart(t.Context())
	left := render(t, with, err)
	without, err := Chart(t.Context(), "--set=advertise.enabled=false")
	for name := range render(t, without, err) {
		delete(left, name)
	}
	if got, want := slices.Sorted(maps.Keys(left)), []string{"ClusterRole /tenure-controller-advertise", "ClusterRoleBinding /tenure-controller-advertise"}; !slices.Equal(got, want) {
		t.Errorf("left out are %q; want %q", got, want)
	}
}

// checkKept checks that Helm leaves a definition in the cluster, and takes away what
// says so.
func checkKept(t *testing.T, o Object) {
	t.Helper()
	const policy = "helm.sh/resource-policy"
	if o.GetAnnotations()[policy] != "keep" {
		t.Errorf("%s goes with the chart, and every pool with it", Name(o))
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", policy)
}

// emptyLines are what kustomize adds to texts that are folded in the files: two line
// breaks where YAML has one.
var emptyLines = regexp.MustCompile(`(\\n)+`)

// plainly returns an object in which what is the same looks the same: numbers,
// configurations in text, and line breaks.
func plainly(t *testing.T, o Object) (plain map[string]any) {
	t.Helper()
	if data, ok, _ := unstructured.NestedMap(o.Object, "data"); ok {
		for key, text := range data {
			var v any
			if err := json.Unmarshal([]byte(text.(string)), &v); err != nil {
				t.Errorf("%s: %s: %v", Name(o), key, err)
			}
			data[key] = v
		}
		o.Object["data"] = data
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(emptyLines.ReplaceAll(text, []byte(`\n`)), &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestChartLeavesOthersDefinitions: what Helm installs only where it is absent, and
// never changes or removes, are upstream's definitions, all of them.
func TestChartLeavesOthersDefinitions(t *testing.T) {
	with, err := Chart(t.Context(), "--include-crds")
	if err != nil {
		t.Fatal(err)
	}
	without, err := Chart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	others := render(t, with, nil)
	for _, o := range without {
		delete(others, Name(o))
	}
	want := []string{
		"CustomResourceDefinition /ipamclaims.k8s.cni.cncf.io",
		"CustomResourceDefinition /network-attachment-definitions.k8s.cni.cncf.io",
	}
	if got := slices.Sorted(maps.Keys(others)); !slices.Equal(got, want) {
		t.Errorf("in crds/ are %q; want %q", got, want)
	}
}
