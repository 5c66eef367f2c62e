// Package image makes container images out of programs, and archives of them as the
// OCI image layout has it, which every runtime imports and every registry tool
// pushes. The same content gives the same archive, byte for byte: nothing in it tells
// where or when it was made.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
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

// WriteFile writes an archive of images to a file, which is whole or not there.
func WriteFile(file string, images ...Image) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".image")
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "archive")
	if err = write(archive, filepath.Join(dir, "layout"), images); err == nil {
		err = os.Rename(archive, file)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// write lays images out in a directory that it makes, and writes that as an archive.
func write(archive, dir string, images []Image) error {
	all, err := indexOf(images)
	if err != nil {
		return err
	}
	if _, err := layout.Write(dir, all); err != nil {
		return err
	}
	files := map[string]string{}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		files[name] = file
		return err
	})
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(f, files, 0o644), f.Close())
}

// indexOf returns the index of images, each with the names by which runtimes know it.
func indexOf(images []Image) (v1.ImageIndex, error) {
	layers, err := pack(images)
	if err != nil {
		return nil, err
	}
	var all []mutate.IndexAddendum
	for n, i := range images {
		if err := CheckName(i.Name); err != nil {
			return nil, err
		}
		var variants []mutate.IndexAddendum
		for m, v := range i.Variants {
			of, err := v.image(layers[n][m])
			if err != nil {
				return nil, fmt.Errorf("image %s: architecture %s: %w", i.Name, v.Arch, err)
			}
			variants = append(variants, mutate.IndexAddendum{Add: of, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: v.Arch}}})
		}
		all = append(all, mutate.IndexAddendum{Add: mutate.AppendManifests(empty.Index, variants...), Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          i.Name,
			"org.opencontainers.image.ref.name": i.Name[strings.LastIndex(i.Name, ":")+1:],
		}}})
	}
	return mutate.AppendManifests(empty.Index, all...), nil
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

// pack returns the layers of images, by image and variant. Compressing takes longer than
// all else, so that as many are at work as there are processors.
func pack(images []Image) ([][]v1.Layer, error) {
	layers := make([][]v1.Layer, len(images))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n, i := range images {
		layers[n] = make([]v1.Layer, len(i.Variants))
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

// layer makes the one layer, with the variant's programs.
func (v Variant) layer() (v1.Layer, error) {
	var plain bytes.Buffer
	if err := writeTar(&plain, v.Programs, 0o755); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// image returns the image of the variant, which has the layer.
func (v Variant) image(layer v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: "linux", Architecture: v.Arch, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: v.User, Env: []string{"PATH=/"}, Entrypoint: v.Entrypoint},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
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
