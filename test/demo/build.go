package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/test/process"
)

// A build makes what the scenes on a cluster need, outside the sandbox. Inside, one knows of it by
// files in bin: its log, and how it has ended.
type build struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func buildLog(bin string) string { return filepath.Join(bin, "demo-build.log") }
func buildEnd(bin string) string { return filepath.Join(bin, "demo-build.end") }

// buildsWell is what the file buildEnd has after a build that ended well. Else it has the error.
const buildsWell = "well"

// buildTime is the longest that building may take.
const buildTime = 3 * time.Hour

// startBuild runs command, which builds what is missing in bin.
func startBuild(bin string, command []string) (*build, error) {
	if err := os.Remove(buildEnd(bin)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b := &build{ended: make(chan struct{})}
	if len(command) == 0 {
		close(b.ended)
		return b, writeEnd(bin, nil)
	}
	log, err := os.Create(buildLog(bin))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b.cmd = exec.Command(command[0], command[1:]...)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	// A group of its own: all of it is ended together, and a terminal's Ctrl-C goes to the demo
	// alone.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // Pdeathsig is about the thread: this one lives until the process ends
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	go func() {
		defer close(b.ended)
		if err := writeEnd(bin, b.cmd.Wait()); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
	}()
	return b, nil
}

func writeEnd(bin string, how error) error {
	text := buildsWell
	if how != nil {
		text = how.Error()
	}
	fresh := buildEnd(bin) + ".new"
	return errors.Join(os.WriteFile(fresh, []byte(text), 0o644), os.Rename(fresh, buildEnd(bin)))
}

// stop ends the build, if it goes on still, with all that it has started.
func (b *build) stop() error {
	select {
	case <-b.ended:
		return nil
	default:
	}
	group := -b.cmd.Process.Pid
	if err := syscall.Kill(group, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the build: %w", err)
	}
	<-b.ended
	return process.Await(context.Background(), process.Patience, func(context.Context) error {
		if err := syscall.Kill(group, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("processes of the build's group %d are there still", -group)
		}
		return nil
	})
}

// awaitBuild waits for the end of the build, tells how it goes on, and returns how it has ended.
func awaitBuild(ctx context.Context, bin string, report func(string)) error {
	return process.Await(ctx, buildTime, func(context.Context) error {
		how, err := os.ReadFile(buildEnd(bin))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			tail := process.Tail(buildLog(bin))
			report(strings.TrimSpace(tail[strings.LastIndexAny(tail, "\r\n")+1:]))
			return err
		case err != nil:
			return process.Final(err)
		case string(how) != buildsWell:
			return process.Final(fmt.Errorf("%w: %s", errBuild, how))
		}
		return nil
	})
}

// errBuild says that the build has failed.
var errBuild = errors.New("what the scenes on a cluster need could not be built")

// whileBuilt returns a context that ends with ctx, or when the build fails.
func whileBuilt(ctx context.Context, bin string) context.Context {
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		if err := awaitBuild(ctx, bin, func(string) {}); err != nil {
			fail(err)
		}
	}()
	return ctx
}
