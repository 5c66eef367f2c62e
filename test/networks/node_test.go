// Package resolve_test proves the agent's half of the meta-plugin against a real API
// server, with the rights and under the policies that Tenure is shipped with.
package networks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
)

var (
	cp *controlplane.ControlPlane
	kc client.Client
)

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (int, error) {
		cp, kc = c.ControlPlane, c.Client
		accounts, err := fleet.Install(ctx, cp, kc, "policies")
		if err != nil {
			return 0, err
		}
		if err := awaitPolicies(ctx, accounts.Agent); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

// awaitPolicies returns when the API server enforces the policies, some moments after
// their creation: it refuses an agent whose credentials do not name its node.
func awaitPolicies(ctx context.Context, agent *rest.Config) error {
	pod := podOn("default", "probe", "none")
	if err := kc.Create(ctx, pod); err != nil {
		return err
	}
	api, _, err := kube.Dial(agent)
	if err != nil {
		return err
	}
	try := 0
	return process.Await(ctx, minute, func(ctx context.Context) error {
		try++
		out, err := api.AnnotatePod(ctx, client.ObjectKeyFromObject(pod), protocol.UID(pod.UID), map[string]string{statusKey: fmt.Sprint(try)})
		switch {
		case out == protocol.Refused:
			return kc.Delete(ctx, pod, client.GracePeriodSeconds(0))
		case err != nil:
			return process.Final(err)
		}
		return errors.New("the policies are not enforced")
	})
}

// minute bounds what a test waits for.
const minute = time.Minute

// node starts the agent of a node with the token that its own pod would have: it names
// the node, as the policies want it.
func node(t *testing.T, name string) *fleet.Node {
	t.Helper()
	return fleetOf(t, name).Start(name)
}

// fleetOf returns a fleet with that node's token, whose metrics can be read.
func fleetOf(t *testing.T, node string) *fleet.Fleet {
	t.Helper()
	f := fleet.New(t, tokenOf(t, node))
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	f.Change = func(c *daemon.Config) { c.Listen = address }
	return f
}

func tokenOf(t *testing.T, node string) *rest.Config {
	t.Helper()
	pod := newPod(t, kube.DefaultRegistrationNamespace, "tenured-"+node, node, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "tenured" })
	rc, err := cp.ServiceAccount(t.Context(), kube.DefaultRegistrationNamespace, "tenured", &authentication.BoundObjectReference{
		Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
	})
	if err != nil {
		t.Fatal(err)
	}
	return rc
}

// newPod creates a pod that is bound to a node, and deletes it when the test ends. No
// kubelet runs it.
func newPod(t *testing.T, namespace, name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := podOn(namespace, name, node, change...)
	create(t, pod)
	return pod
}

// podOn returns a pod that is bound to a node, and that has no token.
func podOn(namespace, name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// selecting has a pod select networks.
func selecting(networks string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "k8s.v1.cni.cncf.io/networks", networks)
	}
}

// newNamespace creates a namespace of the test's own.
func newNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-", Labels: labels}}
	if err := kc.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}})
	return ns.Name
}

func define(t *testing.T, namespace, name, config string, annotations map[string]string) {
	t.Helper()
	create(t, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: config},
	})
}

// create creates an object, and deletes it when the test ends.
func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := kc.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, o) })
}

// confirmDeletion says of a lease or a sub-lease, if it is there, that it is to be deleted
// by hand, as the policy wants it.
func confirmDeletion(t *testing.T, o client.Object) {
	t.Helper()
	const confirmed = `{"metadata":{"annotations":{"tenure.dev/deletion":"confirmed"}}}`
	if err := kc.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(confirmed))); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// remove deletes an object at once, if it is there.
func remove(t *testing.T, o client.Object) {
	t.Helper()
	switch o.(type) {
	case *v1alpha1.IPLease, *v1alpha1.IPSubLease:
		confirmDeletion(t, o)
	}
	if err := kc.Delete(context.Background(), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// ask asks a node's agent what the meta-plugin asks.
func ask(n *fleet.Node, q facts.Question) (facts.Answer, error) {
	var a facts.Answer
	resp, err := call(n, agentapi.Facts, q)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(resp.Facts, &a)
}

func mustAsk(t *testing.T, n *fleet.Node, pod *corev1.Pod, named ...facts.Ref) facts.Answer {
	t.Helper()
	a, err := ask(n, facts.Question{Pod: refOf(pod), Networks: named, DefaultNamespace: "kube-system"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func refOf(pod *corev1.Pod) facts.PodRef {
	return facts.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

// report tells a node's agent what the meta-plugin tells.
func report(t *testing.T, n *fleet.Node, r facts.Report) {
	t.Helper()
	if _, err := call(n, agentapi.Report, r); err != nil {
		t.Fatal(err)
	}
}

// call makes one call of the node socket.
func call(n *fleet.Node, verb agentapi.Verb, body any) (agentapi.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return agentapi.Response{}, err
	}
	resp, err := agentapi.Once(context.Background(), minute, n.Config().Socket, agentapi.Request{Verb: verb, Ask: raw})
	if err == nil && resp.Error != nil {
		err = resp.Error
	}
	return resp, err
}

// annotations reads those of a pod.
func annotations(pod *corev1.Pod) (map[string]string, error) {
	var now corev1.Pod
	if err := kc.Get(context.Background(), client.ObjectKeyFromObject(pod), &now); err != nil {
		return nil, err
	}
	return now.Annotations, nil
}

const statusKey = "k8s.v1.cni.cncf.io/network-status"

// awaitStatus waits until a pod has that status.
func awaitStatus(t *testing.T, pod *corev1.Pod, want string) {
	t.Helper()
	fleet.Eventually(t, minute, func() error {
		got, err := annotations(pod)
		if err == nil && got[statusKey] != want {
			err = fmt.Errorf("status of pod %s/%s is %q; want %q", pod.Namespace, pod.Name, got[statusKey], want)
		}
		return err
	})
}
