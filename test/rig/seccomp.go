package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// seccomp returns the environment in which cgo finds libseccomp's headers and its
// static library. They are Debian's, unpacked below dir: nothing is installed on the
// machine.
func seccomp(ctx context.Context, dir string) (env []string, err error) {
	root := filepath.Join(dir, "libseccomp")
	headers := filepath.Join(root, "usr/include")
	if _, err := os.Stat(filepath.Join(headers, "seccomp.h")); errors.Is(err, fs.ErrNotExist) {
		if err := unpacked(ctx, root, "download", "libseccomp-dev"); err != nil {
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
