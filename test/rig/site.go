package main

import "context"

// mkdocs is what renders the documentation, MkDocs and its theme Material.
//
// Layout of its directory:
//
//	python                          runs Python with what was unpacked; written last
//	usr/share/mkdocs/themes/…       the theme
//	usr/…                           what else the packages have
var mkdocs = debian{
	name: "mkdocs", last: "python", cost: "30 Debian packages, 12 MB: some seconds",
	// One that is installed on the machine is fetched all the same: the theme is read from there.
	download: install("--reinstall", "mkdocs-material"),
	finish: func(ctx context.Context, root, path string) error {
		if err := writePython(root, path); err != nil {
			return err
		}
		return inside(ctx, root, path, "-m", "mkdocs", "--version")
	},
}
