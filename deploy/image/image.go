// Package image makes container images out of programs, and archives of them as the
// OCI image layout has it, which every runtime imports and every registry tool
// pushes. The same content gives the same archive, byte for byte: nothing in it tells
// where or when it was made.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// An Image is a name for one or more variants of the same, one for each architecture.
type Image struct {
	// Name is the whole reference: registry, repository and tag.
	Name string
	// Variants have different architectures.
	Variants []Variant
}

// A Variant is an image for one architecture of Linux.
type Variant struct {
	// Arch is the architecture as Go calls it.
	Arch string
	// Programs are what is in the image: the path of each in the image, without the
	// leading slash, and that of its file here. All are root's and executable.
	Programs map[string]string
	// Entrypoint is what runs, and User who runs it: "UID:GID".
	Entrypoint []string
	User       string
}

// Media types of the OCI image specification, version 1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type config struct {
	platform
	Config runtimeConfig `json:"config"`
	RootFS rootFS        `json:"rootfs"`
}

type runtimeConfig struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env"`
	Entrypoint []string `json:"Entrypoint"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// layout collects the files of an archive.
type layout map[string][]byte

// Write writes an archive of images to w.
func Write(w io.Writer, images ...Image) error {
	layers, err := pack(images)
	if err != nil {
		return err
	}
	files := layout{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	top := index{SchemaVersion: 2, MediaType: typeIndex}
	for n, i := range images {
		d, err := files.image(i, layers[n])
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
		top.Manifests = append(top.Manifests, d)
	}
	text, err := json.Marshal(top)
	if err != nil {
		return err
	}
	files["index.json"] = text
	return writeTar(w, files, 0o644)
}

// image adds i, whose variants have the layers, and returns its descriptor with the names
// by which runtimes know it.
func (l layout) image(i Image, layers []layer) (descriptor, error) {
	if err := CheckName(i.Name); err != nil {
		return descriptor{}, err
	}
	variants := index{SchemaVersion: 2, MediaType: typeIndex}
	for n, v := range i.Variants {
		d, err := l.variant(v, layers[n])
		if err != nil {
			return descriptor{}, fmt.Errorf("architecture %s: %w", v.Arch, err)
		}
		variants.Manifests = append(variants.Manifests, d)
	}
	d, err := l.object(typeIndex, variants)
	d.Annotations = map[string]string{
		"io.containerd.image.name":          i.Name,
		"org.opencontainers.image.ref.name": i.Name[strings.LastIndex(i.Name, ":")+1:],
	}
	return d, err
}

// whole is a reference as the distribution specification has it, with all of its parts.
var whole = regexp.MustCompile(`^([a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)+:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// CheckName returns an error that says what name lacks to be a whole reference, which
// every registry and runtime takes.
func CheckName(name string) error {
	if !whole.MatchString(name) {
		return fmt.Errorf("image name %q must be REGISTRY/REPOSITORY:TAG, the repository of small letters and digits with '.', '_', '-' and '/' between them, such as registry.example:5000/net/tenured:v1", name)
	}
	return nil
}

// A layer is the one layer of a variant: its archive, compressed, and the digest that it
// has when it is not.
type layer struct {
	packed []byte
	diffID string
}

// pack returns the layers of images, by image and variant. Compressing takes longer than
// all else, so that as many are at work as there are processors.
func pack(images []Image) ([][]layer, error) {
	layers := make([][]layer, len(images))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n, i := range images {
		layers[n] = make([]layer, len(i.Variants))
		for m, v := range i.Variants {
			group.Go(func() (err error) {
				if layers[n][m], err = v.layer(); err != nil {
					return fmt.Errorf("image %s: architecture %s: %w", i.Name, v.Arch, err)
				}
				return nil
			})
		}
	}
	return layers, group.Wait()
}

// layer makes the layer with the variant's programs.
func (v Variant) layer() (layer, error) {
	contents := layout{}
	for name, file := range v.Programs {
		text, err := os.ReadFile(file)
		if err != nil {
			return layer{}, err
		}
		contents[name] = text
	}
	var plain, packed bytes.Buffer
	if err := writeTar(&plain, contents, 0o755); err != nil {
		return layer{}, err
	}
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return layer{}, err
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		return layer{}, err
	}
	if err := z.Close(); err != nil {
		return layer{}, err
	}
	return layer{packed.Bytes(), digest(plain.Bytes())}, nil
}

// variant adds v, which has the layer, and returns its descriptor.
func (l layout) variant(v Variant, of layer) (descriptor, error) {
	on := platform{Architecture: v.Arch, OS: "linux"}
	settings, err := l.object(typeConfig, config{
		platform: on,
		Config:   runtimeConfig{User: v.User, Env: []string{"PATH=/"}, Entrypoint: v.Entrypoint},
		RootFS:   rootFS{Type: "layers", DiffIDs: []string{of.diffID}},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.object(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: settings, Layers: []descriptor{l.blob(typeLayer, of.packed)},
	})
	d.Platform = &on
	return d, err
}

// object adds v as JSON.
func (l layout) object(mediaType string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, text), nil
}

// blob adds content.
func (l layout) blob(mediaType string, content []byte) descriptor {
	d := digest(content)
	l["blobs/"+strings.ReplaceAll(d, ":", "/")] = content
	return descriptor{MediaType: mediaType, Digest: d, Size: len(content)}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// writeTar writes files in the order of their paths, each after the directories that it
// is in, all of them root's and of the epoch.
func writeTar(w io.Writer, files map[string][]byte, mode int64) error {
	t := tar.NewWriter(w)
	made := map[string]bool{".": true}
	var directories func(dir string) error
	directories = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := directories(path.Dir(dir)); err != nil {
			return err
		}
		return t.WriteHeader(header(dir+"/", tar.TypeDir, 0o755, 0))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := directories(path.Dir(name)); err != nil {
			return err
		}
		if err := t.WriteHeader(header(name, tar.TypeReg, mode, len(files[name]))); err != nil {
			return err
		}
		if _, err := t.Write(files[name]); err != nil {
			return err
		}
	}
	return t.Close()
}

func header(name string, kind byte, mode int64, size int) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: int64(size), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
}
