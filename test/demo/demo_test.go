package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(sandbox.Options{}, m.Run)) }

// TestLocal plays the scenes without a cluster. They need one program of Tenure and one plugin.
func TestLocal(t *testing.T) {
	bin := t.TempDir()
	if _, err := programs.Build(t.Context(), bin, "tenure"); err != nil {
		t.Fatal(err)
	}
	rig, err := programs.RigDir()
	if err == nil {
		err = errors.Join(os.Mkdir(filepath.Join(bin, "rig"), 0o755), os.Symlink(filepath.Join(rig, "bridge"), filepath.Join(bin, "rig/bridge")))
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &local{Show: show.New(show.Options{}), bin: bin}
	if err := l.Perform(func() { l.perform(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	if got, want := l.Shown().Scenes, len(localScenes); got != want {
		t.Errorf("%d scenes were shown; want %d", got, want)
	}
	if _, err := os.Stat(show.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left to the scenes on a cluster: %v", show.Dir, err)
	}
}

// TestBuild: who waits for a build inside the sandbox is told how it goes on, and how it has ended.
func TestBuild(t *testing.T) {
	for _, tt := range []struct {
		name    string
		command []string
		reports string
		want    error
	}{
		{name: "nothing to build"},
		{name: "builds well", command: []string{"sh", "-c", "echo one; echo two; sleep 0.5"}, reports: "two"},
		{name: "fails", command: []string{"sh", "-c", "echo 'no such package' >&2; sleep 0.5; exit 2"}, reports: "no such package", want: errBuild},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := t.TempDir()
			b, err := startBuild(bin, tt.command)
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			if err := awaitBuild(t.Context(), bin, func(text string) { said = append(said, text) }); !errors.Is(err, tt.want) {
				t.Errorf("%v; want %v", err, tt.want)
			}
			if tt.reports != "" && !slices.Contains(said, tt.reports) {
				t.Errorf("it was told %q; want %q among them", said, tt.reports)
			}
			if err := b.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFailingBuildEndsScenes: a build that fails ends the scene that is shown.
func TestFailingBuildEndsScenes(t *testing.T) {
	bin := t.TempDir()
	if _, err := startBuild(bin, []string{"false"}); err != nil {
		t.Fatal(err)
	}
	ctx := whileBuilt(t.Context(), bin)
	select {
	case <-ctx.Done():
	case <-time.After(process.Patience):
		t.Fatal("the scenes go on")
	}
	if err := context.Cause(ctx); !errors.Is(err, errBuild) || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("they end by %v; want the build's end", err)
	}
}

// TestStopBuild: nothing of a build outlives the demo.
func TestStopBuild(t *testing.T) {
	bin := t.TempDir()
	b, err := startBuild(bin, []string{"sh", "-c", "sleep 1000 & sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	group := -b.cmd.Process.Pid
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(group, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("processes of the build are left: %v", err)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		rest []string
		ok   bool
	}{
		{nil, nil, true},
		{[]string{"--pace", "--", "make", "-s", "rest"}, []string{"make", "-s", "rest"}, true},
		{[]string{"make"}, nil, false},
		{[]string{"fast", "--", "make"}, nil, false},
		{[]string{"--fast"}, nil, false},
	} {
		o, err := parse(tt.args, io.Discard)
		if (err == nil) != tt.ok || tt.ok && !slices.Equal(o.rest, tt.rest) {
			t.Errorf("%q: %q, %v; want %q, good: %t", tt.args, o.rest, err, tt.rest, tt.ok)
		}
	}
}
