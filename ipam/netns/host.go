package netns

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// hostPIDs is what the kernel calls the first process namespace of every boot.
const hostPIDs = "pid:[4026531836]"

// nsfs is the type of the file system that namespaces are files of.
const nsfs = 0x6e736673

// SeesHost reports whether this process is in the host's process namespace: only then does a
// missing /proc/PID mean that the process is gone.
func SeesHost() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link == hostPIDs
}

// seesPath reports whether this process sees at path what the host does: not that of a process of
// a namespace that is not the host's (see [SeesHost]), nor one whose directory is missing here.
func seesPath(path string, seesHost bool) bool {
	if strings.HasPrefix(path, "/proc/") {
		return seesHost
	}
	_, err := os.Stat(filepath.Dir(path))
	return path != "" && err == nil
}

// SurelyAbsent reports whether there is no namespace at path, for a process that may see less than
// the host does: what it cannot see as the host does may be there.
func SurelyAbsent(path string, seesHost bool) bool {
	_, err := os.Lstat(path)
	return seesPath(path, seesHost) && errors.Is(err, os.ErrNotExist)
}

// SurelyGone is Gone for a process that may see less than the host does. What it cannot see as the
// host does is not gone, nor is a file in place of a namespace, as a mount that has not been
// propagated leaves it.
func SurelyGone(path, id string, seesHost bool) bool {
	if !seesPath(path, seesHost) {
		return false
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err == nil && fs.Type != nsfs {
		return false
	}
	return Gone(path, id)
}

// OfProcesses returns the identities of the namespaces that processes are in, as far as /proc has
// these. Its error says that there are processes of which it cannot be told.
func OfProcesses() (map[string]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		id, err := stat(filepath.Join("/proc", e.Name(), "ns", "net"))
		switch {
		case err == nil:
			all[id] = true
		case !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ESRCH): // it has not ended meanwhile
			return nil, err
		}
	}
	return all, nil
}
