// Package registry_test proves that the images and the chart of Tenure get into a registry as they
// are made: on a registry server of go-containerregistry.
package registry_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-ipam/tenure/deploy/image"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/proof"
)

// serve runs a registry until the test ends, and returns crane's path and the registry's
// address.
func serve(t *testing.T) (crane, address string) {
	t.Helper()
	crane, err := programs.Tool("crane")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), crane, "registry", "serve", "--address", "127.0.0.1:0")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	// It ends with this process too, however that ends. The kernel goes by the thread
	// that has started it, which is kept until the test is over.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it has been killed
	port := regexp.MustCompile(`serving on port (\d+)`)
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if m := port.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, said) }() // it logs every request
			return crane, "127.0.0.1:" + m[1]
		}
	}
	t.Fatalf("the registry does not say its port: %v", lines.Err())
	return "", ""
}

// output returns what a program prints that is run in the repository.
func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, said.Bytes())
	}
	return out.Bytes()
}

// TestPush: make push puts both images under the names that make install gives them, with the
// programs that the manifests run.
func TestPush(t *testing.T) {
	push(t, runtime.GOARCH)
}

// TestPushForBoth: the images are for amd64 and arm64, each with programs of its own.
func TestPushForBoth(t *testing.T) {
	proof.Only(t)
	push(t, "amd64", "arm64")
}

// push pushes the images for archs, and checks what the registry has then.
func push(t *testing.T, archs ...string) {
	crane, address := serve(t)
	const tag = "v1.2.3"
	output(t, "make", "push", "REGISTRY="+address+"/net", "TAG="+tag, "ARCH="+strings.Join(archs, ","))
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"tenured": {"tenure", "tenure-attach", "tenured"}, "tenure-controller": {"kubectl-tenure", "tenure-controller"},
	} {
		ref := address + "/net/" + name + ":" + tag
		var index struct {
			Manifests []struct{ Platform platform }
		}
		if err := json.Unmarshal(output(t, crane, "manifest", ref), &index); err != nil {
			t.Fatal(err)
		}
		if len(index.Manifests) != len(archs) {
			t.Errorf("%s is for %+v; want linux on %q", ref, index.Manifests, archs)
		}
		for _, arch := range archs {
			var config platform
			if err := json.Unmarshal(output(t, crane, "config", "--platform=linux/"+arch, ref), &config); err != nil {
				t.Fatal(err)
			}
			if is := (platform{arch, "linux"}); config != is || !slices.Contains(index.Manifests, struct{ Platform platform }{is}) {
				t.Errorf("%s is for %+v, and configured for %v; want linux on %s", ref, index.Manifests, config, arch)
			}
			packed := programsIn(t, output(t, crane, "export", "--platform=linux/"+arch, ref, "-"))
			if got := keys(packed); !slices.Equal(got, want) {
				t.Errorf("%s has %q; want %q", ref, got, want)
			}
			for program, content := range packed {
				built, err := os.ReadFile(filepath.Join(root, "bin/images/programs", arch, program))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(built, content) {
					t.Errorf("%s: %s is not the one that was built", ref, program)
				}
				if !bytes.Contains(content, []byte(tag)) {
					t.Errorf("%s: %s does not call itself %s", ref, program, tag)
				}
				testMachine(t, ref+": "+program, content, arch)
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(root, "bin/images/*.layout")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// platform is what an image is for.
type platform struct{ Architecture, OS string }

// testMachine checks that a program is of an architecture, and needs nothing beside it.
func testMachine(t *testing.T, name string, content []byte, arch string) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		t.Errorf("%s is for %v; want %v", name, f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s needs a loader; the image has none", name)
		}
	}
}

// TestChart: the chart of a release installs the release's images by default, from its file and
// from a registry into which its archive was pushed.
func TestChart(t *testing.T) {
	crane, address := serve(t)
	helm, err := programs.Tool("helm")
	if err != nil {
		t.Fatal(err)
	}
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, layout := t.TempDir(), t.TempDir()
	packed, archive := filepath.Join(dir, "tenure.tgz"), filepath.Join(dir, "chart.tar")
	if err := image.WriteChart(packed, archive, filepath.Join(root, "deploy/chart"), "registry.example/net", "v1.2.3-rc.1"); err != nil {
		t.Fatal(err)
	}
	output(t, "tar", "-xf", archive, "-C", layout)
	output(t, crane, "push", layout, address+"/charts/tenure:1.2.3-rc.1")
	for _, chart := range [][]string{{packed}, {"oci://" + address + "/charts/tenure", "--version=1.2.3-rc.1", "--plain-http"}} {
		installs := string(output(t, helm, append([]string{"template", "tenure", "--namespace=tenure-system", "--set=attach.enabled=true"}, chart...)...))
		for _, want := range []string{"image: registry.example/net/tenured:v1.2.3-rc.1\n", "image: registry.example/net/tenure-controller:v1.2.3-rc.1\n", "kind: CustomResourceDefinition", "kind: ConfigMap"} {
			if !strings.Contains(installs, want) {
				t.Errorf("%v does not install %q", chart, want)
			}
		}
		if about := string(output(t, helm, append([]string{"show", "all"}, chart...)...)); !strings.Contains(about, "appVersion: v1.2.3-rc.1\n") || !strings.Contains(about, "networkattachmentdefinitions") && !strings.Contains(about, "network-attachment-definitions") {
			t.Errorf("%v shows %s; want the version, and the definitions of others", chart, about)
		}
	}
}

// programsIn returns the files of a container's file system.
func programsIn(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if found[strings.TrimPrefix(h.Name, "/")], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func keys(files map[string][]byte) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
