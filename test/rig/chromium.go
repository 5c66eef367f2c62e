package main

import (
	"context"
	"os"
)

// headless is a browser without a window.
//
// Layout of its directory:
//
//	chromium  runs it with the libraries that were unpacked; written last
//	usr/…     what the packages have
var headless = debian{
	name: "chromium", last: "chromium", cost: "Debian packages, 100 MB: half a minute", download: install("chromium-headless-shell"),
	finish: func(_ context.Context, _, path string) error {
		const script = `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
search=
for dir in "$here"/usr/lib/*-linux-gnu; do
	search=$search$dir:$dir/pulseaudio:
done
LD_LIBRARY_PATH=$search exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
`
		return os.WriteFile(path, []byte(script), 0o755)
	},
}
