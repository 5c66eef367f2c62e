package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// manifest knows what each program in dir was built from.
//
// Layout of dir:
//
//	NAME          the program
//	.from/NAME    fingerprint of what it was built from
type manifest struct {
	dir      string
	built    set
	versions map[string]string // by module
	pins     []byte            // go.mod and go.sum
}

func newManifest(dir string, built set, versions map[string]string) (*manifest, error) {
	if err := os.MkdirAll(filepath.Join(dir, ".from"), 0o755); err != nil {
		return nil, err
	}
	mod, err := os.ReadFile(filepath.Join(built.dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("rig runs in the directory of its own: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(built.dir, "go.sum"))
	if err != nil {
		return nil, err
	}
	return &manifest{dir: dir, built: built, versions: versions, pins: append(mod, sum...)}, nil
}

func (m *manifest) program(p program) string { return filepath.Join(m.dir, p.name) }
func (m *manifest) from(p program) string    { return filepath.Join(m.dir, ".from", p.name) }

// fingerprint changes with everything that p is built from.
func (m *manifest) fingerprint(p program) string {
	h := sha256.New()
	h.Write(m.pins)
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, p.pkg, p.ldflags(m.versions[p.module]))
	return hex.EncodeToString(h.Sum(nil))
}

// current reports whether p is there and needs no build.
func (m *manifest) current(p program) bool {
	_, err := os.Stat(m.program(p))
	from, readErr := os.ReadFile(m.from(p))
	return err == nil && readErr == nil && string(from) == m.fingerprint(p)
}

// build builds p beside its place and moves it there: one that runs at this
// moment is not disturbed, and an interrupted build leaves nothing half made.
func (m *manifest) build(ctx context.Context, p program, meter *meter) error {
	fresh := filepath.Join(m.dir, ".from", p.name+".new")
	cmd := m.built.goCommand(ctx, "build", "-trimpath", "-v", "-tags", p.tags(), "-ldflags", p.ldflags(m.versions[p.module]), "-o", fresh, p.pkg)
	if p.seccomp {
		env, err := seccomp(ctx, filepath.Join(m.dir, ".from"))
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, env...)
	}
	var said bytes.Buffer
	cmd.Stderr = meter.watch(p, &said)
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("%w\n%s", err, said.Bytes()), os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, m.program(p)); err != nil {
		return err
	}
	return os.WriteFile(m.from(p), []byte(m.fingerprint(p)), 0o644)
}

// versions returns the versions of the programs' modules.
func (s set) versions(ctx context.Context) (map[string]string, error) {
	args := []string{"list", "-m"}
	for _, p := range s.programs {
		if !slices.Contains(args, p.module) {
			args = append(args, p.module)
		}
	}
	out, err := s.goCommand(ctx, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules' versions: %w", err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		module, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		versions[module] = version
	}
	return versions, nil
}

// stalePackages returns how many packages have to be compiled for programs. It
// downloads what is not in the module cache.
func (m *manifest) stalePackages(ctx context.Context, t *ticker, programs []program) (int, error) {
	args := []string{"list", "-trimpath", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}
	for _, p := range programs {
		args = append(args, p.pkg)
	}
	cmd := m.built.goCommand(ctx, args...)
	var out, said bytes.Buffer
	modules := 0
	cmd.Stdout, cmd.Stderr = &out, &lines{each: func(line string) {
		if module, ok := strings.CutPrefix(line, "go: downloading "); ok {
			modules++
			t.pass("%d modules downloaded, now %s", modules, module)
			return
		}
		fmt.Fprintln(&said, line)
	}}
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("find what to compile: %w\n%s", err, said.Bytes())
	}
	return bytes.Count(out.Bytes(), []byte("\n")), nil
}

// goCommand runs the go command in the set's module, as every step has to: the
// build cache knows the packages by these settings.
func (s set) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.dir
	// As in the Makefile, without debugging information, which takes a fifth of compiling.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -gcflags=all=-dwarf=false", "GOWORK=off")
	return cmd
}
