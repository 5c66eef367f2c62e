package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/test/sandbox"
)

// cgroupRoot is where the hierarchies are: many of version 1, or the one of version 2.
const cgroupRoot = "/sys/fs/cgroup"

// The name of a node's cgroup: the sandbox's directory on disk, by which one in use is
// told from one that was left, between a mark and the node's name.
const (
	cgroupMark = "cluster-of-"
	cgroupNode = ".node."
)

// cgroup returns the cgroup of a node, from the root of every hierarchy.
func cgroup(node string) string {
	return cgroupMark + filepath.Base(sandbox.Disk()) + cgroupNode + node
}

// hierarchies returns the roots of the cgroup hierarchies, also that of version 2
// beside version 1, which has no controllers: runtimes use it as well.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	var roots []string
	for _, e := range entries {
		root := filepath.Join(cgroupRoot, e.Name())
		// Links are second names.
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); e.IsDir() && err == nil {
			roots = append(roots, root)
		}
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("%s has no cgroup hierarchy: kubelets need them mounted", cgroupRoot)
	}
	return roots, nil
}

// makeCgroup makes the cgroup name in every hierarchy: the kubelet wants it there.
func makeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
		// A new cgroup of version 1 has no processor and no memory node.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(root, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("prepare cgroup: %w", err)
			}
		}
	}
	return nil
}

// removeCgroup removes the cgroup name and all below it from every hierarchy. What
// was in them is dead, but may take a moment to leave.
func removeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, root := range roots {
		for {
			err := removeTree(filepath.Join(root, name))
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes the directory dir and those below it; files of cgroups go with
// their directory.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // somebody else may sweep, too
		return err
	}
	return nil
}

// Sweep removes what killed programs have left: the disks of their sandboxes, and the
// cgroups of clusters whose sandbox is gone. It is called when a program of [Main] ends.
func Sweep() error {
	if err := sandbox.Sweep(); err != nil {
		return err
	}
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, root := range roots {
		found, err := filepath.Glob(filepath.Join(root, cgroupMark+"*"))
		if err != nil {
			return err
		}
		for _, path := range found {
			names[filepath.Base(path)] = true
		}
	}
	var errs []error
	for name := range names {
		used, err := inUse(name)
		if err == nil && !used {
			err = removeCgroup(name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// inUse reports whether the sandbox that a cgroup is of has its directory on disk.
func inUse(cgroup string) (bool, error) {
	disk, _, ours := strings.Cut(strings.TrimPrefix(cgroup, cgroupMark), cgroupNode)
	if !ours {
		return true, nil // somebody else's, by whatever name
	}
	_, err := os.Stat(filepath.Join(sandbox.DiskRoot, disk))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
