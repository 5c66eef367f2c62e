package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// marked has an object carry the mark of kubectl tenure uninstall, or not.
func marked(ctx context.Context, c client.Client, o client.Object, mark string) error {
	patch := fmt.Sprintf(`{"metadata": {"labels": {"tenure.dev/uninstall": %q}}}`, mark)
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// TestUninstallComesFirst: while agents are on the nodes nobody deletes what Tenure needs, and Helm
// does not begin to. It is the mark that lets it go. With pools nobody deletes the definitions.
func TestUninstallComesFirst(t *testing.T) {
	c, _ := admin(t)
	names := func(version, kind, namespace, name string) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		o.APIVersion, o.Kind = version, kind
		return o
	}
	deletes := func(o client.Object) func() error {
		return func() error { return c.Delete(t.Context(), o, client.DryRunAll) }
	}
	expect := func(do func() error, refusal string) {
		t.Helper()
		fleet.Eventually(t, 10*time.Second, func() error {
			err := do()
			if refusal == "" {
				return err
			}
			if err == nil || !strings.Contains(err.Error(), refusal) {
				return fmt.Errorf("%v; want it refused: %s", err, refusal)
			}
			return nil
		})
	}
	const first = "Run kubectl tenure uninstall first"
	set := installAgents(t, c, "--set=attach.enabled=false")
	space := names("v1", "Namespace", "", "tenure-system")
	hook := func() error {
		return c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: "tenure-uninstall"}}, client.DryRunAll)
	}
	for _, do := range []func() error{hook, deletes(space), deletes(set)} {
		expect(do, first)
	}
	for _, o := range []client.Object{space, set} {
		if err := marked(t.Context(), c, o, "true"); err != nil {
			t.Fatal(err)
		}
		expect(deletes(o), "")
	}
	expect(hook, "")
	if err := marked(t.Context(), c, space, "false"); err != nil {
		t.Fatal(err)
	}
	expect(hook, first)

	definition := deletes(names("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "ippools.tenure.dev"))
	expect(definition, "")
	pool := names("tenure.dev/v1alpha1", "IPPool", "", "keeps-definitions")
	full := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenure.dev/v1alpha1", "kind": "IPPool", "metadata": map[string]any{"name": pool.Name},
		"spec": map[string]any{"ranges": []any{map[string]any{"cidr": "10.99.0.0/24"}}},
	}}
	if err := c.Create(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	expect(definition, "there is pool keeps-definitions, ")
	if err := c.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	expect(definition, "")
}
