package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// programsIn makes a directory with the two plugins, which print said.
func programsIn(t *testing.T, said string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range plugins {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+said+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestInstall(t *testing.T) {
	to := t.TempDir()
	call := func(from string) string {
		t.Helper()
		var out, stderr bytes.Buffer
		if err := run(t.Context(), []string{"install", "--from", from, "--to", to}, none, &out, &stderr); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	// What a writer that was killed has left does not stand in the way.
	if err := os.WriteFile(filepath.Join(to, ".tenure.new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := programsIn(t, "one"), programsIn(t, "two")
	for _, step := range []struct{ from, out, said string }{
		{one, "installed", "one"}, {one, "up to date", "one"}, {two, "installed", "two"}, {one, "installed", "one"},
	} {
		if got := call(step.from); strings.Count(got, step.out) != len(plugins) {
			t.Errorf("install says %q; want %q of each", got, step.out)
		}
		for _, name := range plugins {
			if said, err := exec.Command(filepath.Join(to, name)).Output(); err != nil || strings.TrimSpace(string(said)) != step.said {
				t.Errorf("%s says %q, %v; want %q", name, said, err, step.said)
			}
		}
	}
	left, err := os.ReadDir(to)
	if err != nil || len(left) != len(plugins) {
		t.Errorf("the directory has %v, %v; want the plugins alone", left, err)
	}
}

// TestInstallWhileItRuns: a program that is being executed cannot be written to, but
// can be replaced.
func TestInstallWhileItRuns(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(cat)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range plugins {
		if err := os.WriteFile(filepath.Join(from, name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := installFile(t.Context(), filepath.Join(from, "tenure"), to, "tenure"); err != nil {
		t.Fatal(err)
	}
	running := exec.CommandContext(t.Context(), filepath.Join(to, "tenure"))
	stdin, err := running.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	running.Stdout = &out
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "tenure"), append(program, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	if changed, err := installFile(t.Context(), filepath.Join(from, "tenure"), to, "tenure"); err != nil || !changed {
		t.Errorf("install over a running program: %t, %v; want it replaced", changed, err)
	}
	_, err = stdin.Write([]byte("alive"))
	if err := errors.Join(err, stdin.Close(), running.Wait()); err != nil || out.String() != "alive" {
		t.Errorf("the running program answers %q, %v; want it to go on", out.String(), err)
	}
}

func TestInstallRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, args := range [][]string{
		{"install", "--from", programsIn(t, "x"), "--to", missing}, // the runtime looks elsewhere
		{"install", "--from", missing, "--to", t.TempDir()},
	} {
		var out, stderr bytes.Buffer
		if err := run(t.Context(), args, none, &out, &stderr); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("run(%q) = %v; want a file that does not exist", args, err)
		}
	}
}

// TestInstallWaitsForAnother: who has the directory is waited for, and not for ever.
func TestInstallWaitsForAnother(t *testing.T) {
	from, to := programsIn(t, "one"), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		other, err := lockDir(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		install := func() error {
			return run(t.Context(), []string{"install", "--from", from, "--to", to}, none, io.Discard, io.Discard)
		}
		began := time.Now()
		err = install()
		if err == nil || !strings.Contains(err.Error(), "another process has the directory "+to+" locked") || !strings.Contains(err.Error(), "lslocks") {
			t.Errorf("%v; want it to say what it waits for, and how to find who has it", err)
		}
		if took := time.Since(began); took != lockTimeout {
			t.Errorf("it waits for %v; want %v", took, lockTimeout)
		}
		go func() {
			time.Sleep(lockTimeout / 2)
			other()
		}()
		if err := install(); err != nil {
			t.Error(err)
		}
	})
}
