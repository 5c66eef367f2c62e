package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

const installUsage = `tenured install puts the CNI plugins tenure and tenure-attach where a container
runtime finds them, while it may be running them. The DaemonSet's init container
does it on each node. With --keep it goes on to look after them until it is stopped, as
a container beside the agent does: what others remove or change is put back.

Flags:
`

// plugins are the programs that runtimes execute.
var plugins = []string{"tenure", "tenure-attach"}

// install reads the flags and installs the plugins; it keeps them until ctx ends where that is
// asked for.
func install(ctx context.Context, args []string, out, stderr io.Writer) error {
	flags := pflag.NewFlagSet("tenured install", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, installUsage, flags.FlagUsages()) }
	from := flags.String("from", "/", "directory that has them")
	to := flags.String("to", "/opt/cni/bin", "the runtime's directory of plugins, which must exist")
	keep := flags.Bool("keep", false, "put them back whenever they are removed or changed, until stopped")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: see tenured install --help", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: see tenured install --help", flags.Arg(0))
	}
	k := keeper{from: *from, to: *to, out: out, seen: map[string]fileState{}}
	if *keep {
		return k.run(ctx)
	}
	return k.look(ctx)
}

// installFile copies the program at from into dir as name. Whoever runs it meanwhile
// goes on with the old one, and who starts it finds the old one or the new one, whole,
// also after a crash. It reports whether there was anything to do.
func installFile(ctx context.Context, from, dir, name string) (changed bool, err error) {
	program, err := os.ReadFile(from)
	if err != nil {
		return false, err
	}
	final := filepath.Join(dir, name)
	if there, err := os.ReadFile(final); err == nil && bytes.Equal(there, program) {
		info, err := os.Stat(final)
		if err == nil && info.Mode().Perm() == programMode {
			return false, nil
		}
	}
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	// In the same directory, since a rename is atomic within one file system only; by a
	// name that no configuration has as a type.
	temp := filepath.Join(dir, "."+name+".new")
	if err := writeProgram(temp, program); err != nil {
		return false, errors.Join(err, atomicfile.Remove(temp))
	}
	if err := os.Rename(temp, final); err != nil {
		return false, errors.Join(err, atomicfile.Remove(temp))
	}
	return true, atomicfile.SyncDir(dir)
}

// lockTimeout is how long another installer is waited for: it copies two files.
const lockTimeout = 30 * time.Second

// lockDir keeps other installers out of a directory until unlock is called.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	waits, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil // which unlocks it
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
		case !pause.For(waits, 50*time.Millisecond):
			return nil, errors.Join(lockedBy(f, lockTimeout), f.Close())
		}
	}
}

// lockedBy says who has a directory locked.
func lockedBy(dir *os.File, since time.Duration) error {
	who := journal.Holders(dir)
	if who == "" { // a container does not see the processes of others
		who = "which cannot be seen from here; on the node, lslocks names it"
	}
	return fmt.Errorf("another process has the directory %s locked for %v or longer: %s: end it if it hangs", dir.Name(), since, who)
}

// programMode is that of an installed plugin.
const programMode fs.FileMode = 0o755

// writeProgram makes the file path, on disk, in the place of what a killed writer may
// have left there.
func writeProgram(path string, program []byte) error {
	if err := atomicfile.Remove(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, programMode)
	if err != nil {
		return err
	}
	_, err = f.Write(program)
	if err == nil {
		err = f.Chmod(programMode) // past the umask
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
