package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// source makes a repository of one commit, whose programs do nothing, and returns its directory.
func source(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"go.mod": "module github.com/tenure-ipam/tenure\n\ngo 1.26.0\n", "tenure.yaml": "kind: List\n", "LICENSE": "free\n"}
	files["deploy/chart/Chart.yaml"] = "# A chart.\nname: tenure\nversion: 0.1.0\nappVersion: dev\n"
	files["deploy/chart/values.yaml"] = "image:\n  registry: \"\"\n"
	for _, name := range programs {
		files["cmd/"+name+"/main.go"] = "package main\n\nvar version string\n\nfunc main() { println(version) }\n"
	}
	// Its make release brings the release that was made elsewhere, beside this directory, if it is
	// run with the release's Go.
	files["Makefile"] = "release:\n\t[ $$GOTOOLCHAIN = " + runtime.Version() + " ] && cp -r '" + filepath.Join(root, "..", "again") + "' $(DIR)\n"
	for name, text := range files {
		write(t, filepath.Join(root, name), text)
	}
	commit(t, root)
	return root
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// commit commits what is in a directory, as its repository's first commit or a further one.
func commit(t *testing.T, root string) {
	t.Helper()
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "--all"},
		{"-c", "user.name=test", "-c", "user.email=test@tenure.dev", "commit", "--quiet", "--message=test"},
	} {
		if _, err := git(t.Context(), root, args...); err != nil {
			t.Fatal(err)
		}
	}
}

