package programs_test

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/test/programs"
)

func TestFind(t *testing.T) {
	assets, bin := t.TempDir(), t.TempDir()
	for _, path := range []string{
		filepath.Join(assets, "in-assets"), filepath.Join(bin, "in-assets"),
		filepath.Join(bin, "in-path"),
	} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(assets, "in-path"), []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Setenv("PATH", bin)
	for name, want := range map[string]string{"in-assets": assets, "in-path": bin} {
		got, err := programs.Find(name)
		if err != nil || got != filepath.Join(want, name) {
			t.Errorf("Find(%s) = %q, %v; want it in %s", name, got, err, want)
		}
	}
	if _, err := programs.Find("nowhere"); err == nil || !strings.Contains(err.Error(), "make rig") {
		t.Errorf("Find of a program that is nowhere: %v; want the remedy", err)
	}
}

// TestAnotherKube: what there is of the version that is asked for comes before the usual one, and a
// version that is not built is said.
func TestAnotherKube(t *testing.T) {
	rig := t.TempDir()
	old := filepath.Join(rig, "kube", "1.32")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(rig, "kubelet"), filepath.Join(rig, "ctr"), filepath.Join(old, "kubelet")} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range [][3]string{{"", "kubelet", rig}, {"1.32", "kubelet", old}, {"1.32", "ctr", rig}} {
		t.Setenv("TENURE_KUBE", tt[0])
		if got, err := programs.InRig(rig, tt[1]); err != nil || got != filepath.Join(tt[2], tt[1]) {
			t.Errorf("of version %q %s is %q, %v; want it in %s", tt[0], tt[1], got, err, tt[2])
		}
	}
	t.Setenv("TENURE_KUBE", "1.2")
	for of, find := range map[string]func(string) (string, error){
		"InRig": func(name string) (string, error) { return programs.InRig(rig, name) }, "Find": programs.Find,
	} {
		if got, err := find("kubelet"); err == nil || !strings.Contains(err.Error(), "make rig-kube KUBE=1.2") {
			t.Errorf("%s of a version that is not built: %q, %v; want the remedy", of, got, err)
		}
	}
}

func TestRootHoldsTheModule(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "test/programs/programs.go"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	t.Chdir("/")
	if got, err := programs.Root(); err == nil {
		t.Errorf("root seen from / is %q; want an error", got)
	}
}

// TestPluginsDoWithout: what Go's runtime prepares for a long life is left out of the
// plugins, as they ship, and of no other program.
func TestPluginsDoWithout(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	const without = "nogreenteagc"
	ask := exec.CommandContext(t.Context(), "go", "version")
	ask.Dir, ask.Env = root, append(os.Environ(), "GOEXPERIMENT="+without)
	known := ask.Run() == nil
	for name, short := range map[string]bool{"tenure": true, "tenure-attach": true, "kubectl-tenure": false} {
		path, err := programs.Build(t.Context(), t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if got := strings.Contains(settings["DefaultGODEBUG"], "updatemaxprocs=0"); got != short {
			t.Errorf("%s: GODEBUG %q; want it to look for no changes of the limits: %t", name, settings["DefaultGODEBUG"], short)
		}
		if got := settings["GOEXPERIMENT"] == without; got != (short && known) {
			t.Errorf("%s: GOEXPERIMENT %q; want %s: %t", name, settings["GOEXPERIMENT"], without, short && known)
		}
	}
}
