package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// seccomp returns the environment in which cgo finds libseccomp's headers and its
// static library. They are Debian's, unpacked below dir: nothing is installed on the
// machine.
func seccomp(ctx context.Context, dir string) (env []string, err error) {
	root := filepath.Join(dir, "libseccomp")
	headers := filepath.Join(root, "usr/include")
	if _, err := os.Stat(filepath.Join(headers, "seccomp.h")); errors.Is(err, fs.ErrNotExist) {
		if err := fetchSeccomp(ctx, root); err != nil {
			return nil, fmt.Errorf("fetch libseccomp-dev, which runc is linked with: %w", err)
		}
	}
	libraries, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libseccomp.a"))
	if err != nil {
		return nil, err
	}
	if len(libraries) != 1 {
		return nil, fmt.Errorf("%s has %d static libraries of libseccomp; want one: remove the directory, it is then fetched again", root, len(libraries))
	}
	// The package's own description names the paths of a machine that has it installed.
	described := fmt.Sprintf("Name: libseccomp\nDescription: system call filters\nVersion: 2.5.0\nLibs: -L%s -lseccomp\nCflags: -I%s\n", filepath.Dir(libraries[0]), headers)
	if err := os.WriteFile(filepath.Join(root, "libseccomp.pc"), []byte(described), 0o644); err != nil {
		return nil, err
	}
	return []string{"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -I" + headers, "CGO_LDFLAGS=-L" + filepath.Dir(libraries[0]), "PKG_CONFIG_PATH=" + root}, nil
}

// fetchSeccomp unpacks Debian's package into root, which is whole or not there.
func fetchSeccomp(ctx context.Context, root string) error {
	fresh := root + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.MkdirAll(fresh, 0o755)); err != nil {
		return err
	}
	if err := inside(ctx, fresh, "apt-get", "download", "-q", "libseccomp-dev"); err != nil {
		// A machine that has never asked knows of no packages.
		if err := inside(ctx, fresh, "apt-get", "update", "-q"); err != nil {
			return err
		}
		if err := inside(ctx, fresh, "apt-get", "download", "-q", "libseccomp-dev"); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(fresh, "*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if err := inside(ctx, fresh, "dpkg", "-x", p, "."); err != nil {
			return err
		}
	}
	return os.Rename(fresh, root)
}

// inside runs a program in dir; its error has what it said.
func inside(ctx context.Context, dir, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, said.Bytes())
	}
	return nil
}
