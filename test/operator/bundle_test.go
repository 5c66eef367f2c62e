package operator_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// unpacked returns the texts of the files of a bundle by their names.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		top, name, _ := strings.Cut(h.Name, "/")
		if !strings.HasPrefix(top, "tenure-bundle-") || name != path.Clean(name) {
			t.Errorf("there is a file %s", h.Name)
		}
		texts[name] = string(text)
	}
}

// TestBundle: it has what a cluster says of itself, and no secret of a definition. What cannot be
// had, as here the log of a pod without a kubelet, is said.
func TestBundle(t *testing.T) {
	w := inOrder(t)
	create(t, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "other", Annotations: map[string]string{"example.com/x": "hush-annotation"}},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: `{"cniVersion":"1.0.0","name":"other","type":"x","apiToken":"hush-token"}`},
	})
	w.podWith("twin", "10.40.0.5")
	ours(t, "tenured", "v0.9.0", true)
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	says(t, tenure(t, 0, "bundle", "-f", file), "parts are missing", "log of tenured-", "look at it before you give it away")
	got := unpacked(t, file)
	for name, words := range map[string][]string{
		"README":                {"of the whole cluster", "is left out"},
		"errors.txt":            {"log of tenured-", "metrics of tenured-"},
		"versions.yaml":         {"kubectlTenure: development", "kubernetes: v1."},
		"check.json":            {`"result": "Wrong"`, `"TwoOwners"`},
		"pods.yaml":             {"name: twin", "k8s.v1.cni.cncf.io/networks: lan", "phase: Pending"},
		"nodes.yaml":            {"name: " + w.node},
		"objects/ippools.yaml":  {"name: " + w.pool.Name, "leasing: Open"},
		"objects/ipleases.yaml": {"10.40.0.16/28"}, "objects/ipsubleases.yaml": {w.node}, "objects/ipamclaims.yaml": {"name: vm"},
		"objects/leases.coordination.k8s.io.yaml":     {"name: " + w.node, "renewTime"},
		"objects/network-attachment-definitions.yaml": {"name: other", `"apiToken":"(left out)"`},
		"store-checks.txt":                            {"No agent was asked"},
	} {
		says(t, got[name], words...)
	}
	for name, text := range got {
		for _, not := range []string{"hush-", "managedFields", "image: none"} {
			if strings.Contains(text, not) && name != "README" {
				t.Errorf("%s has %q:\n%s", name, not, text)
			}
		}
	}
	says(t, tenure(t, 1, "bundle", "-f", file), "is there already")
}

// TestBundleOfANamespace: who may not read the cluster has what is in the namespace, and is told
// which rights are missing; who may read nothing has no bundle.
func TestBundleOfANamespace(t *testing.T) {
	w := inOrder(t)
	user, dir := fleet.Unique("person"), t.TempDir()
	file := filepath.Join(dir, "b.tar.gz")
	says(t, tenure(t, 1, "bundle", "-f", file, "--as="+user), "no bundle was written", "give --namespace")
	says(t, tenure(t, 1, "bundle", "-f", file, "--as="+user, "-n", w.namespace), "no bundle was written", "role view")
	create(t, &rbac.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: user}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbac.Subject{{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: user}},
	})
	fleet.Eventually(t, 20*time.Second, func() error { // the authorizer's cache follows
		return command(t, "claims", "-n", w.namespace, "--as="+user).Run()
	})
	says(t, tenure(t, 0, "bundle", "-f", file, "--as="+user, "-n", w.namespace), "of namespace "+w.namespace+" alone", "You lack the rights to list ippools; list podnetworks.")
	got := unpacked(t, file)
	says(t, got["README"], "of namespace "+w.namespace+" alone")
	says(t, got["pods.yaml"], "name: plain")
	says(t, got["objects/ipamclaims.yaml"], "name: vm")
	says(t, got["errors.txt"], "ippools: you may not: it takes the right to list ippools")
	for _, name := range []string{"check.json", "nodes.yaml", "objects/ipleases.yaml", "store-checks.txt"} {
		if got[name] != "" {
			t.Errorf("there is %s", name)
		}
	}
	if there := names(t, dir); there != "b.tar.gz" {
		t.Errorf("there is %s", there)
	}
}

// TestBundleOfAnAPIServerThatGoes: where it goes in the middle the rest is missing; and who does
// not want to wait for one that hangs has no part of a file.
func TestBundleOfAnAPIServerThatGoes(t *testing.T) {
	w := inOrder(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "b.tar.gz")
	closes := make(chan func() error, 1)
	var once sync.Once
	goes := through(t, func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(rw, r)
		if strings.HasSuffix(r.URL.Path, "/network-attachment-definitions") {
			once.Do(func() { _ = (<-closes)() }) // who is in stays, and more are to come
		}
	})
	closes <- goes.Listener.Close
	says(t, tenure(t, 0, "bundle", "-f", file, "--server="+goes.URL), "parts are missing")
	got := unpacked(t, file)
	says(t, got["objects/network-attachment-definitions.yaml"], w.namespace)
	says(t, got["errors.txt"], "connection refused")

	hangs, asked := make(chan struct{}), make(chan struct{}, 1000)
	defer close(hangs)
	server := through(t, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		asked <- struct{}{}
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	}).URL
	cmd := command(t, "bundle", "-f", filepath.Join(dir, "c.tar.gz"), "--server="+server)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if there := names(t, dir); !strings.Contains(there, ".part") {
		t.Errorf("meanwhile there is %s", there)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it exits with %d", cmd.ProcessState.ExitCode())
	}
	says(t, said.String(), "interrupted: no bundle was written")
	if there := names(t, dir); there != "b.tar.gz" {
		t.Errorf("there is %s", there)
	}
}

// names returns what is in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// through serves the API server by way of a handler, without credentials.
func through(t *testing.T, by func(http.ResponseWriter, *http.Request, http.Handler)) *httptest.Server {
	t.Helper()
	transport, err := rest.TransportFor(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(cp.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { by(rw, r, proxy) }))
	t.Cleanup(server.Close)
	return server
}
