package allocator

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports holds the package to what makes it testable without anything: no
// I/O, no clock, no logger, no context, and nothing from outside but netipx.
func TestImports(t *testing.T) {
	list := func(args ...string) []string {
		out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
		if err != nil {
			t.Fatalf("go list %v: %v", args, err)
		}
		return strings.Fields(string(out))
	}
	impure := []string{"context", "io", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "net", "os", "sync", "sync/atomic", "syscall", "testing", "time", "unsafe"}
	for _, imp := range list("-f", `{{join .Imports " "}}`, ".") {
		if slices.Contains(impure, imp) {
			t.Errorf("allocator imports %s; it takes values and returns values: pass what it needs as an argument", imp)
		}
	}
	for _, dep := range list("-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".") {
		if dep != "go4.org/netipx" && dep != "github.com/tenure-ipam/tenure/allocator" {
			t.Errorf("allocator depends on %s; the thin CNI binary and the simulation link it, so it depends on the standard library and netipx alone", dep)
		}
	}
}
