package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

func (d Dir) defaultFile() string { return filepath.Join(d.Path, "default-network") }

// earlierDefault is the file in which earlier plugins kept the list alone. The line of today has
// another file: earlier plugins would take it for a default network that is not available.
func (d Dir) earlierDefault() string { return filepath.Join(d.Path, "default") }

// defaultHead begins the line of the file: the definition that has the list, which is
// the member that follows.
func defaultHead(definition string) []byte {
	b := plainjson.AppendText(plainjson.AppendKey([]byte{'{'}, "definition"), definition)
	return plainjson.AppendKey(b, "list")
}

// KeepDefault keeps the default network's configuration list for STATUS, where a definition has
// it. A STATUS names no pod, and may not ask for a definition. The file is written only if
// something has changed.
func (d Dir) KeepDefault(definition string, list json.RawMessage) error {
	line := bytes.NewBuffer(defaultHead(definition))
	if err := json.Compact(line, list); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	line.WriteByte('}')
	changed, err := d.keep(d.defaultFile(), line.Bytes())
	if !changed {
		return err
	}
	if err := atomicfile.Remove(d.earlierDefault()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// DropDefault removes what KeepDefault has kept: no definition has the default network.
func (d Dir) DropDefault() error {
	if err := errors.Join(atomicfile.Remove(d.defaultFile()), atomicfile.Remove(d.earlierDefault())); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Default returns the list that KeepDefault has kept, nil if there is none, or it is of another
// definition.
func (d Dir) Default(definition string) (json.RawMessage, error) {
	body, err := kept(d.defaultFile())
	if body == nil {
		return nil, err
	}
	list, ours := bytes.CutPrefix(body, defaultHead(definition))
	if !ours {
		return nil, nil
	}
	return bytes.TrimSuffix(list, []byte("}")), nil
}

// keep writes a file of one line, whole or not at all, if it does not say that already.
func (d Dir) keep(path string, body []byte) (changed bool, err error) {
	text := atomicfile.Seal(body)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return false, nil
	}
	if err := atomicfile.MakeDir(d.Path); err != nil {
		return false, fmt.Errorf("journal: %w", err)
	}
	temp := fmt.Sprintf("%s.%016x%s", path, rand.Uint64(), suffixTemp)
	if err := atomicfile.Create(path, temp, text, reached); err != nil {
		return false, fmt.Errorf("journal: %w", err)
	}
	return true, nil
}

// kept returns what keep has written, nil if there is none. The error of a file that does not read
// is a [*DamagedError].
func kept(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	body, err := atomicfile.Open(text)
	if err != nil {
		return nil, &DamagedError{Path: path, Err: err}
	}
	return body, nil
}
