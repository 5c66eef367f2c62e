package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
)

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, env(nil), io.Discard, &out); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"--kubeconfig", "--leader-election", "--idle"} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("help does not mention %s", words)
		}
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, env(nil), &out, io.Discard); err != nil || out.String() != "tenure-controller development\n" {
		t.Errorf("--version: %q, %v; want the version", out.String(), err)
	}
}

func TestRefused(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"--what"}, "unknown flag: --what: see tenure-controller --help, and remove what it does not list (Helm: controller.extraArgs)"},
		{"argument", []string{"now"}, `unexpected argument "now"`},
		{"profiles nowhere", []string{"--profiles", "--metrics="}, "--profiles without an address to serve them at: give --metrics"},
		{"no cluster", nil, "no --kubeconfig, and not in a cluster"},
		{"no such kubeconfig", []string{"--kubeconfig", broken + "x"}, "read kubeconfig " + broken + "x"},
		{"broken kubeconfig", []string{"--kubeconfig", broken}, "read kubeconfig " + broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := run(t.Context(), tt.args, env(nil), io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
		})
	}
}

func TestFlags(t *testing.T) {
	opts, err := parse([]string{"--workers=8", "--counts-every=2s", "--health=", "--leader-election=false", "--statefulset-claims=false"}, env(map[string]string{"POD_NAMESPACE": "ipam"}), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	want := controller.DefaultConfig()
	want.Workers, want.CountsEvery, want.Health, want.LeaderElection, want.RegistrationNamespace = 8, 2*time.Second, "", false, "ipam"
	want.StatefulSetClaims = false
	want.Now, opts.controller.Now = nil, nil // functions do not compare
	if !reflect.DeepEqual(opts.controller, want) {
		t.Errorf("got %+v; want %+v", opts.controller, want)
	}
}

// TestOldName: the flag is read by the name that it had in 0.9, which the log calls deprecated.
func TestOldName(t *testing.T) {
	for flag, says := range map[string]string{
		"--registration-namespace": "", "--seat-namespace": "Flag --seat-namespace has been deprecated, use --registration-namespace\n",
	} {
		var stderr bytes.Buffer
		opts, err := parse([]string{flag + "=ipam"}, env(nil), &stderr)
		if got := opts.controller.RegistrationNamespace; err != nil || got != "ipam" || stderr.String() != says {
			t.Errorf("%s: namespace %q, %v; says %q, want %q", flag, got, err, stderr.String(), says)
		}
	}
}
