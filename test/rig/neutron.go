package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// pythonScript runs Debian's Python with the modules and libraries that were unpacked
// around it, and keeps what is compiled. A machine without Python has got one unpacked as well.
const pythonScript = `#!/bin/sh
root=${0%%/*}
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH="$root/usr/lib/python3/dist-packages" LD_LIBRARY_PATH="$root/%s"
python=/usr/bin/python3
[ -x "$python" ] || { python=$root/usr/bin/python3; export PYTHONHOME="$root/usr"; }
exec "$python" "$@"
`

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
	libraries, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*"))
	if err != nil {
		return err
	}
	if len(libraries) != 1 {
		return fmt.Errorf("%s has %d directories of libraries; want one: is neutron-server installed on this machine? Then remove it", root, len(libraries))
	}
	relative, err := filepath.Rel(root, libraries[0])
	if err != nil {
		return err
	}
	fresh := python + ".new"
	if err := os.WriteFile(fresh, fmt.Appendf(nil, pythonScript, relative), 0o755); err != nil {
		return err
	}
	if err := inside(ctx, root, fresh, "-c", tables, "sqlite:///"+database); err != nil {
		return fmt.Errorf("make Neutron's tables: %w", err)
	}
	return os.Rename(fresh, python)
}
