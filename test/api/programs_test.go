package api_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/deploy"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/manifests"
)

// kustomized returns the objects of deploy/kustomization.yaml, as kubectl apply -k
// sends them.
func kustomized(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := manifests.Kustomize(t.Context(), manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// checkTaken checks that the API server takes all of the objects, and knows every field
// of them.
func checkTaken(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	plain, err := client.New(cp.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := client.WithFieldValidation(plain, metav1.FieldValidationStrict)
	for _, o := range objects {
		apply := client.ApplyConfigurationFromUnstructured(o)
		if err := c.Apply(t.Context(), apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner("test")); err != nil {
			t.Errorf("%s: %v", manifests.Name(o), err)
		}
	}
}

// TestChartInstalls: so does it take what the chart makes of values, those for other
// distributions and of everything among them.
func TestChartInstalls(t *testing.T) {
	for name, args := range map[string][]string{
		"defaults": nil,
		"k3s":      {"--values=values-k3s.yaml", "--set=attach.enabled=true"},
		"microk8s": {"--values=values-microk8s.yaml", "--set=attach.enabled=true"},
		"everything": {
			"--set=attach.enabled=true,attach.namespaceIsolation=false,attach.globalNamespaces={default,net}",
			"--set=image.pullPolicy=Always,image.pullSecrets[0].name=registry,metrics.agents=true",
			"--set=agent.logLevel=debug,agent.extraArgs={--fence=20m},agent.podAnnotations.team=net",
			"--set=agent.extraVolumes[0].name=x,agent.extraVolumes[0].hostPath.path=/x,agent.extraVolumeMounts[0].name=x,agent.extraVolumeMounts[0].mountPath=/x",
			"--set=controller.logLevel=debug,controller.replicas=3,controller.priorityClassName=,controller.topologySpread[0].maxSkew=1",
			"--set=controller.topologySpread[0].topologyKey=zone,controller.topologySpread[0].whenUnsatisfiable=DoNotSchedule",
			"--set=controller.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=metadata.name",
			"--set=controller.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator=In",
			"--set=controller.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values={n1}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := manifests.Chart(t.Context(), args...)
			if err != nil {
				t.Fatal(err)
			}
			checkTaken(t, objects)
		})
	}
}

// TestInstallation: the API server takes all that is installed, knows every field of
// it, and what deploy has is in it, but for others' definitions.
func TestInstallation(t *testing.T) {
	var installed []string
	objects := kustomized(t)
	for _, o := range objects {
		installed = append(installed, manifests.Name(o))
	}
	checkTaken(t, objects)
	var shipped []string
	for _, dir := range []string{"crds", "policies", "programs", "rbac"} {
		files, err := fs.ReadDir(deploy.FS, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.IsDir() {
				continue
			}
			text, err := fs.ReadFile(deploy.FS, path.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			for doc := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
				shipped = append(shipped, manifests.Name(mustParse(t, doc)))
			}
		}
	}
	slices.Sort(installed)
	slices.Sort(shipped)
	if !slices.Equal(installed, shipped) {
		t.Errorf("kustomization.yaml installs\n%s\nwant\n%s", strings.Join(installed, "\n"), strings.Join(shipped, "\n"))
	}
}

// TestChartKeepsAttach: where agents keep the configuration of tenure-attach, the chart is
// not to be had without it: the file would stay on the nodes with nobody to keep it.
func TestChartKeepsAttach(t *testing.T) {
	c, kubeconfig := admin(t)
	upgrade := func(attach string) error {
		_, err := manifests.Chart(t.Context(), "--dry-run=server", "--is-upgrade", "--kubeconfig="+kubeconfig, "--set=attach.enabled="+attach)
		return err
	}
	for there, refused := range map[string]bool{"": false, "false": false, "true": true} {
		t.Run("installed "+there, func(t *testing.T) {
			if there != "" {
				installAgents(t, c, "--set=attach.enabled="+there)
			}
			if err := upgrade("true"); err != nil {
				t.Errorf("with attach.enabled: %v", err)
			}
			switch err := upgrade("false"); {
			case refused && (err == nil || !strings.Contains(err.Error(), "keep attach.enabled=true, or run kubectl tenure uninstall")):
				t.Errorf("without attach.enabled: %v; want it refused", err)
			case !refused && err != nil:
				t.Errorf("without attach.enabled: %v", err)
			}
		})
	}
}

// TestChartKeepsTheCertificate: an upgrade leaves the certificate of the webhooks as it is until
// its last year. Then it makes the next one, and has the one before trusted for a while.
func TestChartKeepsTheCertificate(t *testing.T) {
	c, kubeconfig := admin(t)
	upgrade := func() (secret manifests.Object, trusted string) {
		t.Helper()
		objects, err := manifests.Chart(t.Context(), "--dry-run=server", "--is-upgrade", "--kubeconfig="+kubeconfig, "--set=attach.enabled=true,podNetworks.enabled=true")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			switch o.GetKind() {
			case "Secret":
				secret = o
			case "ValidatingWebhookConfiguration":
				hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
				text, _, _ := unstructured.NestedString(hooks[0].(map[string]any), "clientConfig", "caBundle")
				pem, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					t.Fatal(err)
				}
				trusted = string(pem)
			}
		}
		return secret, trusted
	}
	secret, trusted := upgrade()
	installed := secret.DeepCopy()
	if err := c.Create(t.Context(), installed); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Delete(context.Background(), installed); err != nil {
			t.Error(err)
		}
	}()
	again, trustedAgain := upgrade()
	if diff := cmp.Diff(secret.Object, again.Object); diff != "" || trustedAgain != trusted {
		t.Errorf("an upgrade changes the certificate (-before +after), or who is trusted:\n%s", diff)
	}
	installed.SetAnnotations(map[string]string{certificate.RenewAfter: time.Now().AddDate(0, 0, -1).Format(time.DateOnly)})
	if err := c.Update(t.Context(), installed); err != nil {
		t.Fatal(err)
	}
	next, trustedNext := upgrade()
	if cmp.Equal(secret.Object["data"], next.Object["data"]) || next.GetAnnotations()[certificate.RenewAfter] != secret.GetAnnotations()[certificate.RenewAfter] {
		t.Errorf("in its last year a certificate is kept: it is to be renewed after %s", next.GetAnnotations()[certificate.RenewAfter])
	}
	if !strings.HasSuffix(trustedNext, trusted) || len(trustedNext) < 2*len(trusted)-200 {
		t.Errorf("the API server trusts\n%s\nwant two, the second\n%s", trustedNext, trusted)
	}
}

