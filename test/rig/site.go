package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// provideSite unpacks what renders the documentation below dir, MkDocs and its theme
// Material, unless it is there.
//
// Layout of dir/mkdocs:
//
//	python                          runs Python with what was unpacked; written last
//	usr/share/mkdocs/themes/…       the theme
//	usr/…                           what else the packages have
func provideSite(ctx context.Context, out io.Writer, dir string) error {
	root := filepath.Join(dir, "mkdocs")
	python := filepath.Join(root, "python")
	if _, err := os.Stat(python); err == nil {
		fmt.Fprintf(out, "rig: up to date: %s\n", root)
		return nil
	}
	fmt.Fprintln(out, "rig: mkdocs: to unpack, out of 30 Debian packages, 12 MB: some seconds")
	// One that is installed on the machine is fetched all the same: the theme is read from root.
	if err := unpacked(ctx, root, "install", "-y", "--download-only", "--reinstall", "--no-install-recommends", "mkdocs-material"); err != nil {
		return fmt.Errorf("fetch mkdocs-material: %w", err)
	}
	fresh := python + ".new"
	if err := writePython(root, fresh); err != nil {
		return err
	}
	if err := inside(ctx, root, fresh, "-m", "mkdocs", "--version"); err != nil {
		return err
	}
	return os.Rename(fresh, python)
}
