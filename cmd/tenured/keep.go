package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// keepEvery is how often it is looked whether the plugins are still there.
const keepEvery = time.Second

// mountsFile is where the kernel tells what is mounted where, for this process.
const mountsFile = "/proc/self/mountinfo"

// A keeper installs the plugins in a directory, and puts them back when others have removed or
// changed them.
type keeper struct {
	from, to string
	out      io.Writer
	seen     map[string]fileState // what was found to be as installed, by name
}

// fileState tells a file from every other one, and from itself after a change.
type fileState struct {
	inode   uint64
	size    int64
	changed unix.Timespec
}

// run keeps the plugins until ctx ends. It fails when they cannot be put back, and when the host
// has another directory there by now: a container sees the directory that was there when it
// started, so that it has to start anew.
func (k *keeper) run(ctx context.Context) error {
	mounts, err := os.ReadFile(mountsFile)
	if err != nil {
		return err
	}
	began := mountedFrom(string(mounts), k.to)
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		if err := k.checkDir(began); err != nil {
			return err
		}
		if err := k.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// checkDir fails when the directory has been removed, or has another path on the host than when
// it began: the runtime does not look here any more.
func (k *keeper) checkDir(began string) error {
	var st unix.Stat_t
	if err := unix.Stat(k.to, &st); err != nil {
		return fmt.Errorf("directory of plugins %s: %w", k.to, err)
	}
	mounts, err := os.ReadFile(mountsFile)
	if err != nil {
		return err
	}
	return replaced(k.to, began, mountedFrom(string(mounts), k.to), st.Nlink > 0)
}

// replaced judges what is known of a directory: which one is mounted there, at first and now,
// and whether it has a name left on its file system.
func replaced(dir, began, now string, named bool) error {
	const do = "this container starts anew, to have the one that is there now"
	switch {
	case !named:
		return fmt.Errorf("directory of plugins %s: the host has removed or replaced it: %s", dir, do)
	case now != began:
		return fmt.Errorf("directory of plugins %s: the host has moved it from %s to %s: %s", dir, began, now, do)
	}
	return nil
}

// mountedFrom returns which directory of its file system is mounted at dir, by what the kernel
// tells; empty if nothing is.
func mountedFrom(mounts, dir string) (root string) {
	for line := range strings.Lines(mounts) {
		// ID, parent, device, root, mount point, …; spaces in them are escaped.
		if f := strings.Fields(line); len(f) > 4 && f[4] == dir {
			root = f[3] // of several the last one is on top
		}
	}
	return root
}

// look installs the plugins that are not what was installed.
func (k *keeper) look(ctx context.Context) error {
	for _, name := range plugins {
		path := filepath.Join(k.to, name)
		state, err := stateOf(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		last, known := k.seen[name]
		if known && err == nil && state == last {
			continue
		}
		changed, err := installFile(ctx, filepath.Join(k.from, name), k.to, name)
		if err != nil {
			return fmt.Errorf("install %s: %w", path, err)
		}
		switch {
		case changed && known:
			fmt.Fprintf(k.out, "%s: another program had removed or changed it in %s: put back\n", name, k.to)
		case changed:
			fmt.Fprintf(k.out, "%s: installed in %s\n", name, k.to)
		case !known:
			fmt.Fprintf(k.out, "%s: up to date in %s\n", name, k.to)
		}
		// What is noted was there before the comparison. Of a file that was put there the next
		// look notes it: others may have changed it since.
		if changed {
			state = fileState{}
		}
		k.seen[name] = state
	}
	return nil
}

// stateOf looks at a file.
func stateOf(path string) (fileState, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileState{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return fileState{inode: st.Ino, size: st.Size, changed: st.Ctim}, nil
}
