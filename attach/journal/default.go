package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"

	"github.com/tenure-ipam/tenure/ipam/durable"
	"github.com/tenure-ipam/tenure/ipam/plainfile"
)

func (d Dir) defaultFile() string { return filepath.Join(d.Path, "default") }

// KeepDefault keeps the default network's configuration list for STATUS, which
// names no pod and may not ask for one. It writes only what has changed.
func (d Dir) KeepDefault(list json.RawMessage) error {
	var line bytes.Buffer
	if err := json.Compact(&line, list); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	text := durable.Seal(line.Bytes())
	if old, err := plainfile.Read(d.defaultFile()); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := durable.MakeDir(d.Path); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	temp := fmt.Sprintf("%s.%016x%s", d.defaultFile(), rand.Uint64(), suffixTemp)
	if err := durable.Create(d.defaultFile(), temp, text, reached); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Default returns what KeepDefault has kept, nil if there is nothing.
func (d Dir) Default() (json.RawMessage, error) {
	text, err := plainfile.Read(d.defaultFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	body, err := durable.Open(text)
	if err != nil {
		return nil, &DamagedError{Path: d.defaultFile(), Err: err}
	}
	return body, nil
}
