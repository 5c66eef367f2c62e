package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// agentClient returns a client with the agent's rights, whose token is bound to the agent's pod,
// or to nothing where that is nil.
func agentClient(t *testing.T, pod *corev1.Pod) kubernetes.Interface {
	t.Helper()
	var bound *authentication.BoundObjectReference
	if pod != nil {
		bound = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	cfg, err := cp.ServiceAccount(t.Context(), "tenure-system", agent, bound)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// podOn creates a pod that is bound to a node.
func podOn(t *testing.T, k kubernetes.Interface, node, name string) *corev1.Pod {
	t.Helper()
	none := false
	pod, err := k.CoreV1().Pods("tenure-system").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"example.org/owner": "me"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: agent, AutomountServiceAccountToken: &none,
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}, createOptions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now := int64(0)
		if err := k.CoreV1().Pods("tenure-system").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Error(err)
		}
	})
	return pod
}

// TestAgentAnnotatesItsOwnPodsOnly, with tokens of the agent's service account: one
// that names its node, as a pod's does, and one that does not.
func TestAgentAnnotatesItsOwnPodsOnly(t *testing.T) {
	k, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	mine, others := podOn(t, k, "node-a", "mine"), podOn(t, k, "node-b", "others")
	bound, unbound := agentClient(t, mine), agentClient(t, nil)
	patch := func(c kubernetes.Interface, pod *corev1.Pod, sub, body string) error {
		_, err := c.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub)
		return err
	}
	const status = `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":"[]"}}}`
	// The API server notices a new policy some moments after its creation.
	awaitRefusal(t, func() error { return patch(unbound, mine, "status", status) })

	if err := patch(bound, mine, "status", status); err != nil {
		t.Errorf("the status annotation of a pod of its node: got %v; want it written", err)
	}
	if err := patch(bound, mine, "status", `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":"[1]"}}}`); err != nil {
		t.Errorf("once more: got %v; want it written", err)
	}
	for _, tt := range []struct {
		name      string
		c         kubernetes.Interface
		pod       *corev1.Pod
		sub, body string
		want      string
	}{
		{"a pod of another node", bound, others, "status", status, "is not on node node-a"},
		{"a token without a node", unbound, mine, "status", status, "its token names no node"},
		{"another annotation", bound, mine, "status", `{"metadata":{"annotations":{"example.org/new":"x"}}}`, "no other annotation"},
		{"another one's annotation changed", bound, mine, "status", `{"metadata":{"annotations":{"example.org/owner":"you"}}}`, "no other annotation"},
		{"another one's annotation removed", bound, mine, "status", `{"metadata":{"annotations":{"example.org/owner":null}}}`, "no other annotation"},
		{"a label", bound, mine, "status", `{"metadata":{"labels":{"app":"db"}}}`, "nothing of pods but annotations"},
		{"a finalizer", bound, mine, "status", `{"metadata":{"finalizers":["example.org/x"]}}`, "nothing of pods but annotations"},
		{"the phase", bound, mine, "status", `{"status":{"phase":"Succeeded"}}`, "nothing of pods but annotations"},
		{"the address", bound, mine, "status", `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`, "nothing of pods but annotations"},
		{"the image", bound, mine, "", `{"spec":{"containers":[{"name":"c","image":"evil"}]}}`, "cannot patch resource \"pods\""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := patch(tt.c, tt.pod, tt.sub, tt.body)
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want it refused with %q", err, tt.want)
			}
		})
	}
	if err := patch(k, others, "status", `{"metadata":{"annotations":{"example.org/new":"x"}}}`); err != nil {
		t.Errorf("somebody else is bound by the agent's policy: %v", err)
	}
}

// awaitRefusal returns once try is refused.
func awaitRefusal(t *testing.T, try func() error) {
	t.Helper()
	fleet.Eventually(t, time.Minute, func() error {
		if try() == nil {
			return errors.New("the policy is not enforced")
		}
		return nil
	})
}
