package main

import (
	"context"
	"fmt"
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

// neutron is OpenStack's Neutron. Nothing is installed, so that no service of the packages starts.
//
// Layout of its directory:
//
//	python           runs Python with what was unpacked; written last
//	neutron.sqlite   a database without rows, for servers to begin with
//	usr/…            what the packages have
var neutron = debian{
	name: "neutron", last: "python", cost: "200 Debian packages, 35 MB: about a minute", download: install("neutron-server"),
	finish: func(ctx context.Context, root, path string) error {
		if err := writePython(root, path); err != nil {
			return err
		}
		if err := inside(ctx, root, path, "-c", tables, "sqlite:///"+filepath.Join(root, "neutron.sqlite")); err != nil {
			return fmt.Errorf("make Neutron's tables: %w", err)
		}
		return nil
	},
}
