package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// example is an image of one program for two architectures.
func example(t *testing.T) Image {
	t.Helper()
	i := Image{Name: "registry.example/tenure/tenured:v1"}
	for _, arch := range []string{"amd64", "arm64"} {
		file := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(file, []byte("for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
		i.Variants = append(i.Variants, Variant{Arch: arch, Programs: map[string]string{"bin/tenured": file}, Entrypoint: []string{"/bin/tenured"}, User: "0:0"})
	}
	return i
}

// archiveOf writes an archive, and returns its path.
func archiveOf(t *testing.T, images ...Image) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := WriteFile(file, images...); err != nil {
		t.Fatal(err)
	}
	return file
}

// unpack writes the regular files of an archive below dir, and returns their names, and those of
// all that is not root's or has a time.
func unpack(t *testing.T, r io.Reader, dir string) (files, odd []string) {
	t.Helper()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, odd
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(time.Unix(0, 0)) {
			odd = append(odd, h.Name)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		files = append(files, h.Name)
	}
}

// TestArchive: an archive is a whole OCI layout, with the program for each architecture.
func TestArchive(t *testing.T) {
	f, err := os.Open(archiveOf(t, example(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	if _, odd := unpack(t, f, dir); len(odd) > 0 {
		t.Errorf("%v are not root's of the epoch", odd)
	}
	l := layout{dir}
	if text, err := os.ReadFile(filepath.Join(dir, "oci-layout")); err != nil || string(text) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("it calls itself %s, %v; want an image layout", text, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if digests, err := DigestsIn(f.Name()); err != nil || len(digests) != 1 || !strings.Contains(string(text), `"`+digests["registry.example/tenure/tenured:v1"]+`"`) {
		t.Errorf("digests %v, %v; want that of the image, as in %s", digests, err, text)
	}
	var top, variants index
	if err := json.Unmarshal(text, &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index %s, %v; want one image", text, err)
	}
	if name := top.Manifests[0].Annotations["io.containerd.image.name"]; name != "registry.example/tenure/tenured:v1" {
		t.Errorf("the runtime knows the image as %q", name)
	}
	l.read(t, typeIndex, top.Manifests[0], &variants)
	if len(variants.Manifests) != 2 {
		t.Fatalf("variants %+v; want two", variants)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		l.testVariant(t, variants.Manifests[i], arch)
	}
}

// content returns what a descriptor is of, which must be as that says.
func (l layout) content(t *testing.T, mediaType string, d descriptor) []byte {
	t.Helper()
	text, err := os.ReadFile(l.path(d.Digest))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); d.MediaType != mediaType || d.Size != int64(len(text)) || d.Digest != digest(sum[:]) {
		t.Errorf("%+v has %d bytes, digest %x; want them to agree, and type %s", d, len(text), sum, mediaType)
	}
	return text
}

// read reads the document that a descriptor is of.
func (l layout) read(t *testing.T, mediaType string, d descriptor, into any) {
	t.Helper()
	if err := json.Unmarshal(l.content(t, mediaType, d), into); err != nil {
		t.Fatal(err)
	}
}

// testVariant checks the image of an architecture.
func (l layout) testVariant(t *testing.T, d descriptor, arch string) {
	t.Helper()
	var m manifest
	l.read(t, typeManifest, d, &m)
	var c config
	l.read(t, typeConfig, m.Config, &c)
	is := platform{arch, "linux"}
	if *d.Platform != is || c.platform != is || c.Config.User != "0:0" || !slices.Equal(c.Config.Entrypoint, []string{"/bin/tenured"}) {
		t.Errorf("it is for %v, and configured by %+v; want linux/%s", d.Platform, c, arch)
	}
	if len(m.Layers) != 1 {
		t.Fatalf("layers %v; want one", m.Layers)
	}
	packed, err := gzip.NewReader(bytes.NewReader(l.content(t, typeLayer, m.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(plain); !slices.Equal(c.RootFS.DiffIDs, []string{digest(sum[:])}) {
		t.Errorf("the layer is configured as %v; want %x", c.RootFS.DiffIDs, sum)
	}
	dir := t.TempDir()
	files, odd := unpack(t, bytes.NewReader(plain), dir)
	text, err := os.ReadFile(filepath.Join(dir, "bin/tenured"))
	if err != nil || string(text) != "for "+arch || len(files) != 1 || len(odd) > 0 {
		t.Errorf("the layer for %s has %q, odd %v; %v", arch, files, odd, err)
	}
}

func TestTheSameContentGivesTheSameArchive(t *testing.T) {
	one, err := os.ReadFile(archiveOf(t, example(t)))
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(archiveOf(t, example(t)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) {
		t.Error("two archives of the same programs, in other places and of other times, differ")
	}
}

func TestNamesAreWhole(t *testing.T) {
	for name, ok := range map[string]bool{
		"": false, "tenured": false, "tenured:v1": false, "registry.example/tenured": false, "registry.example/tenured:": false, "registry.example/:v1": false,
		"registry.example/Net/tenured:v1": false, "registry.example/net:5000/tenured:v1": false, "https://registry.example/tenured:v1": false,
		"registry.example/net//tenured:v1": false, "registry.example/tenured:v1 ": false, "registry.example/tenured:-v1": false,
		"registry.example/tenured:v1": true, "registry.example:5000/some-net/a__b/tenured:V1.2_3": true, "127.0.0.1:41/tenured:v1": true, "[fd00::1]:41/tenured:v1": true,
	} {
		if err := CheckName(name); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "REGISTRY/REPOSITORY:TAG") {
			t.Errorf("name %q: %v; want it taken: %t, else what it must be", name, err, ok)
		}
	}
	i := example(t)
	i.Name = "tenured"
	if err := WriteFile(filepath.Join(t.TempDir(), "image.tar"), i); err == nil {
		t.Error("an image is written that no runtime finds by its name")
	}
}

// TestBuildSaysFirstWhatIsWrong: where nothing can be compiled, as there is no source.
func TestBuildSaysFirstWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		archs  []string
		want   string
	}{
		{"registry.example/", []string{"amd65"}, `"amd65" must be one of amd64, arm64`},
		{"registry.example/", []string{"amd64", ""}, `"" must be one of`},
		{"registry.example/", []string{"arm64", "arm64"}, "once"},
		{"registry.example/Net/", []string{"amd64"}, "REGISTRY/REPOSITORY:TAG"},
	} {
		if _, err := Build(t.Context(), t.TempDir(), t.TempDir(), tt.prefix, "v1", tt.archs...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("images %s for %q: %v; want %s", tt.prefix, tt.archs, err, tt.want)
		}
	}
}

func TestWriteFileLeavesNoHalf(t *testing.T) {
	dir := t.TempDir()
	i := example(t)
	i.Variants[0].Programs = map[string]string{"x": filepath.Join(dir, "missing")}
	err := WriteFile(filepath.Join(dir, "image.tar"), i)
	left, dirErr := os.ReadDir(dir)
	if err == nil || dirErr != nil || len(left) > 0 {
		t.Errorf("%v; the directory has %v, %v; want an error and nothing left", err, left, dirErr)
	}
}
