package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// A release is what decides every byte of it, together with the source.
type release struct {
	Version  string
	Registry string
	Archs    []string
	// Commit is the source, and Go the version of Go that compiles it.
	Commit, Go string
	// sbomTool is the path of cyclonedx-gomod.
	sbomTool string
	// key is the path of the private key that signs it, empty: none does.
	key string
}

// released is a version of semantic versioning, as tags have it.
var released = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)

// identify finds out what source there is in root: all of it must be in a commit, and the tag of
// the version, if there is one, must be of that commit.
func (r *release) identify(ctx context.Context, root string, out io.Writer) (err error) {
	if !released.MatchString(r.Version) {
		return fmt.Errorf("version %q must be v and three numbers, such as v0.9.0 or v0.9.0-rc.1: make release VERSION=v0.9.0", r.Version)
	}
	if r.key != "" { // said before anything is built
		if _, err := readKey(r.key); err != nil {
			return err
		}
	}
	r.Go = strings.Fields(runtime.Version())[0]
	if r.Commit, err = git(ctx, root, "rev-parse", "HEAD"); err != nil {
		return err
	}
	changed, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("files are not as in commit %s, which nobody else could build: commit them, or remove them\n%s", r.Commit, changed)
	}
	tagged, err := git(ctx, root, "rev-parse", "--verify", "--quiet", "refs/tags/"+r.Version+"^{commit}")
	switch {
	case err != nil:
		fmt.Fprintf(out, "there is no tag %s yet: tag commit %s before you publish this\n", r.Version, r.Commit)
	case tagged != r.Commit:
		return fmt.Errorf("the tag %s is of commit %s, and this is %s: git checkout %s", r.Version, tagged, r.Commit, r.Version)
	}
	return nil
}

// git runs git in dir, and returns what it prints.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	said, err := cmd.Output()
	if err != nil {
		var why string
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			why = string(exit.Stderr)
		}
		return "", fmt.Errorf("git %s in %s: %w\n%s", strings.Join(args, " "), dir, err, why)
	}
	return strings.TrimSpace(string(said)), nil
}
