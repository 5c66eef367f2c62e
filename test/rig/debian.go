package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A debian is what is unpacked out of Debian packages, into a directory of its own.
type debian struct {
	name     string   // of the directory
	last     string   // the file in it that is written last
	cost     string   // for people
	download []string // the apt-get command that fetches the packages
	// finish writes that file under another name, when all is unpacked; nil if a package has it.
	finish func(ctx context.Context, root, path string) error
}

// install is the apt-get command that fetches a package and what it depends on.
func install(options ...string) []string {
	return append([]string{"install", "-y", "--download-only", "--no-install-recommends"}, options...)
}

// provide unpacks d below dir, unless it is there.
func (d *debian) provide(ctx context.Context, out io.Writer, dir string) error {
	root := filepath.Join(dir, d.name)
	last := filepath.Join(root, d.last)
	if _, err := os.Stat(last); err == nil {
		fmt.Fprintf(out, "rig: up to date: %s\n", root)
		return nil
	}
	fmt.Fprintf(out, "rig: %s: to unpack, out of %s\n", d.name, d.cost)
	if err := unpacked(ctx, root, d.download...); err != nil {
		return fmt.Errorf("fetch %s: %w", d.name, err)
	}
	if d.finish == nil {
		return nil
	}
	if err := d.finish(ctx, root, last+".new"); err != nil {
		return err
	}
	return os.Rename(last+".new", last)
}

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
