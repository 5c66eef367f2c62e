package imports

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/test/programs"
)

// schema is what a definition says of a field, as far as people have to know it.
type schema struct {
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Enum       []any             `json:"enum"`
	Default    any               `json:"default"`
	MaxItems   *int              `json:"maxItems"`
}

// words are what a row about the field must have: its values, and the names and values
// of what is below it.
func (s schema) words() (words []string) {
	for _, v := range append(s.Enum, s.Default) {
		if v != nil {
			words = append(words, fmt.Sprint(v))
		}
	}
	if s.MaxItems != nil {
		words = append(words, fmt.Sprint(*s.MaxItems))
	}
	if s.Items != nil {
		words = append(words, s.Items.words()...)
	}
	for name, below := range s.Properties {
		words = append(append(words, "`"+name+"`"), below.words()...)
	}
	return words
}

// TestEveryFieldOfAPoolIsExplained keeps the table of docs/reference/configuration.md and the
// definition of IPPool in step: each field has a row, with its default, its values and
// how many there may be.
func TestEveryFieldOfAPoolIsExplained(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/crds/tenure.dev_ippools.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil || len(crd.Spec.Versions) == 0 {
		t.Fatalf("the definition has versions %v, %v", crd.Spec.Versions, err)
	}
	fields := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	ranges := fields["ranges"].Items
	if ranges == nil || len(ranges.Properties) == 0 {
		t.Fatalf("the definition has no ranges, of fields %v", fields)
	}
	for name, f := range ranges.Properties {
		fields["ranges[]."+name] = f
	}
	fields["ranges"] = schema{MaxItems: fields["ranges"].MaxItems}

	_, section, _ := strings.Cut(documents(t)["docs/reference/configuration.md"], "\n## All fields of a pool\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for name, f := range fields {
		_, row, found := strings.Cut(section, "\n| `"+name+"` |")
		if !found {
			t.Errorf("docs/reference/configuration.md has no row of %s", name)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		for _, word := range f.words() {
			if !strings.Contains(row, word) {
				t.Errorf("the row of %s does not say %s", name, word)
			}
		}
	}
}
