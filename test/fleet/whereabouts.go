package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
)

// Whereabouts gives the cluster whereabouts' kinds, and the policy that fences them, until
// the test ends.
func Whereabouts(t testing.TB, kc client.Client) {
	t.Helper()
	for _, text := range []string{
		crdOf("IPPool", "ippools", `"required": ["range", "allocations"], "properties": {"range": {"type": "string"},
			"allocations": {"type": "object", "additionalProperties": {"type": "object", "required": ["id", "podref"], "properties": {
			"id": {"type": "string"}, "ifname": {"type": "string"}, "podref": {"type": "string"}}}}}`),
		crdOf("OverlappingRangeIPReservation", "overlappingrangeipreservations", `"required": ["podref"], "properties": {
			"containerid": {"type": "string"}, "ifname": {"type": "string"}, "podref": {"type": "string"}}`),
	} {
		crd := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &crd.Object); err != nil {
			t.Fatal(err)
		}
		if err := kc.Create(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remove(t, kc, crd) })
	}
	Eventually(t, 20*time.Second, func() error {
		for _, o := range WhereaboutsLists() {
			if err := kc.List(t.Context(), o); err != nil {
				return err
			}
		}
		return nil
	})
	if err := install(t.Context(), kc, "policies/foreign-fence.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}}
		o.SetName(kube.FencePolicyName)
		t.Cleanup(func() { remove(t, kc, o) })
	}
}

// WhereaboutsLists returns empty lists of whereabouts' kinds.
func WhereaboutsLists() (all []*unstructured.UnstructuredList) {
	for _, o := range []*unstructured.Unstructured{kube.NewWhereaboutsPool("", ""), kube.NewWhereaboutsReservation("", "")} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(o.GetAPIVersion())
		list.SetKind(o.GetKind() + "List")
		all = append(all, list)
	}
	return all
}

// remove deletes an object, and waits until it is gone.
func remove(t testing.TB, kc client.Client, o client.Object) {
	t.Helper()
	Eventually(t, 20*time.Second, func() error {
		if err := kc.Delete(context.Background(), o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s is still there: %w", o.GetName(), err)
		}
		return nil
	})
}

// crdOf returns the definition of a kind of whereabouts', with as much of its schema as
// counts here.
func crdOf(kind, plural, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "%s.whereabouts.cni.cncf.io"},
		"spec": {"group": "whereabouts.cni.cncf.io", "scope": "Namespaced", "names": {"kind": %q, "listKind": "%[2]sList", "plural": %[1]q, "singular": %[4]q},
		"versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
		"spec": {"type": "object", %[3]s}}}}}]}}`, plural, kind, spec, plural[:len(plural)-1])
}
