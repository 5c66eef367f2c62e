package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program into dir that prints said.
func script(t *testing.T, dir, name, said string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+said+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestElsewhere(t *testing.T) {
	assets, bin := t.TempDir(), t.TempDir()
	chosen := script(t, assets, "kube-apiserver", "Kubernetes v1.20.1")
	kubectl := script(t, bin, "kubectl", "Client Version: v1.32.4")
	etcdPath := script(t, bin, "etcd", "etcd Version: 3.4.23")
	script(t, bin, "kube-apiserver", "Kubernetes v1.36.3")
	script(t, bin, "kube-controller-manager", "Kubernetes v1.31.9")
	script(t, bin, "bridge", "CNI bridge plugin v0.9.0")
	getenv := func(key string) string {
		return map[string]string{"KUBEBUILDER_ASSETS": assets, "PATH": "/nowhere:" + bin}[key]
	}
	want := map[string]string{
		"kube-apiserver":          chosen,  // the user's word, whatever its version
		"kubectl":                 kubectl, // the oldest that is supported
		"kube-controller-manager": "",      // too old
		"etcd":                    etcdPath,
		"bridge":                  "", // tests look for plugins in the rig
	}
	for _, p := range controlPlane.programs {
		path, ok := elsewhere(t.Context(), p, getenv)
		if !ok {
			path = ""
		}
		if path != want[p.name] {
			t.Errorf("%s: %q; want %q", p.name, path, want[p.name])
		}
	}
}

// TestAnotherKube: each folder of kube has a module with Kubernetes of the minor version that it
// is called by, and which is not the one that all tests run on.
func TestAnotherKube(t *testing.T) {
	usual, err := controlPlane.versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Glob("kube/*")
	if err != nil || len(there) == 0 {
		t.Fatalf("versions %q, %v", there, err)
	}
	for _, dir := range there {
		minor := filepath.Base(dir)
		built, err := anotherKube(minor)
		if err != nil {
			t.Fatal(err)
		}
		versions, err := built.versions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := versions[kubernetes]; !strings.HasPrefix(got, "v"+minor+".") {
			t.Errorf("%s has Kubernetes %s", dir, got)
		}
		if strings.HasPrefix(usual[kubernetes], "v"+minor+".") {
			t.Errorf("all tests run on %s already: remove %s", usual[kubernetes], dir)
		}
	}
	if _, err := anotherKube("1.2"); err == nil || !strings.Contains(err.Error(), "kube/1.32") {
		t.Errorf("a version that is not there: %v; want those that are", err)
	}
}

func TestOutdated(t *testing.T) {
	versions := map[string]string{kubernetes: "v1.36.3", etcd: "v3.6.8", plugins: "v1.10.0"}
	m, err := newManifest(t.TempDir(), controlPlane, versions)
	if err != nil {
		t.Fatal(err)
	}
	p := controlPlane.programs[0]
	if m.current(p) {
		t.Error("a program that is not there is current")
	}
	script(t, m.dir, p.name, "")
	if m.current(p) {
		t.Error("a program of unknown origin is current")
	}
	if err := os.WriteFile(m.from(p), []byte(m.fingerprint(p)), 0o644); err != nil {
		t.Fatal(err)
	}
	if !m.current(p) {
		t.Error("a program just built is not current")
	}
	m.pins = append(m.pins, "another version"...)
	if m.current(p) {
		t.Error("a program is current although go.mod has changed")
	}
}

func TestStamp(t *testing.T) {
	flags := controlPlane.programs[0].ldflags("v1.36.3")
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.3",
		"-X k8s.io/client-go/pkg/version.gitMajor=1", "-X k8s.io/client-go/pkg/version.gitMinor=36",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags %q do not have %q", flags, want)
		}
	}
}

func TestMeter(t *testing.T) {
	now := time.Unix(0, 0)
	var out strings.Builder
	m := newMeter(&ticker{out: &out, now: func() time.Time { return now }, last: now}, 100, nil)
	var said strings.Builder
	w := m.watch(controlPlane.programs[0], &said)
	for range 50 {
		if _, err := io.WriteString(w, "k8s.io/api/core/v1\n"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, "# k8s.io/api\nx.go:1: syntax"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, " error\n"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if m.compiled != 50 || m.left() != time.Minute {
		t.Errorf("after half the packages and a minute: %d compiled, %v left; want 50, 1m", m.compiled, m.left())
	}
	if got, want := said.String(), "# k8s.io/api\nx.go:1: syntax error\n"; got != want {
		t.Errorf("the compiler's words: %q; want %q", got, want)
	}
	if _, err := io.WriteString(w, "k8s.io/api/apps/v1\n"); err != nil {
		t.Fatal(err)
	}
	if want := "rig: kube-apiserver: 51 of 100 packages compiled, 1m0s gone, about 1m0s left\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("progress %q; want it to end with %q", out.String(), want)
	}
}

// TestFiles: the rig has a module's files as they are in its version, and nothing of
// an earlier one.
func TestFiles(t *testing.T) {
	set := set{dir: t.TempDir()}
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(set.dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module rig\nrequire example.org/other v1.0.0\nreplace example.org/other => ./other\n")
	write("go.sum", "")
	write("other/go.mod", "module example.org/other\n")
	write("other/doc/one.yaml", "1")
	write("other/doc/one.txt", "1")
	f := files{name: "manifests", module: "example.org/other", pattern: "doc/*.yaml"}
	dir := t.TempDir()
	provide := func(version, pattern string) (found string, err error) {
		m, err := newManifest(dir, set, map[string]string{f.module: version})
		if err != nil {
			t.Fatal(err)
		}
		f.pattern = pattern
		if err := m.provide(t.Context(), f); err != nil {
			return "", err
		}
		paths, err := filepath.Glob(filepath.Join(dir, f.name, "*"))
		for _, path := range paths {
			text, readErr := os.ReadFile(path)
			err = errors.Join(err, readErr)
			found += filepath.Base(path) + " " + string(text) + "\n"
		}
		return found, err
	}
	if got, err := provide("v1.0.0", "doc/*.yaml"); got != "one.yaml 1\n" || err != nil {
		t.Errorf("got %q, %v; want one.yaml", got, err)
	}
	write("other/doc/two.yaml", "2")
	if err := os.Remove(filepath.Join(set.dir, "other/doc/one.yaml")); err != nil {
		t.Fatal(err)
	}
	if got, err := provide("v1.0.0", "doc/*.yaml"); got != "one.yaml 1\n" || err != nil {
		t.Errorf("again: got %q, %v; want one.yaml, which was there", got, err)
	}
	if got, err := provide("v1.1.0", "doc/*.yaml"); got != "two.yaml 2\n" || err != nil {
		t.Errorf("the next version: got %q, %v; want two.yaml alone", got, err)
	}
	if _, err := provide("v1.2.0", "doc/*.json"); err == nil || !strings.Contains(err.Error(), "doc/*.json") {
		t.Errorf("of no file: got %v; want an error with the pattern", err)
	}
}
