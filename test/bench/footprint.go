package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/test/process"
)

// settle is how long a program is left alone before its memory is looked at.
const settle = 5 * time.Second

// size reports how large the programs are as they ship.
func (b *bench) size(context.Context) {
	programs := []string{"tenure", "tenure-attach", "tenured", "tenure-controller", "static", "host-local"}
	sizes := make([]int64, len(programs))
	for i, program := range programs {
		info, err := os.Stat(b.program(program))
		if err != nil {
			b.Fail("%w: make build rig makes it", err)
		}
		sizes[i] = info.Size()
	}
	b.report.size(programs, sizes)
}

// plugins are the programs that are measured by starting them.
var plugins = []string{"tenure", "tenure-attach", "static", "host-local", "recorder"}

// install copies the plugins to the sandbox's disk, as an installation copies its own:
// what the linker has just written is in the page cache in single pages, and starts
// slower.
func (b *bench) install() error {
	if err := os.Mkdir(b.pluginDir(), 0o755); err != nil {
		return err
	}
	for _, name := range plugins {
		program, err := os.ReadFile(b.built(name))
		if err != nil {
			return fmt.Errorf("%w: make bench makes it", err)
		}
		if err := os.WriteFile(b.program(name), program, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// pluginDir is the directory in which plugins are installed.
func (b *bench) pluginDir() string { return filepath.Join(b.dir, "plugins") }

// program returns the path of a program: of plugins where they are installed.
func (b *bench) program(name string) string {
	if slices.Contains(plugins, name) {
		return filepath.Join(b.pluginDir(), name)
	}
	return b.built(name)
}

// built returns the path where make leaves a program: of the reference plugins in
// bin/rig.
func (b *bench) built(name string) string {
	bin := filepath.Join(b.root, "bin")
	if name == "static" || name == "host-local" {
		return filepath.Join(bin, "rig", name)
	}
	return filepath.Join(bin, name)
}

// rss reports the memory of an agent that has started and has nothing to do.
func (b *bench) rss(ctx context.Context) {
	whole := b.settled(ctx, b.node.agent)
	own := b.memory(b.node.agent, "RssAnon")
	b.report.rss(whole, own)
}

// settled returns a program's memory, in bytes, after it was left alone for a while.
func (b *bench) settled(ctx context.Context, p *process.Process) int64 {
	b.wait(ctx, settle)
	return b.memory(p, "VmRSS")
}

// memory returns a program's memory of some kind, in bytes.
func (b *bench) memory(p *process.Process, kind string) int64 {
	bytes, err := p.Memory(kind)
	b.Must(err)
	return bytes
}

// wait waits, while something settles.
func (b *bench) wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		b.Must(context.Cause(ctx))
	}
}
