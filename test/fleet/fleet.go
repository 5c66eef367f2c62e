// Package fleet starts what a cluster without kubelets needs, for tests, the demo and the
// benchmark: a control plane with clients, the manifests of deploy/, a controller, agents.
// Agents and controller run in this process or in processes of their own.
//
// A [Fleet] is the agents of many nodes. It watches every answer that they give: an
// address that is answered to two owners at once fails the test.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/history"
	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/process"
)

// Fleet is the agents of many nodes.
type Fleet struct {
	t        testing.TB
	rest     *rest.Config
	dir      string
	Observer *Observer
	// Change, if set, changes a node's configuration before it starts.
	Change func(*daemon.Config)
	// Between, if set, returns how a node's agent reaches the API server, given how the
	// others do.
	Between func(node string, rc *rest.Config) *rest.Config
	// Logs is the directory of the logs; empty is a temporary one.
	Logs string

	mu    sync.Mutex
	nodes map[string]*Node // guarded by mu
}

// Apart is a [Fleet.Between] that gives each node's agent connections of its own, as a
// machine of its own has them. Else all agents of one process share a few, and a burst
// that needs more streams than these have waits for TLS handshakes.
func Apart(_ string, rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	// client-go shares connections between configurations that are alike, and takes none
	// with a dialer of its own for that.
	rc.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	return rc
}

// Through returns a copy of rc whose requests go through trip, on their way to next.
func Through(rc *rest.Config, trip func(r *http.Request, next http.RoundTripper) (*http.Response, error)) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return trip(r, next) })
	})
	return rc
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// New returns a fleet without nodes. When the test ends, every node is stopped
// and every store checked.
func New(t testing.TB, rc *rest.Config) *Fleet {
	f := &Fleet{t: t, rest: rc, dir: t.TempDir(), Observer: newObserver(t), nodes: map[string]*Node{}}
	t.Cleanup(f.close)
	return f
}

// Node is one node's agent.
type Node struct {
	Name  string
	fleet *Fleet
	cfg   daemon.Config

	run runner // nil while it does not run
}

// A runner is an agent that runs, in this process or in one of its own.
type runner interface {
	Running() bool
	Stop() error
}

// Start starts the agent of a node, the first time with a new store, and waits
// until it is ready.
func (f *Fleet) Start(name string) *Node {
	f.t.Helper()
	n := f.Launch(name)
	n.AwaitServing()
	return n
}

// Launch is Start without the wait.
func (f *Fleet) Launch(name string) *Node {
	f.t.Helper()
	n := f.node(name)
	f.launch(n, name)
	return n
}

// LaunchTwin starts a second agent under a node's name, with a store and a socket of its
// own, as on another machine. Stop ends it; the next has its store.
func (f *Fleet) LaunchTwin(of *Node) *Node {
	f.t.Helper()
	n := f.node(of.Name + "-twin")
	n.Name, n.cfg.Agent.Node = of.Name, of.cfg.Agent.Node
	f.launch(n, of.Name+"-twin")
	return n
}

// launch starts n's agent in this process, with a log of that name.
func (f *Fleet) launch(n *Node, logName string) {
	f.t.Helper()
	file, err := os.OpenFile(f.log(logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { file.Close() })
	log := slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: slog.LevelDebug}))
	rc := f.rest
	if f.Between != nil {
		rc = f.Between(n.Name, rc)
	}
	d, err := daemon.New(n.cfg, rc, log)
	if err != nil {
		f.t.Fatal(err)
	}
	n.run = process.Go(context.Background(), d.Run)
}

// node returns the node of a name, at first a new one.
func (f *Fleet) node(name string) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[name]
	if !ok {
		n = &Node{Name: name, fleet: f, cfg: f.config(name)}
		f.nodes[name] = n
	}
	return n
}