// TestChartKeepsOffAnUninstallation: while nodes are being cleaned the chart brings no agent. When
// they are clean it brings none that Helm alone would take away again.
func TestChartKeepsOffAnUninstallation(t *testing.T) {
	c, kubeconfig := admin(t)
	refused := func(what string) {
		t.Helper()
		if _, err := manifests.Chart(t.Context(), "--set=attach.enabled=true", "--dry-run=server", "--kubeconfig="+kubeconfig); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want it refused: %s", err, what)
		}
	}
	set := installAgents(t, c, "--set=attach.enabled=true")
	if err := marked(t.Context(), c, set, "true"); err != nil {
		t.Fatal(err)
	}
	refused("delete daemonset tenured first")
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenure-system"}}
	for o, mark := range map[client.Object]string{set: "", space: "true"} {
		if err := marked(t.Context(), c, o, mark); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := marked(context.Background(), c, space, "false"); err != nil {
			t.Error(err)
		}
	})
	refused("label namespace tenure-system tenure.dev/uninstall- first")
}

// admin returns an administrator's client, and a kubeconfig of his.
func admin(t *testing.T) (c client.Client, kubeconfig string) {
	t.Helper()
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	c, err := client.New(cp.Config(), client.Options{})
	if err := errors.Join(err, cp.Kubeconfig(kubeconfig)); err != nil {
		t.Fatal(err)
	}
	return c, kubeconfig
}

// installAgents makes the DaemonSet of the chart with that argument, until the test ends.
func installAgents(t *testing.T, c client.Client, arg string) manifests.Object {
	t.Helper()
	objects, err := manifests.Chart(t.Context(), arg)
	if err != nil {
		t.Fatal(err)
	}
	set := objects[slices.IndexFunc(objects, func(o manifests.Object) bool { return o.GetKind() == "DaemonSet" })]
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := marked(context.Background(), c, set, "true"); err != nil {
			t.Error(err)
		}
		fleet.Eventually(t, 10*time.Second, func() error { return client.IgnoreNotFound(c.Delete(context.Background(), set)) })
	})
	return set
}

