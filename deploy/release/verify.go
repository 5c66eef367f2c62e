package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// verify makes the release in dir again, from the commit and by the Go that its provenance
// names, and compares each file. The commit is taken from the repository root.
func verify(ctx context.Context, root, dir string, out io.Writer) error {
	said, err := readSums(dir)
	if err != nil {
		return fmt.Errorf("%s is no release: %w", dir, err)
	}
	there, err := sumsOf(dir)
	if err != nil {
		return err
	}
	if err := compare(dir, there, said, sumsFile); err != nil {
		return err
	}
	r, err := readProvenance(dir)
	if err != nil {
		return err
	}
	if _, err := git(ctx, root, "rev-parse", "--verify", "--quiet", r.Commit+"^{commit}"); err != nil {
		return fmt.Errorf("%s is of commit %s, which this repository does not have: git fetch --tags", dir, r.Commit)
	}
	fmt.Fprintf(out, "all files are as %s has them; making release %s again from commit %s by %s\n", sumsFile, r.Version, r.Commit, r.Go)
	work, err := os.MkdirTemp("", "tenure-release")
	if err != nil {
		return err
	}
	again, err := r.again(ctx, root, work)
	if err == nil {
		err = compare(dir, there, again, "commit "+r.Commit)
	}
	if err = errors.Join(err, os.RemoveAll(work)); err != nil {
		return err
	}
	fmt.Fprintf(out, "release %s is what commit %s gives: all %d files are the same, byte for byte\n", r.Version, r.Commit, len(there))
	return nil
}

// again makes the release by the source of its commit, in a checkout of its own below work, and
// returns the sums of its files.
func (r release) again(ctx context.Context, root, work string) (sums, error) {
	source, made := filepath.Join(work, "source"), filepath.Join(work, "made")
	if _, err := git(ctx, root, "clone", "--quiet", "--shared", "--no-checkout", root, source); err != nil {
		return nil, err
	}
	if _, err := git(ctx, source, "checkout", "--quiet", "--detach", r.Commit); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "release",
		"VERSION="+r.Version, "RELEASE_REGISTRY="+r.Registry, "RELEASE_ARCH="+strings.Join(r.Archs, ","), "RELEASE_KEY=", "DIR="+made)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+r.Go, "MAKEFLAGS=", "MAKELEVEL=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make release in a checkout of commit %s: %w\n%s", r.Commit, err, said)
	}
	return sumsOf(made)
}
