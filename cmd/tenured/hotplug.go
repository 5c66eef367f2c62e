package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/attach/cni/plugin"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/node/hotplug"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

const hotplugUsage = `tenured hotplug gives running pods of this node the networks that their annotation
k8s.v1.cni.cncf.io/networks selects when it changes. It runs beside the agent, as root and with
the rights that CNI plugins need, in the mount namespace of the host's first process, so that
plugins find there what they find when the runtime calls them. It has no credentials.

Flags:
`

// pluginLimit is as long as kubelets wait for a runtime that attaches a pod.
const pluginLimit = 2 * time.Minute

// runHotplug reads the flags and serves until ctx ends.
func runHotplug(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags := newFlags("tenured hotplug", hotplugUsage, stderr)
	confDir := flags.String("cni-conf-dir", plan.DefaultConfDir, "the runtime's directory of CNI configurations, where that of tenure-attach is")
	path := flags.StringSlice("cni-bin-dirs", nil, "directories of CNI plugins that are looked at before binDir of tenure-attach's configuration")
	mounts := flags.String("mount-namespace", "/proc/1/ns/mnt", "mount namespace to run plugins in; empty: this process's own")
	debug := flags.Bool("debug", false, "log more")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: see tenured hotplug --help", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: see tenured hotplug --help", flags.Arg(0))
	}
	if err := enter(*mounts); err != nil {
		return fmt.Errorf("enter the mount namespace %s: %w: the container must be privileged and see the host's processes (hostPID)", *mounts, err)
	}
	log := kube.Logger(stderr, *debug)
	p := plugin.Plugin{Stderr: stderr, Now: time.Now, Limit: pluginLimit}
	s := &hotplug.Service{
		ConfDir: *confDir, Now: time.Now, Log: log,
		Change: func(ctx context.Context, conf *plan.Config, k journal.Key) (bool, error) {
			return p.Change(ctx, conf, *path, k)
		},
	}
	log.InfoContext(ctx, "tenured hotplug starts", "version", version)
	return s.Run(ctx)
}

// enter starts this program again in a mount namespace, unless it is there, or none is named.
func enter(path string) error {
	if path == "" {
		return nil
	}
	own, err := os.Stat("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err != nil {
		return err
	}
	if os.SameFile(own, there) {
		return nil
	}
	self, err := os.Open("/proc/self/exe") // the program is not there
	if err != nil {
		return err
	}
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // for good: the thread becomes the process
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return err
	}
	// The program is found by the file that is open, which must stay so.
	if _, err := unix.FcntlInt(self.Fd(), unix.F_SETFD, 0); err != nil {
		return err
	}
	// Plugins run the host's programs.
	environ := append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	return unix.Exec(fmt.Sprintf("/proc/self/fd/%d", self.Fd()), os.Args, environ)
}
