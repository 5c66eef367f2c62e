// Command release makes a release of Tenure, and shows whether one is what its source gives.
// make release and make verify-release run it, in the top directory of the source:
//
//	go run ./deploy/release [FLAG...] make VERSION DIRECTORY [FILE...]
//	go run ./deploy/release verify DIRECTORY
//
// docs/contributing/releasing.md says what is in a release.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	registry := flags.String("registry", "ghcr.io/tenure-ipam", "what the images' names begin with")
	archs := flags.String("arch", "amd64,arm64", "architectures, separated by commas")
	sbom := flags.String("sbom", "bin/tools/cyclonedx-gomod", "the tool that writes bills of materials")
	key := flags.String("key", "", "a private key to sign the release by; empty: it is not signed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	switch {
	case flags.Arg(0) == "make" && flags.NArg() >= 3:
		dir, err := filepath.Abs(flags.Arg(2))
		if err != nil {
			return err
		}
		r := release{Version: flags.Arg(1), Registry: strings.TrimSuffix(*registry, "/"), Archs: strings.Split(*archs, ","), key: *key}
		if r.sbomTool, err = filepath.Abs(*sbom); err != nil {
			return err
		}
		if err := r.identify(ctx, root, out); err != nil {
			return err
		}
		return r.make(ctx, root, dir, flags.Args()[3:], out)
	case flags.Arg(0) == "verify" && flags.NArg() == 2:
		dir, err := filepath.Abs(flags.Arg(1))
		if err != nil {
			return err
		}
		return verify(ctx, root, dir, out)
	}
	return errors.New("say make VERSION DIRECTORY [FILE...], or verify DIRECTORY")
}
