package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

const localhost = "127.0.0.1"

// serviceRange is the range of Services where the options name none.
const serviceRange = "10.0.0.0/24"

// serviceRanges are the ranges of Services.
func (o Options) serviceRanges() []string {
	if len(o.ServiceRanges) == 0 {
		return []string{serviceRange}
	}
	return o.ServiceRanges
}

// ServiceAddress returns the address of the Service "kubernetes", the first one of a range of
// Services.
func ServiceAddress(of string) string { return netip.MustParsePrefix(of).Addr().Next().String() }

// component finds the program name and returns it as one that logs into cp's
// directory and is ready when url answers 200.
func (cp *ControlPlane) component(name, url string, args ...string) (*process.Process, error) {
	path, err := programs.Find(name)
	if err != nil {
		return nil, err
	}
	return &process.Process{
		Name: name, Path: path, Args: args,
		Log:   filepath.Join(cp.dir, name+".log"),
		Ready: process.Answers(cp.pki.probe(), url),
	}, nil
}

func (cp *ControlPlane) newEtcd() error {
	port, err := freePort()
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s:%d", localhost, port)
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
	cp.etcdURL = url
	cp.etcd, err = cp.component("etcd", url+"/health", args...)
	return err
}

func (cp *ControlPlane) newAPIServer(etcdURL string) error {
	port, err := cp.apiPort()
	if err != nil {
		return err
	}
	url := fmt.Sprintf("https://%s:%d", localhost, port)
	if cp.admin, err = cp.pki.clientConfig(url, "admin", "system:masters"); err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.pki.path("server.crt"),
		"--tls-private-key-file=" + cp.pki.path("server.key"),
		"--client-ca-file=" + cp.pki.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.pki.path("service-account.pub"),
		"--service-account-signing-key-file=" + cp.pki.path("service-account.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + strings.Join(cp.o.serviceRanges(), ","),
		"--allow-privileged",
	}
	reach, err := cp.reach()
	if err != nil {
		return err
	}
	args = append(args, reach...)
	if len(cp.o.Controllers) == 0 {
		// Without the controller that makes them, namespaces have no
		// service account, and pods could not be created.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	cp.apiserver, err = cp.component("kube-apiserver", url+"/readyz", append(args, cp.o.APIServerArgs...)...)
	return err
}

// nodesPort is the API server's where nodes reach it: the usual one, which is not that
// of its Service.
const nodesPort = 6443

// apiPort is the port of the API server.
func (cp *ControlPlane) apiPort() (int, error) {
	if cp.o.Address != "" {
		return nodesPort, nil
	}
	return freePort()
}

// reach returns the API server's arguments of who reaches it where, and where it
// reaches kubelets.
func (cp *ControlPlane) reach() (args []string, err error) {
	if cp.o.Address == "" {
		return []string{
			"--bind-address=" + localhost,
			"--advertise-address=" + localhost,
			// Nobody reaches the API server through the Service "kubernetes".
			"--endpoint-reconciler-type=none",
		}, nil
	}
	client, err := cp.pki.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return nil, err
	}
	cert, key := cp.pki.path("kubelet-client.crt"), cp.pki.path("kubelet-client.key")
	if err := errors.Join(os.WriteFile(cert, client.cert, 0o600), os.WriteFile(key, client.key, 0o600)); err != nil {
		return nil, err
	}
	all := "0.0.0.0"
	if net.ParseIP(cp.o.Address).To4() == nil {
		all = "::" // and those of IPv4
	}
	return []string{
		"--bind-address=" + all,
		"--advertise-address=" + cp.o.Address,
		"--kubelet-client-certificate=" + cert,
		"--kubelet-client-key=" + key,
		"--kubelet-preferred-address-types=InternalIP",
		// It has no kube-proxy beside it, and calls webhooks by the addresses of their pods.
		"--enable-aggregator-routing",
	}, nil
}

func (cp *ControlPlane) newControllerManager() error {
	const name = "kube-controller-manager"
	cp.kcm = &process.Process{Name: name}
	if len(cp.o.Controllers) == 0 {
		return nil
	}
	url, args, err := cp.client(name, "system:kube-controller-manager")
	if err != nil {
		return err
	}
	args = append(args,
		"--service-account-private-key-file="+cp.pki.path("service-account.key"),
		"--root-ca-file="+cp.pki.path("ca.crt"),
		// Each controller has its own account and rights, as in a cluster.
		"--use-service-account-credentials",
		"--controllers="+strings.Join(cp.o.Controllers, ","),
	)
	cp.kcm, err = cp.component(name, url, append(args, cp.o.ControllerManagerArgs...)...)
	return err
}

func (cp *ControlPlane) newScheduler() error {
	const name = "kube-scheduler"
	cp.scheduler = &process.Process{Name: name}
	if !cp.o.Scheduler {
		return nil
	}
	url, args, err := cp.client(name, "system:kube-scheduler")
	if err != nil {
		return err
	}
	cp.scheduler, err = cp.component(name, url, args...)
	return err
}

// client returns what the components have in common that are clients of the API
// server, as user, and where such a one says that it is ready.
func (cp *ControlPlane) client(name, user string) (url string, args []string, err error) {
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	config, err := cp.AddUser(user)
	if err != nil {
		return "", nil, err
	}
	kubeconfig := filepath.Join(cp.dir, name+".kubeconfig")
	if err := WriteKubeconfig(kubeconfig, config); err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("https://%s:%d/healthz", localhost, port), []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + localhost,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.pki.path("server.crt"),
		"--tls-private-key-file=" + cp.pki.path("server.key"),
		"--client-ca-file=" + cp.pki.path("ca.crt"),
		"--leader-elect=false",
	}, nil
}

// probe returns a client that trusts the components, with a connection for each request.
func (p *pki) probe() *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(p.ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
}

// FreeAddress returns an address of the loopback with a port that nobody listens on,
// which a server that a test starts may have. It is not returned again.
func FreeAddress() (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d", localhost, port), nil
}

// given has the ports that freePort has returned: their servers may not listen yet.
var given sync.Map

// freePort returns a port of the loopback that nobody listens on, below those
// that the kernel gives to clients: while a server is stopped, a client's
// socket must not take its port. It is not returned again.
func freePort() (int, error) {
	const low, high, tries = 10000, 32000, 100
	var last error
	for range tries {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", localhost, port))
		if err != nil {
			last = err
			continue
		}
		if _, again := given.LoadOrStore(port, true); again {
			_ = l.Close() // nobody has connected
			continue
		}
		return port, l.Close()
	}
	return 0, errors.Join(fmt.Errorf("no free port in %d tries", tries), last)
}
