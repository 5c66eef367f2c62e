package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Of are the images of Tenure: what they are called in the manifests, and what is in
// them. The agent's carries the CNI plugins, which its init container installs: agent
// and plugins are always of one version.
var Of = []struct {
	Name     string
	programs []string
	user     string
}{
	{"tenured", []string{"tenured", "tenure", "tenure-attach"}, "0:0"},
	{"tenure-controller", []string{"tenure-controller"}, "65532:65532"},
}

// Build compiles Tenure's programs, whose source is in root, for archs into directories
// below dir, and returns the images of which they are, with names that begin with
// prefix and end with tag.
func Build(ctx context.Context, root, dir, prefix, tag string, archs ...string) ([]Image, error) {
	var images []Image
	for _, o := range Of {
		i := Image{Name: prefix + o.Name + ":" + tag}
		for _, arch := range archs {
			v := Variant{Arch: arch, Programs: map[string]string{}, Entrypoint: []string{"/" + o.Name}, User: o.user}
			for _, name := range o.programs {
				file := filepath.Join(dir, arch, name)
				if err := Compile(ctx, root, file, "./cmd/"+name, arch, tag); err != nil {
					return nil, err
				}
				v.Programs[name] = file
			}
			i.Variants = append(i.Variants, v)
		}
		images = append(images, i)
	}
	return images, nil
}

// Compile makes the program pkg of the module in root for arch, static and without
// anything of this machine. It calls itself version.
func Compile(ctx context.Context, root, file, pkg, arch, version string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+version, "-o", file, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", pkg, arch, err, said)
	}
	return nil
}

// WriteFile writes an archive of images to a file, which is whole or not there.
func WriteFile(file string, images ...Image) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".image")
	if err != nil {
		return err
	}
	err = Write(f, images...)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
