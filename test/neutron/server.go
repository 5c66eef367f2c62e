package neutron

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// Options configures a server. The zero value is one to which everybody is an
// administrator.
type Options struct {
	// Tenants has the server ask who makes a request: the headers X-User-Id,
	// X-Project-Id and X-Roles say so, see [As]. Without them the answer is 401.
	Tenants bool
	// Host is the address that it listens on; empty is the loopback's.
	Host string
}

// Server is a running Neutron. Its methods must not be called concurrently, except URL.
type Server struct {
	o       Options
	dir     string // of its configuration, its data and its log
	address string
	process *process.Process
	group   int // of its processes, as it was started last
}

// config is the server's, with its directory and its port. More workers than one, or other
// programs than this one, make SQLite answer that it is locked. Pages are short, so that tests
// meet several.
const config = `[DEFAULT]
auth_strategy = noauth
core_plugin = ml2
service_plugins =
bind_host = %[3]s
bind_port = %[2]s
api_workers = 0
rpc_workers = 1
rpc_state_report_workers = 0
transport_url = fake:/
api_paste_config = %[1]s/api-paste.ini
state_path = %[1]s
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
dns_domain = test.local.
use_stderr = true
pagination_max_limit = 10
[database]
connection = sqlite:///%[1]s/neutron.sqlite
[oslo_concurrency]
lock_path = %[1]s/lock
[oslo_messaging_notifications]
driver = noop
[oslo_policy]
policy_file = %[1]s/policy.yaml
policy_dirs = %[1]s/policy.d
[ml2]
type_drivers = local,flat,vlan,vxlan
tenant_network_types = local
mechanism_drivers =
extension_drivers = port_security
[securitygroup]
enable_security_group = true
`

// The steps by which api-paste.ini has a request go. Without Keystone every request is an
// administrator's; tenants are told apart by headers.
const (
	everybody = "\nnoauth = cors http_proxy_to_wsgi request_id fake_project_id catch_errors osprofiler extensions neutronapiapp_v2_0\n"
	tenants   = "\nnoauth = cors http_proxy_to_wsgi request_id catch_errors osprofiler keystonecontext extensions neutronapiapp_v2_0\n"
)

// New starts a server that ends with the test, and shows the end of its log if the test has
// failed. It fails the test if that is not possible, and refuses to run outside a sandbox.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	if !sandbox.Inside() {
		t.Fatal("neutron: starts in a sandbox only, so that nothing of it is left: see sandbox.Main")
	}
	s := &Server{o: o, dir: t.TempDir()}
	if err := s.prepare(); err != nil {
		t.Fatalf("prepare Neutron: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Neutron:\n%s", s.process.Tail())
		}
		if err := s.Kill(); err != nil {
			t.Errorf("end Neutron: %v", err)
		}
	})
	s.Start(t)
	return s
}

// prepare writes what the server reads, and starts nothing.
func (s *Server) prepare() (err error) {
	python, root, err := find()
	if err != nil {
		return err
	}
	if s.address, err = controlplane.FreeAddress(); err != nil {
		return err
	}
	paste, err := os.ReadFile(filepath.Join(root, "usr/share/neutron-common/api-paste.ini"))
	if err != nil {
		return err
	}
	steps := string(paste)
	if !strings.Contains(steps, everybody) {
		return errors.New("api-paste.ini has other steps than this package knows: adapt them")
	}
	if s.o.Tenants {
		steps = strings.Replace(steps, everybody, tenants, 1)
	}
	database, err := os.ReadFile(filepath.Join(root, "neutron.sqlite"))
	if err != nil {
		return err
	}
	host, port, _ := strings.Cut(s.address, ":")
	if s.o.Host != "" {
		host, s.address = s.o.Host, s.o.Host+":"+port
	}
	for name, text := range map[string]string{
		"neutron.conf": fmt.Sprintf(config, s.dir, port, host), "api-paste.ini": steps, "policy.yaml": "unused: '!'\n", "neutron.sqlite": string(database),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	s.process = &process.Process{
		Name: "neutron-server", Path: python,
		Args:  []string{filepath.Join(root, "usr/bin/neutron-server"), "--config-file", filepath.Join(s.dir, "neutron.conf")},
		Log:   filepath.Join(s.dir, "neutron.log"),
		Exec:  s.launch,
		Ready: process.Answers(&http.Client{Transport: changed{s.admin()}}, s.URL()+"/v2.0/networks?limit=1"),
	}
	return os.Mkdir(filepath.Join(s.dir, "policy.d"), 0o755)
}

// find returns the program that runs Neutron's, and the directory below which these are.
func find() (python, root string, err error) {
	rig, err := programs.RigDir()
	if err != nil {
		return "", "", err
	}
	root = filepath.Join(rig, "neutron")
	python = filepath.Join(root, "python")
	if _, err := os.Stat(python); errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("there is no Neutron in %s: run `make rig-neutron`", root)
	}
	return python, root, nil
}

// launch starts the server as a group of processes of its own: it has children, which have
// its port open as well.
func (s *Server) launch(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Start()
	if err == nil {
		s.group = cmd.Process.Pid
	}
	return err
}

// admin returns a change of requests that has them be the administrator's. Where everybody is
// one, headers would be a fault.
func (s *Server) admin() func(*http.Request) {
	if s.o.Tenants {
		return As("admin", Admin, "admin")
	}
	return func(*http.Request) {}
}

// changed is a transport that changes requests before they go.
type changed struct{ by func(*http.Request) }

func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	c.by(r)
	return http.DefaultTransport.RoundTrip(r)
}

// URL returns where the server is, with neither version nor slash at its end.
func (s *Server) URL() string { return "http://" + s.address }

// Start starts the server again, on the same port and data, and returns when it is ready.
// It is a no-op if the server runs.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.process.Start(t.Context()); err != nil {
		t.Fatalf("start Neutron: %v", err)
	}
}

// Stop ends the server by SIGTERM, and waits for its end: it answers what it has begun.
func (s *Server) Stop() error { return s.process.Stop() }

// Kill ends the server as a crash does, its children included: connections break, its data
// stays. It is a no-op if it does not run.
func (s *Server) Kill() error {
	if s.group == 0 {
		return nil
	}
	err := syscall.Kill(-s.group, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	group := s.group
	s.group = 0
	return errors.Join(err, s.process.Kill(), process.Await(context.Background(), process.Patience, func(context.Context) error {
		if err := syscall.Kill(-group, 0); !errors.Is(err, syscall.ESRCH) {
			return errors.New("a child of Neutron has not ended")
		}
		return nil
	}))
}

// Pause freezes the server: connections stay open and nothing is answered until Resume.
func (s *Server) Pause() error { return s.process.Pause() }

// Resume undoes Pause.
func (s *Server) Resume() error { return s.process.Resume() }
