// Package netns tells network namespaces apart by the path that a runtime gives and the inode
// behind it, and does things inside one. A namespace has no name of its own: the same path may name
// another one tomorrow.
package netns

import (
	"errors"
	"fmt"
	"syscall"
)

// ID returns the identity of the network namespace at path, "device:inode", or
// "" where it cannot be told. Two namespaces that exist at one time have
// different identities; one that is gone may lend its inode to a later one.
func ID(path string) string {
	id, _ := stat(path)
	return id
}

// Gone reports whether the namespace that had this identity at path is there no
// longer: nothing is at path, or something else is. What cannot be verified is
// not gone: an empty path or identity, and every other error. The answer is
// worth something only in the mount and process namespaces that the runtime's
// paths are meant for.
func Gone(path, id string) bool {
	if path == "" || id == "" {
		return false
	}
	now, err := stat(path)
	switch {
	case err == nil:
		return now != id
	default:
		return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
	}
}

func stat(path string) (id string, err error) {
	if path == "" {
		return "", syscall.ENOENT
	}
	var st syscall.Stat_t
	for {
		err = syscall.Stat(path, &st)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}
