package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

// maxDevice bounds a device information file: it has a few lines.
const maxDevice = 64 << 10

// prepareDevice copies what the device plugin says of a device to where the
// attachment's delegates look for it (Device Information Specification 1.1.0,
// section 5.1.1). The device plugin may have said nothing.
func prepareDevice(d *plan.Device) error {
	if d == nil || d.File == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(d.File), 0o755); err != nil {
		return fmt.Errorf("device information: %w", err)
	}
	if d.Source == "" {
		return nil
	}
	text, err := os.ReadFile(d.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(d.File, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("device information: %w", err)
	}
	return nil
}

// readDevice returns what the attachment's file says after the ADD, else what the
// device plugin said; nil if nobody said anything.
func readDevice(d *plan.Device) (json.RawMessage, error) {
	if d == nil {
		return nil, nil
	}
	for _, path := range []string{d.File, d.Source} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("device information: %w", err)
		}
		var object map[string]json.RawMessage
		if len(text) > maxDevice || json.Unmarshal(text, &object) != nil || object == nil {
			return nil, fmt.Errorf("device information: %s is not a JSON object of at most %d bytes", path, maxDevice)
		}
		return text, nil
	}
	return nil, nil
}

// removeDevice removes the attachment's file. The path is that of a record, which others may have
// written: a file elsewhere than where such files lie is left alone.
func (r *Runner) removeDevice(d *plan.Device) error {
	if d == nil || d.File == "" {
		return nil
	}
	path := filepath.Clean(d.File)
	if filepath.Dir(path) != plan.DeviceDir {
		fmt.Fprintf(r.Stderr, "tenure-attach: %q is no file of device information, which lie in %s: it is not removed\n", d.File, plan.DeviceDir)
		return nil
	}
	return atomicfile.Remove(path)
}
