package api_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestAgentTellsOfItsOwnNode: the agent writes events in its node's name alone, with
// tokens of its service account: one that names its node, and one that does not.
func TestAgentTellsOfItsOwnNode(t *testing.T) {
	k, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	mine := podOn(t, k, "node-a", "teller")
	bound, unbound := agentClient(t, mine), agentClient(t, nil)
	event := func(kind, name string, change func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "e-", Namespace: "default"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Name: name},
			Reason:         "Said", Message: "something", Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: agent, Host: "node-a"},
		}
		if kind == "Pod" {
			e.InvolvedObject.Namespace = e.Namespace
		}
		if change != nil {
			change(e)
		}
		return e
	}
	write := func(c kubernetes.Interface, e *corev1.Event) (*corev1.Event, error) {
		got, err := c.CoreV1().Events(e.Namespace).Create(t.Context(), e, createOptions)
		if err == nil {
			t.Cleanup(func() {
				if err := k.CoreV1().Events(got.Namespace).Delete(context.Background(), got.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		return got, err
	}
	patch := func(c kubernetes.Interface, e *corev1.Event, body string) error {
		_, err := c.CoreV1().Events(e.Namespace).Patch(t.Context(), e.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	// The API server notices a new policy some moments after its creation.
	awaitRefusal(t, func() error {
		_, err := write(unbound, event("Node", "node-a", nil))
		return err
	})

	ours, err := write(bound, event("Node", "node-a", nil))
	if err != nil {
		t.Fatalf("of its node: got %v; want it written", err)
	}
	if err := patch(bound, ours, `{"count":2}`); err != nil {
		t.Errorf("once more: got %v; want it counted", err)
	}
	if _, err := write(bound, event("Pod", "some", nil)); err != nil {
		t.Errorf("of a pod: got %v; want it written", err)
	}
	theirs, err := write(k, event("Node", "node-a", func(e *corev1.Event) { e.Source.Component = "kubelet" }))
	if err != nil {
		t.Errorf("somebody else is bound by the agent's policy: %v", err)
	}
	refused := func(name, want string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want it refused with %q", name, err, want)
		}
	}
	for _, tt := range []struct {
		name  string
		c     kubernetes.Interface
		event *corev1.Event
		want  string
	}{
		{"another node", bound, event("Node", "node-b", nil), "of pods, and of its node node-a"},
		{"another kind", bound, event("IPPool", "lan", nil), "of pods, and of its node node-a"},
		{"in the name of another node", bound, event("Pod", "some", func(e *corev1.Event) { e.Source.Host = "node-b" }), "on node node-a alone"},
		{"in no node's name", bound, event("Pod", "some", func(e *corev1.Event) { e.Source.Host = "" }), "on node node-a alone"},
		{"in the name of another program", bound, event("Pod", "some", func(e *corev1.Event) { e.Source.Component = "kubelet" }), "on node node-a alone"},
		{"a token without a node", unbound, event("Node", "node-a", nil), "names no node"},
	} {
		_, err := write(tt.c, tt.event)
		refused(tt.name, tt.want, err)
	}
	refused("somebody else's event", "on node node-a alone", patch(bound, theirs, `{"count":2}`))
	refused("somebody else's event made its own", "on node node-a alone", patch(bound, theirs, `{"source":{"component":"tenured","host":"node-a"}}`))
	refused("its event made another node's", "of pods, and of its node node-a", patch(bound, ours, `{"involvedObject":{"name":"node-b"}}`))
}