// TestChartKeepsDirectories: where agents are, their directories stay: in others they would
// not find their stores, and old plugins and configurations would stay with nobody to keep
// them. The kubelet's may move.
func TestChartKeepsDirectories(t *testing.T) {
	c, kubeconfig := admin(t)
	const elsewhere = "--set=attach.enabled=true,directories.state=/opt/tenure"
	installAgents(t, c, elsewhere)
	for more, refused := range map[string]bool{
		"--set=image.tag=next":                 false,
		"--set=directories.kubelet=/k":         false,
		"--set=directories.state=/var/lib/ten": true,
		"--set=directories.cniBin=/b":          true,
		"--set=directories.cniConf=/c":         true,
		"--set=directories.cniState=/s":        true,
		"--set=directories.run=/r":             true,
	} {
		_, err := manifests.Chart(t.Context(), "--dry-run=server", "--is-upgrade", "--kubeconfig="+kubeconfig, elsewhere, more)
		switch {
		case refused && (err == nil || !strings.Contains(err.Error(), "keep the directories as they are")):
			t.Errorf("%s: %v; want it refused", more, err)
		case !refused && err != nil:
			t.Errorf("%s: %v", more, err)
		}
	}
}

// podsOf returns a pod of each of Tenure's programs, in a namespace, by name.
func podsOf(t *testing.T, namespace string) map[string]*corev1.Pod {
	t.Helper()
	pods := map[string]*corev1.Pod{}
	for _, o := range kustomized(t) {
		var template corev1.PodTemplateSpec
		switch o.GetKind() {
		case "DaemonSet":
			var d appsv1.DaemonSet
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
				t.Fatal(err)
			}
			template = d.Spec.Template
		case "Deployment":
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
				t.Fatal(err)
			}
			template = d.Spec.Template
		default:
			continue
		}
		pods[o.GetName()] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.GetName(), Labels: template.Labels}, Spec: template.Spec,
		}
	}
	return pods
}

// TestPodsOfPrograms: their pods are taken where they belong, with accounts and
// priorities that there are, and run without privileges: by the standard "restricted"
// the controller needs nothing, and the agent nothing but the host's network and
// directories, as root.
func TestPodsOfPrograms(t *testing.T) {
	c, err := client.New(cp.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range podsOf(t, "tenure-system") {
		awaitPriority(t, c, p.Spec.PriorityClassName)
		if err := c.Create(t.Context(), p, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		account := client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ServiceAccountName}
		if err := c.Get(t.Context(), account, &corev1.ServiceAccount{}); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}

	const restricted = "restricted"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: restricted, Labels: map[string]string{"pod-security.kubernetes.io/enforce": restricted}}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), ns); err != nil {
			t.Error(err)
		}
	})
	pods := podsOf(t, restricted)
	if err := c.Create(t.Context(), pods[controller], client.DryRunAll); err != nil {
		t.Errorf("the controller's pod: %v", err)
	}
	err = c.Create(t.Context(), pods[agent], client.DryRunAll)
	if !apierrors.IsForbidden(err) {
		t.Fatalf("the agent's pod: %v; want it forbidden, as it has the host's network", err)
	}
	_, violations, ok := strings.Cut(err.Error(), `violates PodSecurity "restricted:latest": `)
	if !ok {
		t.Fatalf("the agent's pod: %v; want it forbidden by the standard", err)
	}
	for v := range strings.SplitSeq(violations, "), ") {
		what, _, _ := strings.Cut(v, " (")
		// What installs the plugins, and keeps them, may write where the directory is another
		// user's.
		if strings.HasPrefix(v, `unrestricted capabilities (containers "install", "programs" must not include "DAC_OVERRIDE" in`) {
			continue
		}
		// The probes' host is where an agent in the host's network listens; SELinux would
		// keep another type from the host's files.
		if !slices.Contains([]string{"host namespaces", "probe or lifecycle host", "restricted volume types", "runAsNonRoot != true", "runAsUser=0", "seLinuxOptions"}, what) {
			t.Errorf("the agent's pod needs more than it should: %s", v)
		}
	}
}

// awaitPriority waits for a priority class: the API server makes its own some moments
// after its start.
func awaitPriority(t *testing.T, c client.Client, name string) {
	t.Helper()
	fleet.Eventually(t, time.Minute, func() error {
		return c.Get(t.Context(), client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
	})
}