// sbomTool makes a tool that writes a bill of materials, another one on each machine, and returns
// its path.
func sbomTool(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tool")
	write(t, file, `#!/bin/sh
echo '{"metadata": {"tools": [{"name": "it", "hashes": ["`+file+`"]}]}, "purl": "std@go1.26.8-X:nogreenteagc?goarch='$GOARCH'&x"}'
`)
	if err := os.Chmod(file, 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// made makes release v0.0.1 of a source in a directory, and returns what the program said.
func made(t *testing.T, root, dir string) (string, error) {
	t.Helper()
	t.Chdir(root)
	var out bytes.Buffer
	err := run(t.Context(), []string{"-registry", "registry.example/net", "-arch", "arm64", "-sbom", sbomTool(t), "make", "v0.0.1", dir, filepath.Join(root, "tenure.yaml")}, &out)
	return out.String(), err
}

// TestTheSameEverywhere: two releases of one commit, checked out and made in different
// directories, are the same, and verify says so.
func TestTheSameEverywhere(t *testing.T) {
	root := source(t)
	other := filepath.Join(t.TempDir(), "elsewhere")
	if _, err := git(t.Context(), root, "clone", "--quiet", root, other); err != nil {
		t.Fatal(err)
	}
	one, again := filepath.Join(t.TempDir(), "one"), filepath.Join(root, "..", "again")
	for from, to := range map[string]string{root: one, other: again} {
		if said, err := made(t, from, to); err != nil || !strings.Contains(said, "there is no tag v0.0.1 yet") {
			t.Fatalf("make in %s: %v, %q", from, err, said)
		}
	}
	want, err := readSums(again)
	if err != nil {
		t.Fatal(err)
	}
	if there, err := sumsOf(one); err != nil || len(there) != 2*len(programs)+8 {
		t.Fatalf("%d files, %v; want each program and its bill of materials, two images, a chart and its archive, an archive for krew and what names it, a manifest, provenance", len(there), err)
	} else if err := compare(one, there, want, "the other"); err != nil {
		t.Fatal(err)
	}
	bill, err := os.ReadFile(filepath.Join(one, "tenure-linux-arm64.cdx.json"))
	if err != nil || !strings.Contains(string(bill), `"std@go1.26.8?goarch=arm64&x"`) || !strings.Contains(string(bill), `"name": "it"`) {
		t.Errorf("the bill of materials for arm64 is %s, %v", bill, err)
	}
	krew, err := os.ReadFile(filepath.Join(one, krewFile))
	if err != nil || !strings.Contains(string(krew), "/v0.0.1/kubectl-tenure-linux-arm64.tar.gz\n    sha256: "+want["kubectl-tenure-linux-arm64.tar.gz"]+"\n") {
		t.Errorf("krew has %s, %v", krew, err)
	}
	provenance, err := os.ReadFile(filepath.Join(one, provenanceFile))
	if err != nil || strings.Count(string(provenance), `"name": "registry.example/net/`) != 3 {
		t.Errorf("the provenance %s, %v; want it to name two images and the chart in the registry", provenance, err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"verify", one}, &out); err != nil || !strings.Contains(out.String(), "the same, byte for byte") {
		t.Fatalf("verify: %v, %q", err, out.String())
	}
	t.Run("it verifies nothing else", func(t *testing.T) { changed(t, one) })
}

// changed changes a release, which verify must see.
func changed(t *testing.T, dir string) {
	verified := func() string {
		err := verify(t.Context(), ".", dir, io.Discard)
		if err == nil {
			return "it is verified"
		}
		return err.Error()
	}
	program := filepath.Join(dir, "tenured-linux-arm64")
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	write(t, program, string(text)+"x")
	if said := verified(); !strings.Contains(said, program+" differs") || !strings.Contains(said, "by SHA256SUMS it is") {
		t.Errorf("a changed program: %s", said)
	}
	if err := writeSums(dir); err != nil { // whoever changes a file changes this one, too
		t.Fatal(err)
	}
	if said := verified(); !strings.Contains(said, program+" differs") || !strings.Contains(said, "by commit ") || strings.Count(said, "differs") != 1 {
		t.Errorf("a changed program whose sum was changed: %s", said)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if said := verified(); !strings.Contains(said, program+" is missing") {
		t.Errorf("a missing program: %s", said)
	}
	write(t, program, string(text))
	write(t, filepath.Join(dir, "further"), "")
	if said := verified(); !strings.Contains(said, "further is there, and SHA256SUMS has no such file") {
		t.Errorf("a further file: %s", said)
	}
}

// TestSignature: the sums of a release are signed by the key that is handed in, in either form in
// which openssl writes one; a key of another kind is refused.
func TestSignature(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err1 := x509.MarshalECPrivateKey(key)
	pkcs8, err2 := x509.MarshalPKCS8PrivateKey(key)
	public, err3 := x509.MarshalPKIXPublicKey(key.Public())
	_, other, err4 := ed25519.GenerateKey(rand.Reader)
	foreign, err5 := x509.MarshalPKCS8PrivateKey(other)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	file := func(kind string, text []byte) string {
		path := filepath.Join(t.TempDir(), "key")
		write(t, path, "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"+string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text})))
		return path
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tenured"), "a program")
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	signed, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(signed)
	for kind, text := range map[string][]byte{"EC PRIVATE KEY": sec1, "PRIVATE KEY": pkcs8} {
		if err := sign(dir, file(kind, text)); err != nil {
			t.Fatal(err)
		}
		signature, err := os.ReadFile(filepath.Join(dir, signatureFile))
		if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature) {
			t.Errorf("%s: the signature does not verify: %v", kind, err)
		}
		sum[0]++
		if ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature) {
			t.Errorf("%s: the signature verifies for other sums", kind)
		}
		sum[0]--
	}
	write(t, filepath.Join(dir, "release.pub"), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	if openssl, err := exec.LookPath("openssl"); err == nil { // as the docs say
		cmd := exec.CommandContext(t.Context(), openssl, "dgst", "-sha256", "-verify", "release.pub", "-signature", signatureFile, sumsFile)
		cmd.Dir = dir
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("openssl: %v: %s", err, said)
		}
	}
	if err := sign(dir, file("PRIVATE KEY", foreign)); err == nil || !strings.Contains(err.Error(), "openssl ecparam") {
		t.Errorf("a key of ed25519: %v", err)
	}
}

// TestRefused: no release is made that nobody else could make, and nothing but a release is
// replaced.
func TestRefused(t *testing.T) {
	root := source(t)
	dir := filepath.Join(t.TempDir(), "dist")
	refused := func(want string) {
		t.Helper()
		if _, err := made(t, root, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	r := release{Version: "0.9"}
	if err := r.identify(t.Context(), root, io.Discard); err == nil || !strings.Contains(err.Error(), "such as v0.9.0") {
		t.Errorf("version 0.9: %v", err)
	}
	write(t, filepath.Join(dir, "thesis.txt"), "the only copy")
	refused("name another directory by DIR=")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "cmd/tenured/more.go"), "package main\n")
	refused("?? cmd/tenured/more.go")
	if _, err := git(t.Context(), root, "tag", "v0.0.1"); err != nil {
		t.Fatal(err)
	}
	commit(t, root)
	refused("git checkout v0.0.1")
}
