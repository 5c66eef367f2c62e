package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/test/programs"
)

const localhost = "127.0.0.1"

// component finds the program name and returns it as one that logs into cp's
// directory and is ready when url answers 200.
func (cp *ControlPlane) component(name, url string, args ...string) (*process, error) {
	path, err := programs.Find(name)
	if err != nil {
		return nil, err
	}
	return &process{
		name: name, path: path, args: args,
		log:   filepath.Join(cp.dir, name+".log"),
		ready: answers(url, cp.pki),
	}, nil
}

func (cp *ControlPlane) newEtcd() (url string, err error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	url = fmt.Sprintf("http://%s:%d", localhost, port)
	args := []string{
		"--data-dir=" + cp.etcdDir(),
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		"--listen-peer-urls=http://" + localhost + ":0", // one member: nobody calls
		"--log-level=warn",
	}
	if !cp.o.Fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	cp.etcd, err = cp.component("etcd", url+"/health", args...)
	return url, err
}

func (cp *ControlPlane) newAPIServer(etcdURL string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	url := fmt.Sprintf("https://%s:%d", localhost, port)
	if cp.admin, err = cp.pki.clientConfig(url, "admin", "system:masters"); err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + localhost,
		"--advertise-address=" + localhost,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.pki.path("server.crt"),
		"--tls-private-key-file=" + cp.pki.path("server.key"),
		"--client-ca-file=" + cp.pki.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.pki.path("service-account.pub"),
		"--service-account-signing-key-file=" + cp.pki.path("service-account.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged",
		// Nobody reaches the API server through the Service "kubernetes".
		"--endpoint-reconciler-type=none",
	}
	if len(cp.o.Controllers) == 0 {
		// Without the controller that makes them, namespaces have no
		// service account, and pods could not be created.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	cp.apiserver, err = cp.component("kube-apiserver", url+"/readyz", append(args, cp.o.APIServerArgs...)...)
	return err
}

func (cp *ControlPlane) newControllerManager() error {
	if len(cp.o.Controllers) == 0 {
		cp.kcm = &process{name: "kube-controller-manager"}
		return nil
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	user, err := cp.AddUser("system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(cp.dir, "kube-controller-manager.kubeconfig")
	if err := WriteKubeconfig(kubeconfig, user); err != nil {
		return err
	}
	cp.kcm, err = cp.component("kube-controller-manager", fmt.Sprintf("https://%s:%d/healthz", localhost, port),
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address="+localhost,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file="+cp.pki.path("server.crt"),
		"--tls-private-key-file="+cp.pki.path("server.key"),
		"--client-ca-file="+cp.pki.path("ca.crt"),
		"--service-account-private-key-file="+cp.pki.path("service-account.key"),
		"--root-ca-file="+cp.pki.path("ca.crt"),
		// Each controller has its own account and rights, as in a cluster.
		"--use-service-account-credentials",
		"--controllers="+strings.Join(cp.o.Controllers, ","),
		"--leader-elect=false",
	)
	return err
}

// answers returns a probe that succeeds once a GET of url answers 200. Each
// probe has a second: a component that starts may accept and not answer.
func answers(url string, keys *pki) func(context.Context) error {
	roots := x509.NewCertPool()
	roots.AddCert(keys.ca)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		DisableKeepAlives: true,
	}
	probe := &http.Client{Transport: transport, Timeout: time.Second}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := probe.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s answers %s: %s", url, resp.Status, body)
		}
		return nil
	}
}

// freePort returns a port of the loopback that nobody listens on, below those
// that the kernel gives to clients: while a server is stopped, a client's
// socket must not take its port.
func freePort() (int, error) {
	const low, high, tries = 10000, 32000, 100
	var last error
	for range tries {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", localhost, port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, errors.Join(fmt.Errorf("no free port in %d tries", tries), last)
}
