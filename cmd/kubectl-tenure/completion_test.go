package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Shells get their completion from the program, and kubectl from a link to it.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, errs := kubectl(t, "", "completion", shell); code != exitDone || !strings.Contains(out, "__complete") {
			t.Errorf("completion %s: %d, %s", shell, code, errs)
		}
	}
	args := commandLine([]string{"/usr/local/bin/kubectl_complete-tenure", "pools", "-o", ""})
	if want := []string{cobra.ShellCompRequestCmd, "pools", "-o", ""}; !slices.Equal(args, want) {
		t.Errorf("as kubectl's completion the arguments are %q; want %q", args, want)
	}
	code, out, _ := kubectl(t, "", args...)
	if code != exitDone || !strings.Contains(out, "wide\njson\nyaml\nname\n") {
		t.Errorf("-o completes to %d %q", code, out)
	}
	if code, out, _ := kubectl(t, "", "__complete", ""); code != exitDone || !strings.Contains(out, "release-node\t") {
		t.Errorf("the commands complete to %d %q", code, out)
	}
}
