package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// tables makes the tables of Neutron's models in the database that its argument names: its
// migrations do not run on SQLite. It has the server's modules compiled as well, which takes
// longer than the rest of a start.
const tables = `import sys, sqlalchemy
import neutron.cmd.eventlet.server, neutron.plugins.ml2.plugin
from neutron.db.migration.models import head
head.get_metadata().create_all(sqlalchemy.create_engine(sys.argv[1]))
`

// provideNeutron unpacks OpenStack's Neutron below dir, unless it is there or the
// machine has one. Nothing is installed, so that no service of the packages starts.
//
// Layout of dir/neutron:
//
//	python           runs Python with what was unpacked; written last
//	neutron.sqlite   a database without rows, for servers to begin with
//	usr/…            what the packages have
func provideNeutron(ctx context.Context, out io.Writer, dir string) error {
	root := filepath.Join(dir, "neutron")
	python, database := filepath.Join(root, "python"), filepath.Join(root, "neutron.sqlite")
	if _, err := os.Stat(python); err == nil {
		fmt.Fprintf(out, "rig: up to date: %s\n", root)
		return nil
	}
	fmt.Fprintln(out, "rig: neutron: to unpack, out of 200 Debian packages, 35 MB: about a minute")
	if err := unpacked(ctx, root, "install", "-y", "--download-only", "--no-install-recommends", "neutron-server"); err != nil {
		return fmt.Errorf("fetch neutron-server: %w", err)
	}
	fresh := python + ".new"
	if err := writePython(root, fresh); err != nil {
		return err
	}
	if err := inside(ctx, root, fresh, "-c", tables, "sqlite:///"+database); err != nil {
		return fmt.Errorf("make Neutron's tables: %w", err)
	}
	return os.Rename(fresh, python)
}
