package podnetworks

import (
	"maps"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
)

// TestInto: what would change who may select a definition is put back; what others keep on it is
// left.
func TestInto(t *testing.T) {
	n := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: "lan", UID: "u"}}
	n.Spec.ParametersRefs = []v1alpha1.ParametersRef{{Group: v1alpha1.GroupName, Kind: podnetwork.KindParameters, Namespace: "infra", Name: "lan"}}
	m := madeOfNetwork(n, podnetwork.Rendered{Config: "{}", Annotations: map[string]string{"tenure.dev/namespaces": ""}})
	if m.name != "podnetwork.lan" {
		t.Errorf("its name is %q", m.name)
	}
	o := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"team": "infra"},
		Annotations: map[string]string{
			"tenure.dev/namespaces": "*", "tenure.dev/namespace-selector": "a=b", "k8s.v1.cni.cncf.io/resourceName": "r", "note": "ours",
		},
	}}
	m.into(o)
	if want := map[string]string{"tenure.dev/namespaces": "", madeOf: "lan", "tenure.dev/made-for": "u", "note": "ours"}; !maps.Equal(o.Annotations, want) {
		t.Errorf("annotations are %v; want %v", o.Annotations, want)
	}
	if want := map[string]string{"team": "infra", madeOf: ofNetwork}; !maps.Equal(o.Labels, want) {
		t.Errorf("labels are %v; want %v", o.Labels, want)
	}
	if !isMade(o, ofNetwork, "lan") || isMade(o, ofNetwork, "other") || isMade(o, ofAttachment, "lan") {
		t.Error("it is not recognized as made of lan, or of others")
	}
	if o.Labels = nil; !isMade(o, ofNetwork, "lan") {
		t.Error("without its label it is not recognized by its owner")
	}
	if o.OwnerReferences = nil; isMade(o, ofNetwork, "lan") {
		t.Error("without label and owner it is taken for ours")
	}
}
