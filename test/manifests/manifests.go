// Package manifests renders what installs Tenure as administrators do: by kustomize,
// and by Helm.
package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tenure-ipam/tenure/deploy"
	"github.com/tenure-ipam/tenure/test/programs"
)

// An Object is one object of Kubernetes.
type Object = *unstructured.Unstructured

// Kustomize returns the objects of an overlay, in the order in which kubectl applies them.
// The text of the overlay refers to the repository's top directory by ../..
func Kustomize(ctx context.Context, overlay string) ([]Object, error) {
	kubectl, err := programs.Find("kubectl")
	if err != nil {
		return nil, err
	}
	root, err := programs.Root()
	if err != nil {
		return nil, err
	}
	// kustomize refuses absolute paths, and those to the repository from elsewhere
	// would depend on where temporary files are.
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		return nil, err
	}
	if err := sweep(filepath.Join(root, "bin")); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Join(root, "bin"), "overlay")
	if err != nil {
		return nil, err
	}
	objects, err := kustomize(ctx, kubectl, dir, overlay)
	return objects, errors.Join(err, os.RemoveAll(dir))
}

// sweep removes overlays of those who were killed while they rendered theirs.
func sweep(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "overlay*"))
	if err != nil {
		return err
	}
	const long = time.Hour // rendering takes a second
	for _, path := range left {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner is done
		}
		if err != nil {
			return err
		}
		if time.Since(info.ModTime()) > long {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func kustomize(ctx context.Context, kubectl, dir, overlay string) ([]Object, error) {
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o644); err != nil {
		return nil, err
	}
	text, err := run(ctx, kubectl, "kustomize", dir)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// Base is the overlay that adds nothing to deploy/kustomization.yaml.
const Base = "resources: [../../deploy]\n"

// registry is what names of images begin with on the cluster of make cluster.
const registry = "tenure.dev"

// Chart returns the objects of the chart deploy/chart but its hook, rendered by helm for images of
// Registry, with further arguments, such as --set or --values. Files are named from the
// chart's directory.
func Chart(ctx context.Context, args ...string) ([]Object, error) {
	text, err := template(ctx, append([]string{"--no-hooks", "--set=image.registry=" + registry}, args...)...)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// template returns what helm makes of the chart.
func template(ctx context.Context, args ...string) ([]byte, error) {
	helm, err := programs.Tool("helm")
	if err != nil {
		return nil, err
	}
	dir, err := chartDir()
	if err != nil {
		return nil, err
	}
	return runIn(ctx, dir, helm, append([]string{"template", "tenure", ".", "--namespace=tenure-system"}, args...)...)
}

// chartDir returns the chart's directory.
func chartDir() (string, error) {
	root, err := programs.Root()
	return filepath.Join(root, "deploy", "chart"), err
}

// Shipped returns the objects of a file of deploy/, or of the files of a directory.
func Shipped(path string) (objects []Object, err error) {
	err = fs.WalkDir(deploy.FS, path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := deploy.FS.ReadFile(path)
		if err != nil {
			return err
		}
		of, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		objects = append(objects, of...)
		return nil
	})
	return objects, err
}

// parse reads objects from YAML documents; empty ones are left out.
func parse(text []byte) (objects []Object, err error) {
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("object %d: %w", len(objects)+1, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// Name says which object o is.
func Name(o Object) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	return runIn(ctx, "", program, args...)
}

// runIn returns what a program prints that is run in dir.
func runIn(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %v: %w: %s", filepath.Base(program), args, err, said.Bytes())
	}
	return out.Bytes(), nil
}
