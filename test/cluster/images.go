package cluster

import (
	"context"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tenure-ipam/tenure/deploy/image"
	"github.com/tenure-ipam/tenure/test/kubevirt"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// Images of the cluster: what holds a pod's namespaces, and what tests run in pods.
const (
	PauseImage = "tenure.dev/test/pause:1"
	PodImage   = "tenure.dev/test/pod:1"
)

// ImagePrefix and a tag make the names of Tenure's own images. Both tags are of the same
// source, and of programs that call themselves by them: what is upgraded to the next one,
// and back, is every file and every process.
const (
	ImagePrefix = "tenure.dev/"
	ImageTag    = "dev"
	NextTag     = "next"
)

// BuildImages makes the images that a cluster with Tenure needs, and returns the
// archive that has all of them, on the sandbox's disk, where nodes see it.
func BuildImages(ctx context.Context) (archive string, err error) {
	root, err := programs.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(sandbox.Disk(), "images")
	built := filepath.Join(dir, "programs")
	if err := os.MkdirAll(built, 0o755); err != nil {
		return "", err
	}
	var images []image.Image
	for _, tag := range []string{ImageTag, NextTag} {
		ours, err := image.Build(ctx, root, filepath.Join(built, tag), ImagePrefix, tag, runtime.GOARCH)
		if err != nil {
			return "", err
		}
		images = append(images, ours...)
	}
	if err := image.Compile(ctx, root, built, runtime.GOARCH, ImageTag, "./test/pod"); err != nil {
		return "", err
	}
	pod := filepath.Join(built, "pod")
	for name, does := range map[string]string{PauseImage: "pause", PodImage: "serve", kubevirt.LauncherImage: "serve"} {
		images = append(images, image.Image{Name: name, Variants: []image.Variant{{
			Arch: runtime.GOARCH, Programs: map[string]string{"pod": pod}, Entrypoint: []string{"/pod", does}, User: "65532:65532",
		}}})
	}
	archive = filepath.Join(dir, "images.tar")
	return archive, image.WriteFile(archive, images...)
}
