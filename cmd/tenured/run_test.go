package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func none(string) string { return "" }

func TestFaultsSayWhatToDo(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no node", []string{"--kubeconfig", missing}, "set NODE_NAME or give --node"},
		{"argument", []string{"--node", "n", "extra"}, `unexpected argument "extra": see tenured --help`},
		{"unknown flag", []string{"--nod", "n"}, "unknown flag: --nod: see tenured --help, and remove what it does not list (Helm: agent.extraArgs)"},
		{"no kubeconfig", []string{"--node", "n", "--kubeconfig", missing}, "read kubeconfig " + missing},
		{"no cluster", []string{"--node", "n"}, "no --kubeconfig, and not in a cluster"},
		{"profiles nowhere", []string{"--node", "n", "--profiles", "--listen", ""}, "--profiles without an address to serve them at: give --listen"},
		{"a default network of none", []string{"--node", "n", "--require-default-pod-network"}, "--require-default-pod-network without --multi-network"},
		{"bad duration", []string{"--node", "n", "--fence", "soon"}, "invalid argument"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stderr bytes.Buffer
			err := run(t.Context(), tt.args, none, io.Discard, &stderr)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("run(%q) = %v; want %q", tt.args, err, tt.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var stderr bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, none, io.Discard, &stderr); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node agent", "--kubeconfig", "--fence", "--socket", "be that service account too", "let nobody else give leases back"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the help does not say %q:\n%s", want, stderr.String())
		}
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, none, &out, io.Discard); err != nil || out.String() != "tenured development\n" {
		t.Errorf("--version: %q, %v; want the version", out.String(), err)
	}
}

func TestFlagsReachTheConfiguration(t *testing.T) {
	env := func(name string) string { return map[string]string{"NODE_NAME": "from-env"}[name] }
	opts, err := parse([]string{"--fence", "2m", "--socket", "/run/x.sock", "--machine-id", "m"}, env, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	c := opts.daemon
	if c.Agent.Node != "from-env" || c.Agent.Fence != 2*time.Minute || c.Socket != "/run/x.sock" || c.Agent.Machine != "m" || c.Agent.Boot == "" {
		t.Errorf("got %+v", c)
	}
	if err := c.Agent.Validate(); err != nil {
		t.Error(err)
	}
}

// TestOldName: the flag is read by the name that it had in 0.9, which the log calls deprecated.
func TestOldName(t *testing.T) {
	for flag, says := range map[string]string{
		"--registration-namespace": "", "--seat-namespace": "Flag --seat-namespace has been deprecated, use --registration-namespace\n",
	} {
		var stderr bytes.Buffer
		opts, err := parse([]string{"--node=n", flag + "=ipam"}, none, &stderr)
		if got := opts.daemon.RegistrationNamespace; err != nil || got != "ipam" || stderr.String() != says {
			t.Errorf("%s: namespace %q, %v; says %q, want %q", flag, got, err, stderr.String(), says)
		}
	}
}
