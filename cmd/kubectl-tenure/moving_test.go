package main

import (
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestManifestKeeps: the manifest that is printed has what whoever wrote the definition gave it,
// and nothing that the API server added.
func TestManifestKeeps(t *testing.T) {
	o := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "lan", UID: "u", ResourceVersion: "7", Generation: 3, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		Labels:      map[string]string{"app": "lan"},
		Annotations: map[string]string{"k8s.v1.cni.cncf.io/resourceName": "intel.com/sriov", v1alpha1.AnnotationDomain: "blue", corev1.LastAppliedConfigAnnotation: "{}"},
	}}
	o.Spec.Config = `{"ipam":{"type":"whereabouts"}}`
	text, err := manifestOf(o, "whereabouts", "tenure")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := `annotations:
  k8s.v1.cni.cncf.io/resourceName: intel.com/sriov
  tenure.dev/domain: blue
labels:
  app: lan
name: lan
namespace: ns
`
	if metadata, _ := yaml.Marshal(got["metadata"]); string(metadata) != want {
		t.Errorf("metadata is\n%s\nwant\n%s", metadata, want)
	}
	if o.Annotations[corev1.LastAppliedConfigAnnotation] == "" {
		t.Error("the object itself was changed")
	}
}
