package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/ipam/node/sightings"
)

// defaultHostLocalDir is where host-local keeps its files, one directory for a network.
const defaultHostLocalDir = "/var/lib/cni/networks"

// maxHostLocal bounds how much is read of one file of host-local's, in bytes: it has the
// container's ID and the interface's name.
const maxHostLocal = 4 << 10

// HostLocal implements [sightings.Host]. A file is named by its address, of IPv6 as host-local
// writes it; its lines are the container's ID and, since 0.7, the interface's name.
func (h host) HostLocal(network, dataDir string) ([]sightings.HostLocalFile, error) {
	if network != filepath.Base(network) || network == "." || network == ".." {
		return nil, fmt.Errorf("%q is no name of a directory", network)
	}
	if dataDir == "" {
		dataDir = h.HostLocalDir
	}
	dir := filepath.Join(dataDir, network)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, h.seesNone(filepath.Clean(dataDir), dir)
	}
	if err != nil {
		return nil, err
	}
	var files []sightings.HostLocalFile
	for _, e := range entries {
		addr, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":"))
		if err != nil || !e.Type().IsRegular() {
			continue // its lock, and what it gave last
		}
		text, err := readSome(filepath.Join(dir, e.Name()), maxHostLocal)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // its DEL came meanwhile
				continue
			}
			return files, err
		}
		container, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		files = append(files, sightings.HostLocalFile{Addr: addr.Unmap(), Container: strings.TrimSpace(container)})
	}
	return files, nil
}

// seesNone returns nil if there certainly is no directory dir, which was not found, on the node.
// The agent has the node's directory of the CNI, and in a container of its own nothing else: what
// is not found elsewhere may be there all the same.
func (h host) seesNone(dataDir, dir string) error {
	cni := filepath.Dir(h.HostLocalDir)
	known := dataDir == cni || strings.HasPrefix(dataDir, cni+"/")
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue
		case err != nil:
			return err
		case !info.IsDir(): // a symbolic link to where the agent has nothing of the node
			return fmt.Errorf("the agent cannot read %s: %s leads to where it does not see the node's files", dir, at)
		case !known && len(at) < len(dataDir):
			return fmt.Errorf("the agent cannot read %s: of the node's files it sees those below %s", dir, cni)
		}
		return nil
	}
}

// readSome reads the beginning of a file.
func readSome(path string, most int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, most)
	n, err := f.Read(buf)
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(buf[:n]), nil
}

// There implements [sightings.Host].
func (h host) There(path string) bool {
	if path == "" {
		return true
	}
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	switch {
	case err == nil: // a file in place of a namespace is a mount that has not been propagated
		return true
	case strings.HasPrefix(path, "/proc/") && !h.SeesHost:
		return true
	case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR):
		return true
	}
	_, err = os.Stat(filepath.Dir(path))
	return err != nil && !strings.HasPrefix(path, "/proc/")
}
