package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// files are files of a module that tests apply as they are published.
type files struct {
	name    string // of the directory that the rig has with copies of them
	module  string // whose version they have
	pattern string // of their paths in the module
}

// provide puts copies of f into the rig, unless it has those of this version.
func (m *manifest) provide(ctx context.Context, f files) error {
	origin := f.module + "@" + m.versions[f.module] + " " + f.pattern
	dir, from := filepath.Join(m.dir, f.name), filepath.Join(m.dir, ".from", f.name)
	_, err := os.Stat(dir)
	if said, readErr := os.ReadFile(from); err == nil && readErr == nil && string(said) == origin {
		return nil
	}
	// It was downloaded for its programs, unless those are of an earlier run.
	if err := m.built.goCommand(ctx, "mod", "download", f.module).Run(); err != nil {
		return fmt.Errorf("download %s: %w", origin, err)
	}
	module, err := m.built.goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", f.module).Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", origin, err)
	}
	found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), f.pattern))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("there is no file %s: change the pattern in programs.go", origin)
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(from, []byte(origin), 0o644)
}
