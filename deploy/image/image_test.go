package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
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

// unpack returns the regular files of an archive, and what is not root's or has a time.
func unpack(t *testing.T, archive []byte) (files map[string][]byte, odd []string) {
	t.Helper()
	files = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
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
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// follow reads the blob that d refers to into v, and checks that it is that.
func follow(t *testing.T, files map[string][]byte, d descriptor, v any) {
	t.Helper()
	blob := files["blobs/"+strings.ReplaceAll(d.Digest, ":", "/")]
	if digest(blob) != d.Digest || len(blob) != d.Size {
		t.Fatalf("%s of %d bytes has digest %s; want %s of %d", d.MediaType, len(blob), digest(blob), d.Digest, d.Size)
	}
	if raw, ok := v.(*[]byte); ok {
		*raw = blob
	} else if err := json.Unmarshal(blob, v); err != nil {
		t.Fatal(err)
	}
}

// TestArchive follows every reference from the top to the program, for each
// architecture.
func TestArchive(t *testing.T) {
	var archive bytes.Buffer
	if err := Write(&archive, example(t)); err != nil {
		t.Fatal(err)
	}
	files, odd := unpack(t, archive.Bytes())
	if len(odd) > 0 {
		t.Errorf("%v are not root's of the epoch", odd)
	}
	var top, variants index
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index %s, %v", files["index.json"], err)
	}
	if name := top.Manifests[0].Annotations["io.containerd.image.name"]; name != "registry.example/tenure/tenured:v1" {
		t.Errorf("the runtime knows the image as %q", name)
	}
	follow(t, files, top.Manifests[0], &variants)
	for i, arch := range []string{"amd64", "arm64"} {
		d := variants.Manifests[i]
		if *d.Platform != (platform{Architecture: arch, OS: "linux"}) {
			t.Errorf("variant %d is for %+v", i, *d.Platform)
		}
		var m manifest
		var c config
		var packed []byte
		follow(t, files, d, &m)
		follow(t, files, m.Config, &c)
		follow(t, files, m.Layers[0], &packed)
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if c.Architecture != arch || len(c.RootFS.DiffIDs) != 1 || c.RootFS.DiffIDs[0] != digest(plain) {
			t.Errorf("configuration %+v is not that of the layer %s for %s", c, digest(plain), arch)
		}
		layer, odd := unpack(t, plain)
		if string(layer["bin/tenured"]) != "for "+arch || len(layer) != 1 || len(odd) > 0 {
			t.Errorf("the layer for %s has %q, odd %v", arch, layer, odd)
		}
	}
}

func TestTheSameContentGivesTheSameArchive(t *testing.T) {
	var one, two bytes.Buffer
	if err := errors.Join(Write(&one, example(t)), Write(&two, example(t))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
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
	if err := Write(io.Discard, i); err == nil {
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
