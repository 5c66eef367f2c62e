package journal

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

const (
	suffixTemp    = ".tmp"
	suffixDamaged = ".damaged"

	// maxSize bounds a journal that is read: a plan takes some kilobytes for each
	// step.
	maxSize = 16 << 20
	// maxHead bounds the plan in it, so that there is room for what is done.
	maxHead = maxSize / 2

	// tempAge is how old a journal being written must be to count as left behind.
	tempAge = time.Hour
)

// A Dir is a directory of state. Whoever writes holds the container's [Lock].
type Dir struct {
	Path string
}

func (d Dir) attachments() string { return filepath.Join(d.Path, "attachments") }
func (d Dir) unsent() string      { return filepath.Join(d.Path, "unsent") }

// FileName is the name of the attachment's journal: for people who look for a
// container, and with a hash of the network's name, which may be long.
func (k Key) FileName() string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, k.Network) // a hash accepts everything
	return k.ContainerID + "." + k.IfName + "." + hex.EncodeToString(h.Sum(nil))
}

// KeyIn returns the key whose journal has that file name, if it is of network: of a journal that
// does not read, the name alone says whose it is.
func KeyIn(network, fileName string) (k Key, ok bool) {
	for at, c := range fileName {
		end := strings.LastIndexByte(fileName, '.')
		if c != '.' || at >= end {
			continue
		}
		k = Key{ContainerID: fileName[:at], Network: network, IfName: fileName[at+1 : end]}
		if k.FileName() == fileName {
			return k, true
		}
	}
	return Key{}, false
}

// file returns the path of the journal of k.
func (d Dir) file(k Key) (string, error) {
	name := k.FileName()
	if k.ContainerID == "" || k.IfName == "" || filepath.Base(name) != name {
		return "", fmt.Errorf("journal: container ID %q and interface name %q name no file", k.ContainerID, k.IfName)
	}
	return filepath.Join(d.attachments(), name), nil
}

// reached is called at each step of a write. Tests replace it, to die there.
var reached = func(_ string) {}

// Create writes the journal of an attachment of which nothing has been done yet, and
// returns the log to go on with it. What it says survives the end of this process, and a
// crash of everything once [Log.Sync] has returned nil.
func (d Dir) Create(h Head) (*Log, error) {
	path, err := d.file(h.Key)
	if err != nil {
		return nil, err
	}
	h.Version = version
	body := h.body()
	if !json.Valid(body) { // as it would be where something in it nests too deeply
		return nil, errors.New("journal: the plan could not be read again: it is not valid JSON")
	}
	line := atomicfile.Seal(body)
	if len(line) > maxHead {
		return nil, fmt.Errorf("journal: the plan has %d bytes, %d are allowed: the pod selects too many networks, or one with a very large configuration", len(line), maxHead)
	}
	if err := atomicfile.MakeDir(d.attachments()); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	temp := fmt.Sprintf("%s.%016x%s", path, rand.Uint64(), suffixTemp)
	f, err := atomicfile.CreateNew(path, temp, line, reached)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &Log{dir: d, key: h.Key, f: f, path: path, size: len(line)}, nil
}

// Rewrite writes the journal of e.Key anew, in the place of the one that is there, and returns the
// log to go on with it: an attachment gets another plan. After a crash of everything the old one is
// there, or the new one.
func (d Dir) Rewrite(e *Entry) (*Log, error) {
	path, err := d.file(e.Key)
	if err != nil {
		return nil, err
	}
	e.Version = version
	text := e.text()
	back, _, err := decode(text)
	if err == nil && back.Lost != "" {
		err = errors.New(back.Lost)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: it could not be read again: %w", err)
	}
	if len(text) > maxHead {
		return nil, fmt.Errorf("journal: the plan and its results have %d bytes, %d are allowed: the pod selects too many networks, or one with a very large configuration", len(text), maxHead)
	}
	temp := fmt.Sprintf("%s.%016x%s", path, rand.Uint64(), suffixTemp)
	if err := atomicfile.Create(path, temp, text, reached); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return d.open(e.Key, path, len(text))
}

// Read returns what the journal of k says. The error of an absent one wraps
// [fs.ErrNotExist]; that of one that does not read is a [*DamagedError].
func (d Dir) Read(k Key) (*Entry, error) {
	e, _, _, err := d.read(k)
	return e, err
}

// Open returns what the journal of k says, and the log to go on with it. Its
// errors are those of Read.
func (d Dir) Open(k Key) (*Entry, *Log, error) {
	e, path, size, err := d.read(k)
	if err != nil {
		return nil, nil, err
	}
	log, err := d.open(k, path, size)
	return e, log, err
}

func (d Dir) read(k Key) (e *Entry, path string, size int, err error) {
	if path, err = d.file(k); err != nil {
		return nil, "", 0, err
	}
	e, size, err = read(path)
	if err == nil && e.Key != k {
		err = &DamagedError{Path: path, Err: fmt.Errorf("it is the journal of %+v", e.Key)}
	}
	return e, path, size, err
}

