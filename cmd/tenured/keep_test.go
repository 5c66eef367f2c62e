package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keeping runs install --keep until the test ends; its answer is sent when it ends by itself.
func keeping(t *testing.T, from, to string) <-chan error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"install", "--keep", "--from", from, "--to", to}, none, io.Discard, io.Discard)
	}()
	t.Cleanup(stop)
	return done
}

// says waits until every plugin in dir says said.
func says(t *testing.T, dir, said string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, name := range plugins {
		for {
			out, err := exec.Command(filepath.Join(dir, name)).Output()
			if err == nil && strings.TrimSpace(string(out)) == said {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s says %q, %v; want %q", name, out, err, said)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestKeepPutsProgramsBack: whatever others do to the plugins, they are back.
func TestKeepPutsProgramsBack(t *testing.T) {
	from, to := programsIn(t, "one"), t.TempDir()
	done := keeping(t, from, to)
	says(t, to, "one")
	for what, spoil := range map[string]func(path string) error{
		"removed":            os.Remove,
		"not to be executed": func(path string) error { return os.Chmod(path, 0o644) },
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".x", []byte("#!/bin/sh\necho two\n"), 0o755); err != nil {
				return err
			}
			return os.Rename(path+".x", path)
		},
		"cut short": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			for _, name := range plugins {
				if err := spoil(filepath.Join(to, name)); err != nil {
					t.Fatal(err)
				}
			}
			says(t, to, "one")
		})
	}
	select {
	case err := <-done:
		t.Errorf("it has ended: %v", err)
	default:
	}
}

// TestKeepFailsWhereItCannot: it ends, and names the file.
func TestKeepFailsWhereItCannot(t *testing.T) {
	from, to := programsIn(t, "one"), t.TempDir()
	done := keeping(t, from, to)
	says(t, to, "one")
	path := filepath.Join(to, "tenure")
	for _, file := range []string{filepath.Join(from, "tenure"), path} { // nothing to put back from
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "install "+path+":") {
			t.Errorf("it ends with %v; want the file named", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// TestDirectoryIsReplaced: a container has the directory that was there when it began, whatever
// the host has there now. The kernel tells, by its mounts and the names that it has.
func TestDirectoryIsReplaced(t *testing.T) {
	const mounts = `21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 8:1 /opt/cni/bin /plugins rw,relatime master:1 - ext4 /dev/sda1 rw
31 21 0:21 / /run rw - tmpfs tmpfs rw
`
	began := mountedFrom(mounts, "/plugins")
	if began != "/opt/cni/bin" || mountedFrom(mounts, "/other") != "" || mountedFrom(mounts, "/") != "/" {
		t.Fatalf("mounted from %q", began)
	}
	for _, tt := range []struct {
		what, from, to string
		named          bool
		want           string
	}{
		{"as it was", "", "", true, ""},
		{"no name any more", "", "", false, "removed or replaced it: this container starts anew"},
		{"its name on the host is gone", "/opt/cni/bin /plugins", "/opt/cni/bin//deleted /plugins", true, "moved it from /opt/cni/bin to /opt/cni/bin//deleted"},
		{"renamed", "/opt/cni/bin /plugins", "/opt/cni/bin.old /plugins", true, "moved it from /opt/cni/bin to /opt/cni/bin.old"},
		{"renamed above", "/opt/cni/bin /plugins", "/opt/cni.old/bin /plugins", true, "to /opt/cni.old/bin"},
	} {
		now := mountedFrom(strings.Replace(mounts, tt.from, tt.to, 1), "/plugins")
		err := replaced("/plugins", began, now, tt.named)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.what, err, tt.want)
		}
	}
}

// TestKeepEndsWhenItIsStopped, and says what it has done.
func TestKeepEndsWhenItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out bytes.Buffer
	to := t.TempDir()
	if err := run(ctx, []string{"install", "--keep", "--from", programsIn(t, "one"), "--to", to}, none, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "installed in "+to) != len(plugins) {
		t.Errorf("it says %q", &out)
	}
}

// TestKeepSeesAChangeRightAfterItsOwn: what others change as soon as it was put back is put back
// again.
func TestKeepSeesAChangeRightAfterItsOwn(t *testing.T) {
	from, to := programsIn(t, "one"), t.TempDir()
	k := keeper{from: from, to: to, seen: map[string]fileState{}}
	k.out = writerFunc(func(text []byte) (int, error) { // between the installation and the note of it
		if bytes.Contains(text, []byte("installed")) {
			for _, name := range plugins {
				if err := os.Truncate(filepath.Join(to, name), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
					return 0, err
				}
			}
		}
		return len(text), nil
	})
	for range 3 {
		if err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	says(t, to, "one")
}

// writerFunc is what writes.
type writerFunc func(text []byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }
