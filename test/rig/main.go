// Command rig builds the programs that Tenure's tests and demo run against: a
// real Kubernetes control plane and the reference CNI plugins, at the versions
// of this module's go.mod; with -local the one plugin that containers without a cluster need; with
// -nodes what real nodes run, at those of node/go.mod; with -foreign Multus and whereabouts with
// their manifests, at those of foreign/go.mod; with -dns CoreDNS, at that of dns/go.mod; with
// -kube=MINOR a control plane and a kubelet of that minor version of Kubernetes, at those of
// kube/MINOR/go.mod. With -neutron it unpacks
// OpenStack's Neutron out of Debian packages, at the version of the machine's release; with -site
// MkDocs and its theme Material likewise, which render the documentation; with -prometheus
// Prometheus, which collects metrics; with -chromium a browser without a window. It makes only what
// is missing or outdated.
//
//	go run . [-local | -nodes | -foreign | -dns | -kube=MINOR | -neutron | -site | -prometheus |
//		-chromium] DIRECTORY
//
// Programs of the control plane that $KUBEBUILDER_ASSETS has are used instead
// of built, and so are those in PATH, if they are not older than the oldest
// Kubernetes that Tenure supports.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	built, args, err := asked(args)
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return errors.New("usage: rig [-local | -nodes | -foreign | -dns | -kube=MINOR | -neutron | -site | -prometheus | -chromium] DIRECTORY")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if built.debian != nil {
		return built.debian.provide(ctx, out, dir)
	}

	versions, err := built.versions(ctx)
	if err != nil {
		return err
	}
	m, err := newManifest(dir, built, versions)
	if err != nil {
		return err
	}
	var missing []program
	for _, p := range built.programs {
		switch path, ok := elsewhere(ctx, p, getenv); {
		case ok:
			fmt.Fprintf(out, "rig: %s: using %s\n", p.name, path)
		case !m.current(p):
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		fmt.Fprintf(out, "rig: up to date: %s\n", dir)
	} else if err := build(ctx, out, m, missing); err != nil {
		return err
	}
	for _, f := range built.files {
		if err := m.provide(ctx, f); err != nil {
			return fmt.Errorf("provide %s: %w", f.name, err)
		}
	}
	if built.nft {
		return provideNFT(ctx, out, dir)
	}
	return nil
}

// asked returns the set that arguments ask for, and those that follow.
func asked(args []string) (set, []string, error) {
	if len(args) == 0 {
		return controlPlane, args, nil
	}
	if other, ok := map[string]set{"-local": local, "-nodes": nodes, "-foreign": foreign, "-dns": dns, "-neutron": openstack, "-site": site, "-prometheus": prometheus, "-chromium": chromium}[args[0]]; ok {
		return other, args[1:], nil
	}
	if minor, ok := strings.CutPrefix(args[0], "-kube="); ok {
		other, err := anotherKube(minor)
		return other, args[1:], err
	}
	return controlPlane, args, nil
}

// build makes the programs missing, one after the other: two links of this size
// at once need 4 GiB.
func build(ctx context.Context, out io.Writer, m *manifest, missing []program) error {
	t := newTicker(out)
	for _, p := range missing {
		t.stay("%s %s: to build", p.name, m.versions[p.module])
	}
	t.stay("looking for what there is to compile; the first time, this downloads the sources")
	packages, err := m.stalePackages(ctx, t, missing)
	if err != nil {
		return err
	}
	meter := newMeter(t, packages, missing)
	for _, p := range missing {
		if err := m.build(ctx, p, meter); err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
		meter.built(p)
	}
	t.stay("done after %v: %s", meter.gone().Round(time.Second), m.dir)
	return nil
}

// lock makes dir and waits for its lock, so that two rigs do not build the same
// at once.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return func() { f.Close() }, nil
}
