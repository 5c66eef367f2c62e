// Command build makes the container images of Tenure, without a container engine: one
// OCI archive for each in a directory. It runs in the top directory of the source:
//
//	go run ./deploy/image/build [-prefix REGISTRY/] [-tag TAG] [-arch amd64,arm64] DIRECTORY
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
	"runtime"
	"strings"
	"syscall"

	"github.com/tenure-ipam/tenure/deploy/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	prefix := flags.String("prefix", "tenure.dev/", "registry and path that the images' names begin with")
	tag := flags.String("tag", "dev", "the images' tag")
	archs := flags.String("arch", runtime.GOARCH, "architectures, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("name one directory for the archives: see --help")
	}
	dir, err := filepath.Abs(flags.Arg(0))
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	programs := filepath.Join(dir, "programs")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return err
	}
	images, err := image.Build(ctx, root, programs, *prefix, *tag, strings.Split(*archs, ",")...)
	if err != nil {
		return err
	}
	for i, o := range image.Of {
		file := filepath.Join(dir, o.Name+".tar")
		if err := image.WriteFile(file, images[i]); err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s, %.1f MB\n", images[i].Name, file, float64(info.Size())/1e6)
	}
	return nil
}
