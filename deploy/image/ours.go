package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Of are the images of Tenure: what they are called in the manifests, and what is in
// them. The agent's carries the CNI plugins, which its init container installs: agent
// and plugins are always of one version. The controller's carries kubectl-tenure, which looks in
// the cluster for what must not be where a CronJob has it do so.
var Of = []struct {
	Name     string
	programs []string
	user     string
}{
	{"tenured", []string{"tenured", "tenure", "tenure-attach"}, "0:0"},
	{"tenure-controller", []string{"tenure-controller", "kubectl-tenure"}, "65532:65532"},
}

// known are the architectures that there may be images for, as Go calls them.
var known = []string{"amd64", "arm64", "ppc64le", "riscv64", "s390x"}

// Build compiles Tenure's programs, whose source is in root, for archs into directories
// below dir, and returns the images of which they are, with names that begin with
// prefix and end with tag. What is wrong with names or archs is said before anything is
// compiled.
func Build(ctx context.Context, root, dir, prefix, tag string, archs ...string) ([]Image, error) {
	var packages []string
	images := make([]Image, len(Of))
	for i, o := range Of {
		images[i].Name = prefix + o.Name + ":" + tag
		if err := CheckName(images[i].Name); err != nil {
			return nil, err
		}
		for _, name := range o.programs {
			packages = append(packages, "./cmd/"+name)
		}
	}
	for i, arch := range archs {
		if !slices.Contains(known, arch) || slices.Contains(archs[:i], arch) {
			return nil, fmt.Errorf("architectures %q: %q must be one of %s, once", archs, arch, strings.Join(known, ", "))
		}
	}
	for _, arch := range archs {
		built := filepath.Join(dir, arch)
		if err := Compile(ctx, root, built, arch, tag, packages...); err != nil {
			return nil, err
		}
		for i, o := range Of {
			v := Variant{Arch: arch, Programs: map[string]string{}, Entrypoint: []string{"/" + o.Name}, User: o.user}
			for _, name := range o.programs {
				v.Programs[name] = filepath.Join(built, name)
			}
			images[i].Variants = append(images[i].Variants, v)
		}
	}
	return images, nil
}

// Compile makes programs out of packages of the module in root, for arch, static and
// without anything of this machine, into dir, each under the last part of its package's
// path. They call themselves version. All at once take less time than one by one: what
// they have in common is looked at once, and they are linked beside each other.
func Compile(ctx context.Context, root, dir, arch, version string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // one that is there is a directory to go build
		return err
	}
	var daemons, short []string
	for _, p := range packages {
		if slices.Contains(plugins, path.Base(p)) {
			short = append(short, p)
		} else {
			daemons = append(daemons, p)
		}
	}
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch}
	err := compile(ctx, root, dir, version, daemons, env)
	if len(short) > 0 {
		err = errors.Join(err, compile(ctx, root, dir, version, short, append(env, earlierCollector(ctx, root)...)))
	}
	return err
}

// plugins are the programs that live for milliseconds.
var plugins = []string{"tenure", "tenure-attach"}

// earlierCollector has Go build with its garbage collector of before, where Go still has
// it. The newer one keeps notes at the end of each span of objects, in pages that would
// not be touched else: that is some twentieth of a plugin's processor time, and no plugin
// lives long enough to collect anything.
func earlierCollector(ctx context.Context, root string) []string {
	const without = "GOEXPERIMENT=nogreenteagc"
	cmd := exec.CommandContext(ctx, "go", "version")
	cmd.Dir = root // whose go.mod may name another Go
	cmd.Env = append(os.Environ(), without)
	if cmd.Run() != nil {
		return nil
	}
	return []string{without}
}

// compile is Compile for programs that are built alike, in env.
func compile(ctx context.Context, root, dir, version string, packages, env []string) error {
	if len(packages) == 0 {
		return nil
	}
	// Without debugging information, as in the Makefile: what is compiled there is used here.
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w -buildid= -X main.version=" + version, "-o", dir}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// What the caller has set for programs of his own must not change these.
	cmd.Env = append(os.Environ(), "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	cmd.Env = append(cmd.Env, env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s with %s: %w\n%s", strings.Join(packages, ", "), strings.Join(env, " "), err, said)
	}
	return nil
}
