package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// providePrometheus unpacks Prometheus and promtool below dir, unless they are there. They need
// nothing of what their package depends on, which is of pages for browsers.
//
// Layout of dir/prometheus:
//
//	usr/bin/prometheus, usr/bin/promtool
func providePrometheus(ctx context.Context, out io.Writer, dir string) error {
	root := filepath.Join(dir, "prometheus")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/promtool")); err == nil {
		fmt.Fprintf(out, "rig: up to date: %s\n", root)
		return nil
	}
	fmt.Fprintln(out, "rig: prometheus: to unpack, out of a Debian package, 19 MB: some seconds")
	if err := unpacked(ctx, root, "download", "prometheus"); err != nil {
		return fmt.Errorf("fetch prometheus: %w", err)
	}
	return nil
}
