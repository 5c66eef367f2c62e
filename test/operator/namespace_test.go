package operator_test

import (
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPodByNamespace: of a network that goes by a label of the namespace a pod is told what the
// label lacks, and the pool that it names is shown.
func TestPodByNamespace(t *testing.T) {
	w := newWorld(t)
	w.openPool()
	create(t, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "tenants"},
		Spec: nad.NetworkAttachmentDefinitionSpec{
			Config: `{"cniVersion":"1.0.0","name":"tenants","type":"macvlan","ipam":{"type":"tenure","pools":{"byNamespace":"tenure.dev/pool"}}}`,
		},
	})
	label := func(pool string) {
		t.Helper()
		of := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		if err := kc.Patch(t.Context(), of, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tenure.dev/pool":"`+pool+`"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	w.waiting("web", nad.NetworkAttachmentAnnot, "tenants")
	const lacks = "label tenure.dev/pool of namespace "
	says(t, tenure(t, 3, "pod", w.namespace+"/web"), lacks+w.namespace+" is to name its pool, and is not there: kubectl label namespace "+w.namespace+" tenure.dev/pool=POOL")
	says(t, tenure(t, 3, "explain", "web", "-n", w.namespace), lacks+w.namespace)
	label("nowhere")
	says(t, tenure(t, 3, "pod", w.namespace+"/web"), "pool nowhere does not exist")
	label(w.pool.Name)
	says(t, tenure(t, 3, "pod", w.namespace+"/web"), "tenants - "+w.pool.Name, "nothing of what can be seen from here stands in the way")
}