// Config returns the configuration of a node's agent that has all its files below dir, in
// a directory of the node's name.
func Config(dir, name string) daemon.Config {
	a := agent.DefaultConfig(protocol.NodeName(name))
	dir = filepath.Join(dir, name)
	a.Machine, a.JournalDir = "machine-of-"+name, filepath.Join(dir, "journal")
	return daemon.Config{
		Agent: a, Store: filepath.Join(dir, "store.db"), Socket: filepath.Join(dir, "agent.sock"), HistoryBounds: history.DefaultBounds,
		NetnsDirs: []string{filepath.Join(dir, "netns")}, ResultDirs: []string{filepath.Join(dir, "results")},
	}
}

func (f *Fleet) config(name string) daemon.Config {
	cfg := Config(f.dir, name)
	var err error
	if cfg.Agent.Boot, err = daemon.BootID(daemon.DefaultBootFile); err != nil {
		f.t.Fatal(err)
	}
	if f.Change != nil {
		f.Change(&cfg)
	}
	return cfg
}

// log returns the path of the log of a node or a controller.
func (f *Fleet) log(name string) string { return filepath.Join(cmp.Or(f.Logs, f.dir), name+".log") }

// Config returns the node's configuration. A change takes effect at the next
// start.
func (n *Node) Config() *daemon.Config { return &n.cfg }

func (n *Node) call(req agentapi.Request) (agentapi.Response, error) {
	return agentapi.Once(context.Background(), time.Minute, n.cfg.Socket, req)
}

// Stop stops the agent as SIGTERM does, and waits for it.
func (n *Node) Stop() {
	n.fleet.t.Helper()
	if n.run == nil {
		return
	}
	if err := n.run.Stop(); err != nil && !terminated(err) {
		n.fleet.t.Errorf("agent of %s ends with %v", n.Name, err)
	}
	n.run = nil
}

// Log returns what the agent has logged.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.fleet.log(n.Name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Socket is where the node's agent listens.
func (n *Node) Socket() string { return n.cfg.Socket }

// check checks the node's store, which must not be open.
func (n *Node) check() error {
	st, err := store.Open(n.cfg.Store, store.Options{})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(st.Check(), st.Close())
}

func (f *Fleet) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.nodes {
		n.Stop()
		if err := n.check(); err != nil {
			f.t.Errorf("store of %s: %v", name, err)
		}
		if f.t.Failed() && len(f.nodes) <= 4 {
			f.t.Logf("log of %s:\n%s", name, n.Log())
		}
	}
}

// An Interface is one interface of one pod's sandbox on one node.
type Interface struct {
	Network   string
	Sandbox   string
	IfName    string
	Namespace string // of the pod
	Pod       string
	PodUID    string
	// Netns is the path of the network namespace; a file stands in for one where
	// only its coming and going matters.
	Netns string
	// IPAM is the "ipam" section; Top are further keys of the configuration.
	IPAM map[string]any
	Top  map[string]any
	// Domain is the addressing domain, if that is not the pool or network_name of
	// IPAM.
	Domain string
}

func (i Interface) request(verb agentapi.Verb) (agentapi.Request, error) {
	conf := map[string]any{"cniVersion": "1.1.0", "name": i.Network, "type": "bridge", "ipam": i.IPAM}
	maps.Copy(conf, i.Top)
	raw, err := json.Marshal(conf)
	if err != nil {
		return agentapi.Request{}, err
	}
	req := agentapi.Request{Verb: verb, ContainerID: i.Sandbox, IfName: i.IfName, Netns: i.Netns, NetnsID: netns.ID(i.Netns), Config: raw}
	if i.Pod != "" {
		req.Args = fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", i.Namespace, i.Pod, i.PodUID)
	}
	return req, nil
}

// Add asks for i's addresses, as the plugin does. The observer sees the answer.
func (n *Node) Add(i Interface) (*agentapi.Result, error) {
	req, err := i.request(agentapi.Add)
	if err != nil {
		return nil, err
	}
	began := n.fleet.Observer.history.Now()
	resp, err := n.call(req)
	switch {
	case err != nil:
		return nil, err
	case resp.Error != nil:
		return nil, resp.Error
	}
	n.fleet.Observer.added(began, n.Name, i, resp.Result)
	return resp.Result, nil
}

