package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		taken, whole int64
		want         string
	}{{0, 0, "-"}, {0, 1000, "0%"}, {1, 1000, "1%"}, {999, 1000, "99%"}, {1000, 1000, "100%"}} {
		if got := percent(tt.taken, tt.whole); got != tt.want {
			t.Errorf("percent(%d, %d) is %q; want %q", tt.taken, tt.whole, got, tt.want)
		}
	}
}

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
