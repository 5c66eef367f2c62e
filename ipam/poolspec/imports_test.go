package poolspec

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports keeps the package fit for the CNI plugin, whose start-up is
// measured, and for every other part, whatever clients that has.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tenure-ipam/tenure/"
	for dep := range strings.FieldsSeq(string(out)) {
		switch first, _, _ := strings.Cut(dep, "/"); {
		case dep == module+"allocator", dep == module+"ipam/labels", dep == module+"ipam/lean/plainjson", dep == module+"ipam/poolspec", dep == "go4.org/netipx":
		case dep == "regexp", dep == "log", dep == "log/slog", dep == "net/http", strings.HasPrefix(dep, "crypto/"):
			t.Errorf("poolspec is linked into the CNI plugin and must start at no cost, but depends on %s", dep)
		case strings.Contains(first, "."):
			t.Errorf("poolspec may import the standard library, netipx, allocator, labels and plainjson, but depends on %s", dep)
		}
	}
}
