// Package api_test proves what the manifests in deploy refuse and accept, on a
// real API server.
package api_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
)

// The one API server of this package: no test leaves an object that another one
// sees.
var (
	cp      *controlplane.ControlPlane
	cluster dynamic.Interface

	getOptions    metav1.GetOptions
	createOptions metav1.CreateOptions
	dryOptions    = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
)

var (
	pools        = schema.GroupVersionResource{Group: "tenure.dev", Version: "v1alpha1", Resource: "ippools"}
	leases       = schema.GroupVersionResource{Group: "tenure.dev", Version: "v1alpha1", Resource: "ipleases"}
	subLeases    = schema.GroupVersionResource{Group: "tenure.dev", Version: "v1alpha1", Resource: "ipsubleases"}
	reservations = schema.GroupVersionResource{Group: "tenure.dev", Version: "v1alpha1", Resource: "ipreservations"}
)

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{Controllers: []string{}}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp = c.ControlPlane
		if cluster, err = dynamic.NewForConfig(cp.Config()); err != nil {
			return 0, err
		}
		if err := errors.Join(fleet.InstallPolicies(ctx, c.Client), fleet.InstallRoles(ctx, c.Client)); err != nil {
			return 0, err
		}
		if err := awaitPolicy(ctx); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

// awaitPolicy returns when the API server enforces the policy of pools: it
// notices new policies some moments after their creation.
func awaitPolicy(ctx context.Context) error {
	probe, err := parse(object("IPPool", "probe", `{ranges: [{cidr: "fd00::/64", start: "fd00::2", end: "fd00::1"}]}`))
	if err != nil {
		return err
	}
	return process.Await(ctx, process.Patience, func(ctx context.Context) error {
		_, err := cluster.Resource(pools).Create(ctx, probe, dryOptions)
		switch {
		case apierrors.IsInvalid(err):
			return nil
		case err != nil:
			return process.Final(err)
		}
		return errors.New("policies are not enforced")
	})
}

func parse(text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return nil, fmt.Errorf("%w in:\n%s", err, text)
	}
	return o, nil
}

// object is the text of an object of tenure.dev whose spec is YAML in one line.
func object(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: tenure.dev/v1alpha1\nkind: %s\nmetadata: {name: %q}\nspec: %s\n", kind, name, spec)
}

func mustParse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// dryRun creates the object without keeping it: schema, rules and policies are
// applied as always.
func dryRun(t *testing.T, r schema.GroupVersionResource, text string) error {
	t.Helper()
	_, err := cluster.Resource(r).Create(t.Context(), mustParse(t, text), dryOptions)
	return err
}

// create keeps the object until the test ends.
func create(t *testing.T, r schema.GroupVersionResource, text string) {
	t.Helper()
	o, err := cluster.Resource(r).Create(t.Context(), mustParse(t, text), createOptions)
	if err != nil {
		t.Fatalf("create: %v\n%s", err, text)
	}
	t.Cleanup(func() {
		// What people must say first where they delete a lease or a sub-lease.
		const confirmed = `{"metadata":{"annotations":{"tenure.dev/deletion":"confirmed"}}}`
		if _, err := cluster.Resource(r).Patch(context.Background(), o.GetName(), "application/merge-patch+json", []byte(confirmed), metav1.PatchOptions{}); err != nil {
			t.Errorf("confirm deletion: %v", err)
		}
		if err := cluster.Resource(r).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
}

// change merges patch, YAML in one line, into the object's main resource or the
// sub-resource named.
func change(t *testing.T, r schema.GroupVersionResource, name, patch string, sub ...string) error {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		t.Fatalf("%v in %s", err, patch)
	}
	_, err = cluster.Resource(r).Patch(t.Context(), name, "application/merge-patch+json", data, metav1.PatchOptions{}, sub...)
	return err
}

// checkAccepted checks that err is nil.
func checkAccepted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("refused: %v; want accepted", err)
	}
}

// checkRefused checks that err refuses an object as invalid in the words of
// want, and that no rule failed to run.
func checkRefused(t *testing.T, err error, want ...string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v; want it refused as invalid: %q", err, want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v; want it to say %q", err, w)
		}
	}
	for _, broken := range []string{"no such", "budget", "evaluat", "conversion", "rule:", "internal error"} {
		if strings.Contains(err.Error(), broken) {
			t.Errorf("got %v; want no broken rule (%q)", err, broken)
		}
	}
}
