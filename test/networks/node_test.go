package networks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

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
	f.Change = func(c *daemon.Config) { c.Listen, c.MultiNetwork = address, true }
	return f
}

func tokenOf(t *testing.T, node string) *rest.Config {
	t.Helper()
	pod := newPod(t, kube.DefaultRegistrationNamespace, "tenured-"+node, node, "", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "tenured" })
	rc, err := cp.ServiceAccount(t.Context(), kube.DefaultRegistrationNamespace, "tenured", &authentication.BoundObjectReference{
		Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
	})
	if err != nil {
		t.Fatal(err)
	}
	return rc
}

// newPod creates a pod that is bound to a node and selects definitions, and deletes it when the
// test ends. No kubelet runs it.
func newPod(t *testing.T, namespace, name, node, list string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	return create(t, podOn(namespace, name, node, list, change...))
}

// podOn returns a pod that is bound to a node and selects definitions.
func podOn(namespace, name, node, list string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := podWith(namespace, npwg.AnnotationNetworks, list)
	p.Name, p.Spec.NodeName = name, node
	for _, c := range change {
		c(p)
	}
	return p
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

// awaitStatus waits until a pod has that status.
func awaitStatus(t *testing.T, pod *corev1.Pod, want string) {
	t.Helper()
	fleet.Eventually(t, minute, func() error {
		got, err := annotations(pod)
		if err == nil && got[npwg.AnnotationStatus] != want {
			err = fmt.Errorf("status of pod %s/%s is %q; want %q", pod.Namespace, pod.Name, got[npwg.AnnotationStatus], want)
		}
		return err
	})
}
