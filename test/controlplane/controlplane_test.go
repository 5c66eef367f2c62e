package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/proof"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(sandbox.Options{}, m.Run))
}

func client(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

func TestOutageAndRestart(t *testing.T) {
	proof.Only(t)
	ctx := t.Context()
	cp := controlplane.New(t, controlplane.Options{})
	k := client(t, cp.Config())
	maps := k.CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, configMap("kept"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	check := func(t *testing.T) {
		t.Helper()
		got, err := maps.Get(ctx, "kept", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("get ConfigMap: %v", err)
		}
		if got.UID != made.UID {
			t.Errorf("ConfigMap has UID %s; want %s", got.UID, made.UID)
		}
	}
	noAnswer := func(t *testing.T) {
		t.Helper()
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if _, err := maps.Get(short, "kept", metav1.GetOptions{}); err == nil || apierrors.IsNotFound(err) {
			t.Fatalf("get ConfigMap during the outage: %v; want no answer", err)
		}
	}

	outages := []struct {
		name       string
		begin, end func() error
	}{
		{"API server stopped", cp.StopAPIServer, func() error { return cp.StartAPIServer(ctx) }},
		{"API server paused", cp.PauseAPIServer, cp.ResumeAPIServer},
		{"etcd paused", cp.PauseEtcd, cp.ResumeEtcd},
		{"etcd and API server stopped",
			func() error { return errors.Join(cp.StopAPIServer(), cp.StopEtcd()) },
			func() error { return errors.Join(cp.StartEtcd(ctx), cp.StartAPIServer(ctx)) }},
	}
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			if err := o.begin(); err != nil {
				t.Fatal(err)
			}
			noAnswer(t)
			if err := o.end(); err != nil {
				t.Fatal(err)
			}
			check(t)
		})
	}
}

