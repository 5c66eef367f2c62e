// Package image makes container images out of programs, packs the chart that installs them, and
// makes archives of both as the OCI image layout has it, which every runtime imports and every
// registry tool pushes. The same content gives the same archive, byte for byte: nothing in it tells
// where or when it was made.
package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"time"
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

// WriteFile writes an archive of images to a file, which is whole or not there.
func WriteFile(file string, images ...Image) error {
	return writeArchive(file, func(l layout) error { return l.write(images) })
}

// writeArchive writes an archive of what lay lays out to a file, which is whole or not there.
func writeArchive(file string, lay func(layout) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".image")
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "archive")
	if err = write(archive, filepath.Join(dir, "layout"), lay); err == nil {
		err = os.Rename(archive, file)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// write has lay lay something out in a directory that it makes, and writes that as an archive.
func write(archive, dir string, lay func(layout) error) error {
	if err := os.MkdirAll(filepath.Join(dir, blobsDir), 0o755); err != nil {
		return err
	}
	if err := lay(layout{dir}); err != nil {
		return err
	}
	files := map[string]string{}
	for _, name := range []string{"oci-layout", "index.json"} {
		files[name] = filepath.Join(dir, name)
	}
	blobs, err := os.ReadDir(filepath.Join(dir, blobsDir))
	if err != nil {
		return err
	}
	for _, b := range blobs {
		files[path.Join(blobsDir, b.Name())] = filepath.Join(dir, blobsDir, b.Name())
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(f, files, 0o644), f.Close())
}

// DigestsIn returns the digests by which registries have what is in an archive, by the names of
// that.
func DigestsIn(archive string) (map[string]string, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: look for index.json: %w", archive, err)
		}
		if h.Name != "index.json" {
			continue
		}
		var top index
		if err := json.NewDecoder(r).Decode(&top); err != nil {
			return nil, fmt.Errorf("%s: index.json: %w", archive, err)
		}
		digests := map[string]string{}
		for _, of := range top.Manifests {
			digests[of.Annotations[annotationName]] = of.Digest
		}
		return digests, nil
	}
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

// writeTar writes files, whose paths in the archive are the keys, in the order of these, each
// after the directories that it is in. All are root's and of the epoch.
func writeTar(w io.Writer, files map[string]string, mode int64) error {
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
		text, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		if err := t.WriteHeader(header(name, tar.TypeReg, mode, len(text))); err != nil {
			return err
		}
		if _, err := t.Write(text); err != nil {
			return err
		}
	}
	return t.Close()
}

func header(name string, kind byte, mode int64, size int) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: int64(size), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
}
