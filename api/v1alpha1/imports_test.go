package v1alpha1_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports keeps the API free of everything of ours, so that anyone can
// import it, and light: of Kubernetes it needs apimachinery alone.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		ours := strings.HasPrefix(dep, "github.com/tenure-ipam/") && dep != "github.com/tenure-ipam/tenure/api/v1alpha1"
		client := strings.HasPrefix(dep, "k8s.io/client-go") || strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime")
		if ours || client {
			t.Errorf("api/v1alpha1 is types alone, but depends on %s", dep)
		}
	}
}
