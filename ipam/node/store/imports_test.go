package store

import (
	"os/exec"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	forbidden := map[string]string{
		"k8s.io/":                         "what a node promised holds without a cluster",
		"sigs.k8s.io/":                    "what a node promised holds without a cluster",
		"github.com/containernetworking/": "the store knows attachments, not how they are asked for",
		"net/http":                        "local mode opens the store in programs that live for a millisecond",
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for prefix, reason := range forbidden {
			if strings.HasPrefix(dep, prefix) {
				t.Errorf("store depends on %s: %s", dep, reason)
			}
		}
		const own = "github.com/tenure-ipam/tenure/"
		if rest, ok := strings.CutPrefix(dep, own); ok && rest != "allocator" && rest != "ipam/protocol" && rest != "ipam/node/store" && rest != "ipam/node/store/disk" {
			t.Errorf("store depends on %s: it may know allocator and ipam/protocol alone", dep)
		}
	}
}
