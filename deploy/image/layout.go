package image

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Media types of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// annotationName has the whole name of what a layout has.
const annotationName = "io.containerd.image.name"

// blobsDir is where a layout has what is called by its digest.
const blobsDir = "blobs/sha256"

// The documents of an image layout, as the OCI image specification has them.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int64             `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	config struct {
		platform
		Config runConfig `json:"config"`
		RootFS rootFS    `json:"rootfs"`
	}
	runConfig struct {
		User       string   `json:"User,omitempty"`
		Env        []string `json:"Env"`
		Entrypoint []string `json:"Entrypoint"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
)

// layout is a directory with an image layout.
type layout struct{ dir string }

// write writes images into the directory, each with the names by which runtimes know it.
func (l layout) write(images []Image) error {
	variants, err := l.writeVariants(images)
	if err != nil {
		return err
	}
	var all []descriptor
	for n, i := range images {
		of, err := l.document(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: variants[n]})
		if err != nil {
			return err
		}
		all = append(all, named(of, i.Name))
	}
	return l.close(all...)
}

// named gives what a descriptor is of the names by which runtimes and tools know it.
func named(of descriptor, name string) descriptor {
	of.Annotations = map[string]string{
		annotationName:                      name,
		"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:],
	}
	return of
}

// close writes what says of a layout what is in it.
func (l layout) close(all ...descriptor) error {
	text, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: all})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(l.dir, "index.json"), text, 0o600),
		os.WriteFile(filepath.Join(l.dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o600),
	)
}

// writeVariants writes what each image is for each architecture. Compressing takes longer than all
// else, so that as many are at work as there are processors.
func (l layout) writeVariants(images []Image) ([][]descriptor, error) {
	variants := make([][]descriptor, len(images))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n, i := range images {
		if err := CheckName(i.Name); err != nil {
			return nil, err
		}
		variants[n] = make([]descriptor, len(i.Variants))
		for m, v := range i.Variants {
			group.Go(func() (err error) {
				if variants[n][m], err = l.variant(v); err != nil {
					return fmt.Errorf("image %s: architecture %s: %w", i.Name, v.Arch, err)
				}
				return nil
			})
		}
	}
	return variants, group.Wait()
}

// variant writes a variant: its one layer with the programs, its configuration, its manifest.
func (l layout) variant(v Variant) (descriptor, error) {
	layer, plain, err := l.layer(v.Programs)
	if err != nil {
		return descriptor{}, err
	}
	is := platform{Architecture: v.Arch, OS: "linux"}
	about, err := l.document(typeConfig, config{
		platform: is, RootFS: rootFS{"layers", []string{plain}},
		Config: runConfig{User: v.User, Env: []string{"PATH=/"}, Entrypoint: v.Entrypoint},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.document(typeManifest, manifest{SchemaVersion: 2, MediaType: typeManifest, Config: about, Layers: []descriptor{layer}})
	d.Platform = &is
	return d, err
}

// layer writes a layer, and returns also the digest of what is compressed in it.
func (l layout) layer(programs map[string]string) (d descriptor, plain string, err error) {
	of := sha256.New()
	d, err = l.blob(typeLayer, func(w io.Writer) error {
		packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(io.MultiWriter(of, packed), programs, 0o755), packed.Close())
	})
	return d, digest(of.Sum(nil)), err
}

// document writes what is JSON.
func (l layout) document(mediaType string, v any) (descriptor, error) {
	return l.blob(mediaType, func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
}

// blob has write write what is called by its digest.
func (l layout) blob(mediaType string, write func(io.Writer) error) (d descriptor, err error) {
	f, err := os.CreateTemp(l.dir, "blob")
	if err != nil {
		return d, err
	}
	of := sha256.New()
	err = write(io.MultiWriter(of, f))
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err != nil {
		return d, err
	}
	d = descriptor{MediaType: mediaType, Digest: digest(of.Sum(nil)), Size: info.Size()}
	return d, os.Rename(f.Name(), l.path(d.Digest))
}

func digest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// path returns where what has a digest is.
func (l layout) path(digest string) string {
	return filepath.Join(l.dir, blobsDir, strings.TrimPrefix(digest, "sha256:"))
}
