package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// provideChromium unpacks a browser without a window below dir, unless it is there.
//
// Layout of dir/chromium:
//
//	chromium  runs it with the libraries that were unpacked; written last
//	usr/…     what the packages have
func provideChromium(ctx context.Context, out io.Writer, dir string) error {
	root := filepath.Join(dir, "chromium")
	path := filepath.Join(root, "chromium")
	if _, err := os.Stat(path); err == nil {
		fmt.Fprintf(out, "rig: up to date: %s\n", root)
		return nil
	}
	fmt.Fprintln(out, "rig: chromium: to unpack, out of Debian packages, 100 MB: half a minute")
	if err := unpacked(ctx, root, "install", "-y", "--download-only", "--no-install-recommends", "chromium-headless-shell"); err != nil {
		return fmt.Errorf("fetch chromium-headless-shell: %w", err)
	}
	const script = `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
search=
for dir in "$here"/usr/lib/*-linux-gnu; do
	search=$search$dir:$dir/pulseaudio:
done
LD_LIBRARY_PATH=$search exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
`
	if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
