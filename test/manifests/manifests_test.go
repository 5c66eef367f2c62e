package manifests

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// images makes the base's images those of the chart's defaults.
const images = `images:
- {name: tenured, newName: tenure.dev/tenured, newTag: dev}
- {name: tenure-controller, newName: tenure.dev/tenure-controller, newTag: dev}
`

const attach = "components: [../../deploy/attach]\n"

// render fails the test where rendering fails.
func render(t *testing.T, objects []Object, err error) map[string]Object {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]Object{}
	for _, o := range objects {
		if by[Name(o)] != nil {
			t.Errorf("%s is there twice", Name(o))
		}
		by[Name(o)] = o
	}
	return by
}

// TestChartIsTheBase: object by object, the chart installs what kustomize does.
func TestChartIsTheBase(t *testing.T) {
	for name, tt := range map[string]struct {
		overlay string
		args    []string
	}{
		"defaults": {Base + images, nil},
		"the meta-plugin": {
			Base + images + attach, []string{"--set=attach.enabled=true"},
		},
		"other images": {
			Base + strings.NewReplacer("tenure.dev", "registry.example:5000/net", "dev}", "v7}").Replace(images),
			[]string{"--set=image.registry=registry.example:5000/net/,image.tag=v7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kustomized, err := Kustomize(t.Context(), tt.overlay)
			want := render(t, kustomized, err)
			delete(want, "Namespace /tenure-system") // Helm's to make
			charted, err := Chart(t.Context(), tt.args...)
			got := render(t, charted, err)
			for name, o := range got {
				if want[name] == nil {
					t.Errorf("only the chart has %s", name)
				}
				if o.GetKind() == "CustomResourceDefinition" {
					checkKept(t, o)
				}
			}
			for name, w := range want {
				if got[name] == nil {
					t.Errorf("the chart lacks %s", name)
				} else if diff := cmp.Diff(plainly(t, w), plainly(t, got[name])); diff != "" {
					t.Errorf("%s is not what kustomize makes of it (-kustomize +chart):\n%s", name, diff)
				}
			}
		})
	}
}

// checkKept checks that Helm leaves a definition in the cluster, and takes away what
// says so.
func checkKept(t *testing.T, o Object) {
	t.Helper()
	const policy = "helm.sh/resource-policy"
	if o.GetAnnotations()[policy] != "keep" {
		t.Errorf("%s goes with the chart, and every pool with it", Name(o))
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", policy)
}

// emptyLines are what kustomize adds to texts that are folded in the files: two line
// breaks where YAML has one.
var emptyLines = regexp.MustCompile(`(\\n)+`)

// plainly returns an object in which what is the same looks the same: numbers,
// configurations in text, and line breaks.
func plainly(t *testing.T, o Object) (plain map[string]any) {
	t.Helper()
	if data, ok, _ := unstructured.NestedMap(o.Object, "data"); ok {
		for key, text := range data {
			var v any
			if err := json.Unmarshal([]byte(text.(string)), &v); err != nil {
				t.Errorf("%s: %s: %v", Name(o), key, err)
			}
			data[key] = v
		}
		o.Object["data"] = data
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(emptyLines.ReplaceAll(text, []byte(`\n`)), &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestChartLeavesOthersDefinitions: what Helm installs only where it is absent, and
// never changes or removes, are upstream's definitions, all of them.
func TestChartLeavesOthersDefinitions(t *testing.T) {
	with, err := Chart(t.Context(), "--include-crds")
	if err != nil {
		t.Fatal(err)
	}
	without, err := Chart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	others := render(t, with, nil)
	for _, o := range without {
		delete(others, Name(o))
	}
	want := []string{
		"CustomResourceDefinition /ipamclaims.k8s.cni.cncf.io",
		"CustomResourceDefinition /network-attachment-definitions.k8s.cni.cncf.io",
	}
	if got := slices.Sorted(maps.Keys(others)); !slices.Equal(got, want) {
		t.Errorf("in crds/ are %q; want %q", got, want)
	}
}
