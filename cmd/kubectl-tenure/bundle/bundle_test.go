package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestTextsAreReadLast: what an agent's environment and a pod's annotation have of secrets is in no
// other object, log, Event or metric, however long it takes to read these.
func TestTextsAreReadLast(t *testing.T) {
	const inEnv, inAnnotation = "hush-of-the-environment", "hush-of-the-annotation"
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			http.NotFound(rw, r)
			return
		}
		fmt.Fprintln(rw, "the log says", inEnv, "and", inAnnotation)
	}))
	defer server.Close()
	scheme, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: agentName}}
	agents.Spec.Template.Spec.Containers = []corev1.Container{{Name: agentName, Args: []string{"--x=" + inEnv}, Env: []corev1.EnvVar{{Name: "A", Value: inEnv}}}}
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: "tenured-x", Labels: map[string]string{"app.kubernetes.io/name": agentName}}}
	agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "more", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Annotations: map[string]string{
		"k8s.v1.cni.cncf.io/networks": `[{"name":"lan","cni-args":{"password":"` + inAnnotation + `"}}]`,
	}}}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}, Message: "the Event says " + inAnnotation,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", UID: "web"},
	}
	slow := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			time.Sleep(100 * time.Millisecond)
			return c.Get(ctx, name, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if _, events := l.(*corev1.EventList); !events {
				time.Sleep(100 * time.Millisecond)
			}
			return c.List(ctx, l, opts...)
		},
	}
	kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(agents, agent, web, event).WithInterceptorFuncs(slow).Build()
	var packed bytes.Buffer
	b := &bundle{
		Session: &session.Session{Stderr: io.Discard, API: kube.NewAPI(kc), Client: kc, Rest: &rest.Config{Host: server.URL}},
		options: options{since: time.Hour, limit: 1 << 20}, redact: newRedactor(), out: newArchive(&packed, "d", time.Now()),
	}
	if err := b.connect(); err != nil {
		t.Fatal(err)
	}
	if err := b.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := unpack(t, &packed)
	for _, want := range []string{"the log says (left out) and (left out)", "the Event says (left out)", "--x=(left out)"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	for _, not := range []string{inEnv, inAnnotation} {
		if strings.Contains(text, not) {
			t.Errorf("there is %q in\n%s", not, text)
		}
	}
}

// TestMetricsAreScrubbed: what was left out of an object is not in metrics either.
func TestMetricsAreScrubbed(t *testing.T) {
	var packed bytes.Buffer
	b := &bundle{redact: newRedactor(), out: newArchive(&packed, "d", time.Now())}
	b.redact.learn("known-to-be-secret")
	if err := b.addMetrics(&corev1.Pod{}, []byte(`up{by="known-to-be-secret"} 1`)); err != nil {
		t.Fatal(err)
	}
	if err := b.out.close(); err != nil {
		t.Fatal(err)
	}
	if text := unpack(t, &packed); !strings.Contains(text, `up{by="(left out)"} 1`) {
		t.Error(text)
	}
}
