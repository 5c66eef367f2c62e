package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settle is how long a program is left alone before its memory is looked at.
const settle = 5 * time.Second

// size reports how large the programs are as they ship.
func (b *bench) size(context.Context) error {
	programs := []string{"tenure", "tenure-attach", "tenured", "tenure-controller", "static", "host-local"}
	sizes := make([]int64, len(programs))
	for i, program := range programs {
		info, err := os.Stat(b.program(program))
		if err != nil {
			return fmt.Errorf("%w: make build rig makes it", err)
		}
		sizes[i] = info.Size()
	}
	b.report.size(programs, sizes)
	return nil
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
func (b *bench) rss(ctx context.Context) error {
	whole, err := b.node.agent.settled(ctx)
	if err != nil {
		return err
	}
	own, err := b.node.agent.memory("RssAnon")
	if err != nil {
		return err
	}
	b.report.rss(whole, own)
	return nil
}

// settled returns the program's memory, in bytes, after it was left alone for a while.
func (p *process) settled(ctx context.Context) (int64, error) {
	select {
	case <-time.After(settle):
		return p.memory("VmRSS")
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// memory returns a line of the program's /proc/PID/status, in bytes.
func (p *process) memory(key string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}

// cpuTime returns the processor time that the program's threads have used.
func (p *process) cpuTime() (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}