func TestRestoredEtcd(t *testing.T) {
	proof.Only(t)
	ctx := t.Context()
	cp := controlplane.New(t, controlplane.Options{})
	maps := client(t, cp.Config()).CoreV1().ConfigMaps("default")
	before, err := maps.Create(ctx, configMap("before"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := cp.SnapshotEtcd()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a snapshot can be restored again
		after, err := maps.Create(ctx, configMap("after"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := cp.RestoreEtcd(ctx, snapshot); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Get(ctx, "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get what was made after the snapshot (revision %s): %v; want not found", after.ResourceVersion, err)
		}
		if got, err := maps.Get(ctx, "before", metav1.GetOptions{}); err != nil || got.ResourceVersion != before.ResourceVersion {
			t.Errorf("what was made before has revision %s, %v; want %s", got.ResourceVersion, err, before.ResourceVersion)
		}
	}
	was, err := cp.EtcdRevision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.RaiseEtcdRevision(ctx, was+100); err != nil {
		t.Fatal(err)
	}
	raised, err := maps.Create(ctx, configMap("raised"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := strconv.ParseInt(raised.ResourceVersion, 10, 64); err != nil || got <= was+100 {
		t.Errorf("after revision %d was raised by 100, an object is made at %s, %v", was, raised.ResourceVersion, err)
	}
}

func TestSlowEtcd(t *testing.T) {
	proof.Only(t)
	const delay = 300 * time.Millisecond
	ctx := t.Context()
	cp := controlplane.New(t, controlplane.Options{DelayableEtcd: true})
	maps := client(t, cp.Config()).CoreV1().ConfigMaps("default")
	took := func(name string) time.Duration {
		t.Helper()
		began := time.Now()
		if _, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	took("first")
	if err := cp.DelayEtcd(delay); err != nil {
		t.Fatal(err)
	}
	if got := took("slow"); got < delay {
		t.Errorf("a create took %v; want %v or more", got, delay)
	}
	if err := cp.DelayEtcd(0); err != nil {
		t.Fatal(err)
	}
	took("last")
	if err := errors.Join(cp.StopAPIServer(), cp.StopEtcd(), cp.StartEtcd(ctx), cp.StartAPIServer(ctx)); err != nil {
		t.Fatal(err)
	}
	took("restarted")
	if err := controlplane.New(t, controlplane.Options{}).DelayEtcd(delay); err == nil {
		t.Error("etcd without a proxy is delayed")
	}
}

func TestUsers(t *testing.T) {
	ctx := t.Context()
	cp := controlplane.New(t, controlplane.Options{})
	admin := client(t, cp.Config())

	nobody, err := cp.AddUser("somebody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, nobody).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list as a user without rights: %v; want forbidden", err)
	}

	node, err := cp.AddNode("n1")
	if err != nil {
		t.Fatal(err)
	}
	nodes := client(t, node).CoreV1().Nodes()
	n1, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("a kubelet creates its node: %v; want it to be let", err)
	}
	if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet creates another node: %v; want forbidden", err)
	}

	accounts := admin.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := admin.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "agent",
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, bound := range []*authentication.BoundObjectReference{
		{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		{Kind: "Node", APIVersion: "v1", Name: n1.Name, UID: n1.UID},
	} {
		t.Run("token bound to a "+bound.Kind, func(t *testing.T) {
			agent, err := cp.ServiceAccount(ctx, "default", "agent", bound)
			if err != nil {
				t.Fatal(err)
			}
			me, err := client(t, agent).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := me.Status.UserInfo.Username, "system:serviceaccount:default:agent"; got != want {
				t.Errorf("the token's user is %q; want %q", got, want)
			}
			if got := me.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"]; len(got) != 1 || got[0] != "n1" {
				t.Errorf("the token's node is %q; want n1", got)
			}
		})
	}
}

func TestKubeconfigServesKubectl(t *testing.T) {
	cp := controlplane.New(t, controlplane.Options{})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.Kubeconfig(path); err != nil {
		t.Fatal(err)
	}
	kubectl, err := programs.Find("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", path, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Server Version: v1.") {
		t.Errorf("kubectl version: %v\n%s", err, out)
	}
}

// crd is a definition as an installation would read it from a file.
const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test.tenure.dev}
spec:
  group: test.tenure.dev
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`

func TestGarbageCollectorDeletesWhatAnOwnerLeaves(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "things.yaml"), []byte(crd), 0o644); err != nil {
		t.Fatal(err)
	}
	cp := controlplane.New(t, controlplane.Options{
		CRDs:        []string{dir},
		Controllers: []string{controlplane.GarbageCollector},
	})
	dyn, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	things := dyn.Resource(schema.GroupVersionResource{Group: "test.tenure.dev", Version: "v1", Resource: "things"}).Namespace("default")
	thing := func(name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("test.tenure.dev/v1")
		u.SetKind("Thing")
		u.SetName(name)
		u.SetOwnerReferences(owners)
		made, err := things.Create(ctx, u, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	owner := thing("owner")
	thing("owned", metav1.OwnerReference{APIVersion: "test.tenure.dev/v1", Kind: "Thing", Name: "owner", UID: owner.GetUID()})
	thing("free")
	if err := things.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := things.Get(ctx, "owned", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get what the owner left: %v; want not found", err)
	})
	if _, err := things.Get(ctx, "free", metav1.GetOptions{}); err != nil {
		t.Errorf("get what nobody owns: %v; want it untouched", err)
	}
}

func TestFaultOfAComponentShowsItsLog(t *testing.T) {
	_, err := controlplane.Start(t.Context(), controlplane.Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("start with a wrong argument: %v; want the API server's own words", err)
	}
}

func TestLeavesNothing(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := cp.Dir()
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("stop again: %v; want no error", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s after Stop: %v; want no such file", dir, err)
	}
}

// eventually waits for cond, which another process brings about.
func eventually(t *testing.T, cond func() error) {
	t.Helper()
	if err := process.Await(t.Context(), process.Patience, func(context.Context) error { return cond() }); err != nil {
		t.Fatal(err)
	}
}
