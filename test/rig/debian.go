package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// unpacked makes root out of Debian packages, without installing anything on the
// machine: download is the apt-get command that fetches them. Root is whole or not there.
func unpacked(ctx context.Context, root string, download ...string) error {
	fresh := root + ".new"
	if err := errors.Join(os.RemoveAll(root), os.RemoveAll(fresh), os.MkdirAll(fresh, 0o755)); err != nil {
		return err
	}
	// Without a lock: what apt-get does elsewhere is none of its business.
	download = append([]string{"-q", "-o", "Dir::Cache::archives=" + fresh, "-o", "Debug::NoLocking=1"}, download...)
	if err := inside(ctx, fresh, "apt-get", download...); err != nil {
		// A machine that has never asked knows of no packages.
		if err := inside(ctx, fresh, "apt-get", "update", "-q"); err != nil {
			return err
		}
		if err := inside(ctx, fresh, "apt-get", download...); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(fresh, "*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if err := errors.Join(inside(ctx, fresh, "dpkg", "-x", p, "."), os.Remove(p)); err != nil {
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
