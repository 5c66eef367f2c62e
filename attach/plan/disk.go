package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Disk is what a plan needs of the host's configuration files. What it returns
// is a network configuration list, also where the file has a single configuration,
// with all its plugins in it.
type Disk interface {
	// Lookup returns the configuration of a name (3.4.1), or ErrNotFound.
	Lookup(name string) (json.RawMessage, error)
	// Read returns the configuration in a file, or the first of a directory.
	Read(path string) (json.RawMessage, error)
}

// Files is a Disk over the host's files. Its methods may be called concurrently.
type Files struct {
	Root    fs.FS  // the host's files, from /
	ConfDir string // an absolute path
}

// listExtensions and singleExtensions are those of files with a list and with a
// single configuration: the specification's names, and the ones in use.
var (
	listExtensions   = []string{".configlist", ".conflist"}
	singleExtensions = []string{".config", ".conf", ".json"}
)

// Lookup returns the list in confDir whose name is name, else the single
// configuration of that name, in the order of the files' names. Files that cannot
// be read are passed over, and named if nothing is found.
func (f Files) Lookup(name string) (json.RawMessage, error) {
	list, skipped, err := f.first(f.ConfDir, func(l *list) bool { return l.name == name })
	if err != nil && len(skipped) > 0 {
		err = fmt.Errorf("%w; passed over: %w", err, errors.Join(skipped...))
	}
	return list, err
}

// Read returns the configuration in the file, or the first one of the directory
// that is neither tenure-attach's own nor Multus's; these are named if nothing else is found.
func (f Files) Read(name string) (json.RawMessage, error) {
	info, err := fs.Stat(f.Root, relative(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	if !info.IsDir() {
		l, err := f.load(name)
		if err != nil {
			return nil, err
		}
		return l.marshal(), nil
	}
	var unfit []error
	list, skipped, err := f.first(name, func(l *list) bool {
		fault := l.checkPlugins()
		if fault != nil {
			unfit = append(unfit, fault)
		}
		return fault == nil
	})
	skipped = append(skipped, unfit...)
	if err != nil && len(skipped) > 0 {
		err = fmt.Errorf("%w; passed over: %w", err, errors.Join(skipped...))
	}
	return list, err
}

// first returns the first configuration of dir that is wanted, lists before single
// ones.
func (f Files) first(dir string, wanted func(*list) bool) (found json.RawMessage, skipped []error, err error) {
	entries, err := fs.ReadDir(f.Root, relative(dir)) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s: %w", dir, reason(err))
	}
	for _, extensions := range [][]string{listExtensions, singleExtensions} {
		for _, e := range entries {
			if e.IsDir() || !slices.Contains(extensions, path.Ext(e.Name())) {
				continue
			}
			l, err := f.load(path.Join(dir, e.Name()))
			if err != nil {
				skipped = append(skipped, err)
				continue
			}
			if wanted(l) {
				return l.marshal(), skipped, nil
			}
		}
	}
	return nil, skipped, fmt.Errorf("%s: %w", dir, ErrNotFound)
}

// load reads a file with a list or a single configuration. A list that does not
// forbid it gets the plugins in the directory of its name beside the file.
func (f Files) load(name string) (*list, error) {
	text, err := f.text(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	l, err := parseList(text)
	if err == nil {
		err = l.checkName() // before it becomes a part of a path
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if l.loadsMore {
		if err := f.loadPlugins(l, path.Join(path.Dir(name), l.name)); err != nil {
			return nil, err
		}
	}
	if len(l.plugins) == 0 {
		return nil, fmt.Errorf("%s: plugins: the list has none, and no *.conf in directory %s", name, l.name)
	}
	return l, nil
}

// loadPlugins adds the plugins of dir's files to l, in the order of their names.
func (f Files) loadPlugins(l *list, dir string) error {
	entries, err := fs.ReadDir(f.Root, relative(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, reason(err))
	}
	for _, e := range entries {
		if e.IsDir() || path.Ext(e.Name()) != ".conf" {
			continue
		}
		file := path.Join(dir, e.Name())
		text, err := f.text(file)
		if err == nil {
			err = l.addPlugin(text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, reason(err))
		}
	}
	return nil
}

// maxFile is how many bytes a configuration file may have: that of a network has some
// hundreds.
const maxFile = 1 << 20

// text returns what a file has. Others than regular ones are not opened: that of a pipe
// waits for a writer, and that of a device may do anything.
func (f Files) text(name string) ([]byte, error) {
	info, err := fs.Stat(f.Root, relative(name))
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has %d bytes; a configuration may have %d", info.Size(), maxFile)
	}
	file, err := f.Root.Open(relative(name))
	if err != nil {
		return nil, err
	}
	defer file.Close() // it is only read
	return io.ReadAll(io.LimitReader(file, maxFile))
}

// relative turns an absolute path into one of an fs.FS.
func relative(name string) string {
	if rel := strings.TrimPrefix(path.Clean(name), "/"); rel != "" {
		return rel
	}
	return "."
}

// reason strips an error of fs of its operation and path, which is relative and
// would mislead.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
