// Package programs finds the programs that tests and the demo run: those of a
// control plane, the reference CNI plugins, and Tenure's own.
package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/tenure-ipam/tenure/deploy/image"
)

// Module is the module that the tests are of.
const Module = "github.com/tenure-ipam/tenure"

// envAssets is the variable by which controller-runtime's envtest and its
// setup tool agree on where the programs of a control plane are.
const envAssets = "KUBEBUILDER_ASSETS"

// envKube is the variable that says which other minor version of Kubernetes than the usual one a
// cluster has, such as 1.32.
const envKube = "TENURE_KUBE"

// InRig returns the path of the program name below a directory of programs such as bin/rig: that
// of the version that $TENURE_KUBE says, where `make rig-kube` has built one, else the usual one.
func InRig(rig, name string) (string, error) {
	dir, err := kubeDir(rig)
	if err != nil {
		return "", err
	}
	if path, err := executable(filepath.Join(dir, name)); dir != "" && err == nil {
		return path, nil
	}
	return executable(filepath.Join(rig, name))
}

// kubeDir returns the directory below rig of the version that $TENURE_KUBE says, if any.
func kubeDir(rig string) (string, error) {
	minor := os.Getenv(envKube)
	if minor == "" {
		return "", nil
	}
	dir := filepath.Join(rig, "kube", minor)
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s is %s, and that is not built: run `make rig-kube KUBE=%[2]s`: %w", envKube, minor, err)
	}
	return dir, nil
}

// Find returns the path of the program name of the control plane: that of [InRig] where
// $TENURE_KUBE says a version, else in the directory $KUBEBUILDER_ASSETS if that has it (envtest's
// lacks some), else in bin/rig, where `make rig` builds it, else in PATH.
func Find(name string) (string, error) {
	if assets := os.Getenv(envAssets); assets != "" && os.Getenv(envKube) == "" {
		if path, err := executable(filepath.Join(assets, name)); err == nil {
			return path, nil
		}
	}
	rig, err := RigDir()
	if err != nil {
		return "", err
	}
	if _, err := kubeDir(rig); err != nil {
		return "", err
	}
	if path, err := InRig(rig, name); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in %s nor in PATH: run `make rig`, or set %s", name, rig, envAssets)
	}
	return path, nil
}

// Tool returns the path of the program name that administrators have and tests use, such
// as helm: in bin/tools, where `make tools` builds it, else in PATH.
func Tool(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "tools")
	if path, err := executable(filepath.Join(dir, name)); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in %s nor in PATH: run `make tools`", name, dir)
	}
	return path, nil
}

// RigDir returns bin/rig of the repository: the directory of the reference CNI
// plugins, and of the control plane's programs that `make rig` built.
func RigDir() (string, error) {
	root, err := Root()
	return filepath.Join(root, "bin", "rig"), err
}

// Root returns the repository's top directory: the one above the working
// directory (tests run in that of their package) that holds the module.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for from := dir; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(bytes.TrimSpace(mod), []byte("module "+Module+"\n")) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a checkout of %s", from, Module)
		}
	}
}

// Build compiles Tenure's program cmd/name as it ships, into dir, and returns
// the program's path.
func Build(ctx context.Context, dir, name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	if err := image.Compile(ctx, root, dir, runtime.GOARCH, "development", "./cmd/"+name); err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

func executable(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not a program", path)
	}
	return path, nil
}