// read reads a journal; size is how much of the file is lines.
func read(path string) (e *Entry, size int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("journal: %w", err)
	}
	defer f.Close() // it is only read
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, 0, fmt.Errorf("journal: %s: %w", path, err)
	}
	if len(text) > maxSize {
		return nil, 0, &DamagedError{Path: path, Err: fmt.Errorf("it is larger than %d bytes", maxSize)}
	}
	e, size, err = decode(text)
	if err == nil && e.FileName() != filepath.Base(path) { // nobody would find it by its key
		err = fmt.Errorf("it is the journal of %+v", e.Key)
	}
	switch {
	case errors.Is(err, errNewer):
		return nil, 0, fmt.Errorf("journal: %s: %w", path, err)
	case err != nil:
		return nil, 0, &DamagedError{Path: path, Err: err}
	}
	return e, size, nil
}

// List returns every journal that reads, and for each that does not, why: a
// [*DamagedError] or another error. It sweeps away what writers that were killed
// left behind. err means that the directory cannot be read.
func (d Dir) List(now time.Time) (entries []*Entry, unread []error, err error) {
	if err := atomicfile.Sweep(d.attachments(), suffixTemp, now.Add(-tempAge)); err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	return d.readAll(func(name string) bool {
		return !strings.HasSuffix(name, suffixTemp) && !strings.HasSuffix(name, suffixDamaged)
	})
}

// OfInterface lists as List does, for one interface of a container. It finds attachments by every
// name that the meta-plugin's configuration has had.
func (d Dir) OfInterface(containerID, ifName string) (entries []*Entry, unread []error, err error) {
	entries, unread, err = d.readAll(func(name string) bool {
		hash, ok := strings.CutPrefix(name, containerID+"."+ifName+".")
		return ok && !strings.Contains(hash, ".") // else it is being written, or set aside
	})
	return slices.DeleteFunc(entries, func(e *Entry) bool { // a name can be cut in two ways
		return e.ContainerID != containerID || e.IfName != ifName
	}), unread, err
}

// readAll returns the journals of these names that read, in the order of their names, and
// for each that does not, why.
func (d Dir) readAll(named func(name string) bool) (entries []*Entry, unread []error, err error) {
	names, err := atomicfile.Names(d.attachments())
	if err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		if !named(name) {
			continue
		}
		e, _, err := read(filepath.Join(d.attachments(), name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since
		case err != nil:
			unread = append(unread, err)
		default:
			entries = append(entries, e)
		}
	}
	return entries, unread, nil
}

// Remove removes the journal of k, and what is kept beside it. After a crash of the
// machine it may be back: then a garbage collection finds a container that is gone,
// and undoes once more what was undone. That it is gone is no error.
func (d Dir) Remove(k Key) error {
	path, err := d.file(k)
	if err != nil {
		return err
	}
	err = errors.Join(atomicfile.Remove(filepath.Join(d.unsent(), filepath.Base(path))), atomicfile.Remove(path))
	reached("removed")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// SetAside renames a damaged journal, so that it is not met again and not lost
// either, and returns its new path.
func (d Dir) SetAside(damaged *DamagedError) (string, error) {
	aside := damaged.Path + suffixDamaged
	if err := os.Rename(damaged.Path, aside); err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	return aside, nil
}

// A Log adds to a journal.
type Log struct {
	dir  Dir
	key  Key
	f    *os.File // read-only where fault is not nil
	path string
	size int // of the journal
	// fault is why nothing can be added: the file system is read-only.
	fault error
}

// Sync has all that the journal says survive a crash of everything. After an error nothing
// may be done by it, and [Log.Drop] is due.
func (l *Log) Sync() error {
	if err := atomicfile.SyncNew(l.f, l.path, reached); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// open opens a journal for adding after its first size bytes. On a file system that is read-only
// it returns a log all the same, which takes nothing: what is known of an attachment is enough to
// undo it.
func (d Dir) open(k Key, path string, size int) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, syscall.EROFS) {
		fault := err
		if f, err = os.Open(path); err == nil {
			return &Log{dir: d, key: k, f: f, path: path, size: size, fault: fault}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() > int64(size) {
		err = f.Truncate(int64(size)) // a line whose writer was killed
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), f.Close())
	}
	return &Log{dir: d, key: k, f: f, path: path, size: size}, nil
}

// Close closes the log. The journal stays.
func (l *Log) Close() error { return l.f.Close() }

// Began notes that a step is about to begin.
func (l *Log) Began(step int) error { return l.add(began(step)) }

// Done notes the result of a step, JSON without newlines; the last one counts.
func (l *Log) Done(step int, result []byte) error { return l.add(done(step, result)) }

// Undone notes that a step's DEL has succeeded.
func (l *Log) Undone(step int) error { return l.add(undone(step)) }

// Answer notes that the runtime is about to be told of success, and what the agent
// is to be told then. When it returns nil, all that the journal says survives the
// end of this process.
func (l *Log) Answer(r facts.Report) error {
	body := append(r.AppendTo([]byte(`{"report":`)), `,"answered":true}`...)
	err := l.add(body)
	reached("answered")
	return err
}

// add writes a line with one write: a process that is killed leaves all of it or a
// part without a newline. It is written by hand where that is easy: a plugin writes
// a few in its life, and would spend more on having encoding/json learn the type. A
// line by which the journal would be too large to be read is refused.
func (l *Log) add(body []byte) error {
	if l.fault != nil {
		return fmt.Errorf("journal: %w", l.fault)
	}
	line := atomicfile.Seal(body)
	if l.size+len(line) > maxSize {
		return fmt.Errorf("journal: %s has %d bytes and is to get %d more, %d are allowed", l.path, l.size, len(line), maxSize)
	}
	n, err := l.f.Write(line)
	l.size += n
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	reached("added")
	return nil
}
