package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// pythonScript runs Debian's Python with the modules and libraries that were unpacked
// around it, and keeps what is compiled. A machine without Python has got one unpacked as well.
const pythonScript = `#!/bin/sh
root=${0%%/*}
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH="$root/usr/lib/python3/dist-packages" LD_LIBRARY_PATH="%s"
python=/usr/bin/python3
[ -x "$python" ] || { python=$root/usr/bin/python3; export PYTHONHOME="$root/usr"; }
exec "$python" "$@"
`

// writePython writes to path, a file in root, what runs Python with the packages that were
// unpacked into root.
func writePython(root, path string) error {
	libraries, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*"))
	if err != nil {
		return err
	}
	for i, l := range libraries {
		libraries[i] = "$root" + strings.TrimPrefix(l, root)
	}
	return os.WriteFile(path, fmt.Appendf(nil, pythonScript, strings.Join(libraries, ":")), 0o755)
}
