package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// The widest columns give way to a narrow screen, and a file is as wide as it takes.
func TestTableFitsTheScreen(t *testing.T) {
	tab := table{heads: []string{"NAME", "MESSAGE", "LATER"}, wide: 1}
	tab.row(plain("a", "0123456789 0123456789 0123456789", "x")...)
	tab.row(plain("longer-name", "", "y")...)
	for _, tt := range []struct {
		width int
		wide  bool
		want  string
	}{
		{0, false, "NAME         MESSAGE\na            0123456789 0123456789 0123456789\nlonger-name  -\n"},
		{0, true, "NAME         MESSAGE                           LATER\na            0123456789 0123456789 0123456789  x\nlonger-name  -                                 y\n"},
		{30, false, "NAME         MESSAGE\na            0123456789 01234…\nlonger-name  -\n"},
		{10, false, "NAME      MESSAGE\na         0123456…\nlonger-…  -\n"},
	} {
		var out bytes.Buffer
		tab.write(screen{w: &out, width: tt.width}, tt.wide)
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", tt.width, diff)
		}
	}
}

// Bars and colours are for terminals that can show them alone.
func TestBarsAndColours(t *testing.T) {
	for _, tt := range []struct {
		to           screen
		taken, whole int64
		want         string
	}{
		{screen{}, 0, 0, "-"},
		{screen{}, 0, 1000, "0%"},
		{screen{}, 1, 1000, "1%"},
		{screen{}, 999, 1000, "99%"},
		{screen{}, 1000, 1000, "100%"},
		{screen{terminal: true}, 500, 1000, "50%"}, // NO_COLOR
		{screen{terminal: true, colour: true}, 500, 1000, "██████░░░░░░  50%"},
		{screen{terminal: true, colour: true}, 1000, 1000, "████████████ 100%"},
	} {
		if got := tt.to.usage(tt.taken, tt.whole); got != tt.want {
			t.Errorf("usage(%d, %d) on %+v is %q; want %q", tt.taken, tt.whole, tt.to, got, tt.want)
		}
	}
	if got := (screen{}).paint("x", lookBad); got != "x" {
		t.Errorf("a file gets %q", got)
	}
	if got := (screen{colour: true}).paint("x", lookBad); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("a terminal gets %q", got)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 90 * time.Second: "90s", 5*time.Minute + 7*time.Second: "5m7s", 10 * time.Minute: "10m",
		100 * time.Minute: "100m", 5 * time.Hour: "5h", 50 * time.Hour: "2d",
	} {
		if got := brief(d); got != want {
			t.Errorf("brief(%v) is %q; want %q", d, got, want)
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
