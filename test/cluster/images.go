package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/tenure-ipam/tenure/deploy/image"
	"github.com/tenure-ipam/tenure/test/kubevirt"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// Images of the cluster: what holds a pod's namespaces, and what tests run in pods.
const (
	pauseImage = "tenure.dev/test/pause:1"
	PodImage   = "tenure.dev/test/pod:1"
)

// ImagePrefix and a tag make the names of Tenure's own images. ImageTag and NextTag are of the
// same source, and of programs that call themselves by them: what is upgraded to the next one,
// and back, is every file and every process. EarlierTag is of the source that [Earlier] names.
const (
	ImagePrefix = "tenure.dev/"
	ImageTag    = "dev"
	NextTag     = "next"
	EarlierTag  = "earlier"
)

// Earlier returns the directory with the source of an earlier version, which is to be installed
// first; "" is none.
func Earlier() string { return os.Getenv("TENURE_EARLIER_SOURCE") }

// BuildImages makes the images that a cluster with Tenure needs, and returns the
// archives that have them, on the sandbox's disk, where nodes see it.
func BuildImages(ctx context.Context) (archives []string, err error) {
	root, err := programs.Root()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(sandbox.Disk(), "images")
	built := filepath.Join(dir, "programs")
	if err := os.MkdirAll(built, 0o755); err != nil {
		return nil, err
	}
	var images []image.Image
	for _, tag := range []string{ImageTag, NextTag} {
		ours, err := image.Build(ctx, root, filepath.Join(built, tag), ImagePrefix, tag, runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		images = append(images, ours...)
	}
	if Earlier() != "" {
		if archives, err = buildEarlier(ctx, filepath.Join(dir, EarlierTag)); err != nil {
			return nil, err
		}
	}
	if err := image.Compile(ctx, root, built, runtime.GOARCH, ImageTag, "./test/pod"); err != nil {
		return nil, err
	}
	pod := filepath.Join(built, "pod")
	for name, does := range map[string]string{pauseImage: "pause", PodImage: "serve", kubevirt.LauncherImage: "serve"} {
		images = append(images, image.Image{Name: name, Variants: []image.Variant{{
			Arch: runtime.GOARCH, Programs: map[string]string{"pod": pod}, Entrypoint: []string{"/pod", does}, User: "65532:65532",
		}}})
	}
	archive := filepath.Join(dir, "images.tar")
	return append(archives, archive), image.WriteFile(archive, images...)
}

// buildEarlier has the earlier version build its images by itself: it knows what is in them.
func buildEarlier(ctx context.Context, dir string) (archives []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./deploy/image/build", "-prefix", ImagePrefix, "-tag", EarlierTag, dir)
	cmd.Dir = Earlier()
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the images of the source in %s: %w: %s", Earlier(), err, out)
	}
	return filepath.Glob(filepath.Join(dir, "*.tar"))
}
