package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/process"
)

// showPage has a browser, where there is one, open the page of kubectl tenure ui, and keeps what it
// shows.
func (d *demo) showPage(ctx context.Context) {
	bin, err := binDir()
	d.Must(err)
	browser := findBrowser(bin)
	if browser == "" {
		d.OK("kubectl tenure ui serves a page that shows the pools as maps. (There is no Chromium on this machine, so here is no picture of it.)")
		return
	}
	picture := filepath.Join(bin, "page.png")
	d.Command("kubectl tenure ui; %s --screenshot=bin/page.png", filepath.Base(browser))
	d.During("a browser opens the page", func() error { return photograph(ctx, bin, browser, picture) })
	d.OK("That is what bin/page.png shows.")
}

// findBrowser returns the path of a browser that can do without a window, "" where there is none.
func findBrowser(bin string) string {
	if path := filepath.Join(bin, "rig", "chromium", "chromium"); exec.Command(path, "--version").Run() == nil {
		return path
	}
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// photograph serves the page, and writes into a file what the browser shows of it after three
// seconds.
func photograph(ctx context.Context, bin, browser, into string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the browser takes too long"))
	defer cancel()
	ui := exec.CommandContext(ctx, filepath.Join(bin, "kubectl-tenure"), "ui", "--kubeconfig="+show.Kubeconfig)
	ui.Cancel = func() error { return ui.Process.Signal(syscall.SIGINT) }
	defer func() {
		cancel()
		_ = ui.Wait()
	}()
	address, err := process.FirstLine(ui)
	if err != nil {
		return fmt.Errorf("kubectl tenure ui: %w", err)
	}
	if err := os.Remove(into); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// The sandbox is one of its own: the browser needs none in it.
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,720",
		"--virtual-time-budget=3000", "--user-data-dir="+filepath.Join(workDir, "browser"), "--screenshot="+into, address)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", browser, err, said)
	}
	_, err = os.Stat(into)
	return err
}