// Insist is Add for who wants an answer: an ADD that is told to try again after it has
// waited as long as it may is made again, for a minute, as a runtime does, since the
// machine may be busy with other tests. One that is refused sooner is refused.
func (n *Node) Insist(i Interface) (*agentapi.Result, error) {
	for deadline := time.Now().Add(time.Minute); ; {
		began := time.Now()
		res, err := n.Add(i)
		e, refused := errors.AsType[*agentapi.Error](err)
		if !refused || e.Code != agentapi.CodeTryAgainLater || time.Since(began) < n.cfg.Agent.Wait*4/5 || time.Now().After(deadline) {
			return res, err
		}
		n.fleet.t.Logf("ADD of %s %s on %s is made again: %v", i.Sandbox, i.IfName, n.Name, err)
	}
}

// Refused makes ADDs of i, which must all be told to try again, until one is told so
// with this text. The first may have another reason: on a machine that is busy with
// other tests it can end before it has come so far.
func (n *Node) Refused(t testing.TB, i Interface, text string) {
	t.Helper()
	Eventually(t, n.cfg.Agent.Wait+5*time.Second, func() error {
		_, err := n.Add(i)
		e, ok := errors.AsType[*agentapi.Error](err)
		switch {
		case !ok || e.Code != agentapi.CodeTryAgainLater:
			t.Fatalf("ADD of %s %s on %s: %v; want code %d with %q", i.Sandbox, i.IfName, n.Name, err, agentapi.CodeTryAgainLater, text)
		case !strings.Contains(e.Error(), text):
			return fmt.Errorf("ADD of %s %s on %s: %w; want %q", i.Sandbox, i.IfName, n.Name, err, text)
		}
		return nil
	})
}

// Del gives i's addresses back. The observer forgets them before the call: from
// then on others may have them.
func (n *Node) Del(i Interface) error {
	end := n.fleet.Observer.deleting(n.Name, i)
	err := n.send(agentapi.Del, i)
	end(err == nil)
	return err
}

// Vanish tells the observer that the sandbox and the pod of i are gone, and that
// no DEL will come: others may have its addresses.
func (n *Node) Vanish(i Interface) { n.fleet.Observer.deleting(n.Name, i)(false) }

// GC is CNI's GC for i's network: valid are the sandboxes to keep.
func (n *Node) GC(i Interface, valid ...Interface) error {
	refs := []map[string]string{}
	for _, v := range valid {
		refs = append(refs, map[string]string{"containerID": v.Sandbox, "ifname": v.IfName})
	}
	i.Top = maps.Clone(i.Top)
	if i.Top == nil {
		i.Top = map[string]any{}
	}
	i.Top["cni.dev/valid-attachments"] = refs
	return n.send(agentapi.GC, Interface{Network: i.Network, IPAM: i.IPAM, Top: i.Top})
}

// With returns i as CHECK is called for it, after an ADD that was answered with
// these addresses.
func (i Interface) With(addrs []netip.Prefix) Interface {
	ips := []map[string]string{}
	for _, a := range addrs {
		ips = append(ips, map[string]string{"address": a.String()})
	}
	i.Top = maps.Clone(i.Top)
	if i.Top == nil {
		i.Top = map[string]any{}
	}
	i.Top["prevResult"] = map[string]any{"cniVersion": "1.1.0", "ips": ips}
	return i
}

// CheckAdd is CNI's CHECK.
func (n *Node) CheckAdd(i Interface) error { return n.send(agentapi.Check, i) }

func (n *Node) send(verb agentapi.Verb, i Interface) error {
	req, err := i.request(verb)
	if err != nil {
		return err
	}
	resp, err := n.call(req)
	if err == nil && resp.Error != nil {
		return resp.Error
	}
	return err
}

// WantCode checks that an agent has answered with an error of this code, in these words.
func WantCode(t testing.TB, err error, code agentapi.Code, words string) {
	t.Helper()
	e, ok := errors.AsType[*agentapi.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Error(), words) {
		t.Errorf("got %v; want code %d with %q", err, code, words)
	}
}
