package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/deploy"
)

// TestManifestFitsTheProgram: the program of deploy/programs/tenure-controller.yaml
// takes its arguments, and listens where it is probed and scraped.
func TestManifestFitsTheProgram(t *testing.T) {
	text, err := deploy.FS.ReadFile("programs/tenure-controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(first), &deployment); err != nil {
		t.Fatal(err)
	}
	c := deployment.Spec.Template.Spec.Containers[0]
	namespace := ""
	for _, e := range c.Env {
		if e.Name == "POD_NAMESPACE" && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace" {
			namespace = deployment.Namespace
		}
	}
	if namespace == "" {
		t.Error("the pod does not tell the program its namespace")
	}
	opts, err := parse(c.Args, env(map[string]string{"POD_NAMESPACE": namespace}), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if n := *deployment.Spec.Replicas; n > 1 && !opts.controller.LeaderElection {
		t.Errorf("%d controllers work at once without a leader", n)
	}
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = fmt.Sprintf(":%d", p.ContainerPort)
	}
	if ports["health"] != opts.controller.Health || ports["metrics"] != opts.controller.Metrics {
		t.Errorf("the pod's ports are %v; the program listens at %s and %s", ports, opts.controller.Health, opts.controller.Metrics)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if at := probe.HTTPGet; at.Path != path || at.Port.String() != "health" {
			t.Errorf("%s is asked for at port %s, %s", path, at.Port.String(), at.Path)
		}
	}
}
