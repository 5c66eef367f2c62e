package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenure-ipam/tenure/deploy/image"
)

// programs are those that images have: people run some of them by themselves.
var programs = []string{"kubectl-tenure", "tenure", "tenure-attach", "tenure-controller", "tenured"}

// make makes the release of the source in root in the directory dir, with copies of the files
// given. The directory is whole or as it was before.
func (r release) make(ctx context.Context, root, dir string, files []string, out io.Writer) error {
	if err := replaceable(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".release")
	if err != nil {
		return err
	}
	made := filepath.Join(work, "made")
	if err = r.fill(ctx, root, work, made, files); err == nil {
		err = errors.Join(os.RemoveAll(dir), os.Rename(made, dir))
	}
	if err = errors.Join(err, os.RemoveAll(work)); err != nil {
		return err
	}
	fmt.Fprintf(out, "release %s of commit %s, compiled by %s, is in %s\n", r.Version, r.Commit, r.Go, dir)
	if r.key == "" {
		fmt.Fprintln(out, "it is not signed: RELEASE_KEY= names a private key that signs it")
	}
	return nil
}

// replaceable returns an error unless dir is a release, or nothing.
func replaceable(dir string) error {
	there, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(there) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, sumsFile)); err != nil {
		return fmt.Errorf("%s is there and is no release, as it has no %s: name another directory by DIR=", dir, sumsFile)
	}
	return nil
}

// fill makes the release in the directory made, with work for what is not part of it.
func (r release) fill(ctx context.Context, root, work, made string, files []string) error {
	if err := os.MkdirAll(made, 0o755); err != nil {
		return err
	}
	if err := r.programs(ctx, root, work, made); err != nil {
		return err
	}
	if err := r.krew(root, made); err != nil {
		return err
	}
	chart := filepath.Join(made, "tenure-"+strings.TrimPrefix(r.Version, "v")+".tgz")
	if err := image.WriteChart(chart, filepath.Join(made, "tenure-chart.tar"), filepath.Join(root, "deploy/chart"), r.Registry, r.Version); err != nil {
		return err
	}
	for _, file := range files {
		if err := copyFile(filepath.Join(made, filepath.Base(file)), file, 0o644); err != nil {
			return err
		}
	}
	if err := r.provenance(made); err != nil {
		return err
	}
	if err := writeSums(made); err != nil || r.key == "" {
		return err
	}
	return sign(made, r.key)
}

// programs makes the programs, each for each architecture with its bill of materials, and the
// images of them.
func (r release) programs(ctx context.Context, root, work, made string) error {
	built := filepath.Join(work, "programs")
	images, err := image.Build(ctx, root, built, r.Registry+"/", r.Version, r.Archs...)
	if err != nil {
		return err
	}
	for i, o := range image.Of {
		if err := image.WriteFile(filepath.Join(made, o.Name+".tar"), images[i]); err != nil {
			return err
		}
	}
	for _, arch := range r.Archs {
		of := filepath.Join(built, arch)
		for _, name := range programs {
			if err := copyFile(filepath.Join(made, name+"-linux-"+arch), filepath.Join(of, name), 0o755); err != nil {
				return err
			}
			if err := r.sbom(ctx, filepath.Join(made, name+"-linux-"+arch), arch); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(to, from string, mode fs.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}
