package ready

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// definitions are those of a cluster that may be away.
type definitions struct {
	exists, known atomic.Bool
	config        atomic.Pointer[string]
	asked         atomic.Pointer[facts.Ref]
}

// Definition implements Definitions.
func (d *definitions) Definition(_ context.Context, ref facts.Ref, _ bool) (facts.Definition, error) {
	d.asked.Store(&ref)
	def := facts.Definition{Ref: ref, Config: d.config.Load()}
	switch {
	case !d.known.Load():
		return facts.Definition{}, errors.New("the API server is away")
	case !d.exists.Load():
		def.Missing = "there is none"
	}
	return def, nil
}

// node is a host's files, and a Keeper that keeps one of them.
type node struct {
	t       *testing.T
	cfg     Config
	confDir string // of the default network's configuration
	cluster definitions
	events  *events
}

// events are the Events about the node.
type events struct {
	mu    sync.Mutex
	all   []string // guarded by mu
	turns int      // guarded by mu; how often it was said that the runtime takes another file
}

func (e *events) turned() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turns++
}

// warn implements Warn.
func (e *events) warn(reason, message string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, reason+": "+message)
	return true
}

// say returns what was said since the last call.
func (e *events) say() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, e.all = e.all, nil
	return all
}

func newNode(t *testing.T, plugin string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, confDir: filepath.Join(dir, "default.d"), events: &events{}}
	n.cfg = DefaultConfig()
	n.cfg.Source, n.cfg.Dir, n.cfg.Every = filepath.Join(dir, "source.conflist"), filepath.Join(dir, "net.d"), time.Millisecond
	n.cfg.Record = filepath.Join(dir, "agent", "cni-conf.json")
	for _, d := range []string{n.confDir, n.cfg.Dir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.write(n.cfg.Source, n.list(plugin))
	return n
}

// list is the configuration to install; DIR in plugin stands for the directory of
// the default network's configuration.
func (n *node) list(plugin string) string {
	return strings.ReplaceAll(fmt.Sprintf(`{"cniVersion":"1.1.0","name":"tenure","plugins":[{"type":"tenure-attach","confDir":"DIR",%s}]}`, plugin), "DIR", n.confDir)
}

func (n *node) write(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) remove(path string) {
	n.t.Helper()
	if err := os.Remove(path); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) installed() string { return filepath.Join(n.cfg.Dir, n.cfg.Name) }

// run runs a Keeper while test does.
func (n *node) run(test func()) {
	n.t.Helper()
	k, err := New(n.cfg, &n.cluster, n.events.warn, n.events.turned, slog.New(slog.DiscardHandler))
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	test()
	stop()
	if err := <-done; err != nil {
		n.t.Error(err)
	}
}

// becomes waits until the runtime's file is text, or gone if text is empty.
func (n *node) becomes(text string) {
	n.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		got, err := os.ReadFile(n.installed())
		if string(got) == text && (err == nil) == (text != "") {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("the file is %q, %v; want %q", got, err, text)
		}
		time.Sleep(time.Millisecond)
	}
}

// stays looks for a while that nothing changes.
func (n *node) stays(text string) {
	n.t.Helper()
	for range 50 { // looks, one each millisecond
		if got, _ := os.ReadFile(n.installed()); string(got) != text {
			n.t.Fatalf("the file is %q; want it to stay %q", got, text)
		}
		time.Sleep(time.Millisecond)
	}
}

const calico = `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"calico"}]}`

// The default network's configuration comes and goes; ours follows it (section
// 6.1.1). The runtime never sees a part of a file, nor another one (N69, N70).
func TestFollowsTheDefaultNetworksConfiguration(t *testing.T) {
	for name, plugin := range map[string]string{
		"by path":      `"defaultNetwork":"DIR/10-calico.conflist"`,
		"by directory": `"clusterNetwork":"DIR"`,
		"by name":      `"clusterNetwork":"k8s-pod-network"`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, plugin)
			n.cluster.known.Store(true)
			file := filepath.Join(n.confDir, "10-calico.conflist")
			ours := n.list(plugin)
			n.run(func() {
				n.stays("")
				n.write(file, calico)
				n.becomes(ours)
				n.remove(file)
				n.becomes("")
				n.write(file, calico)
				n.becomes(ours)
			})
			if entries, err := os.ReadDir(n.cfg.Dir); err != nil || len(entries) != 1 {
				t.Errorf("the runtime's directory has %v, %v; want our file alone", entries, err)
			}
		})
	}
}

// TestWaitsForTheReadinessIndicatorFile (N69, N72).
func TestWaitsForTheReadinessIndicatorFile(t *testing.T) {
	n := newNode(t, `"clusterNetwork":"k8s-pod-network","readinessindicatorfile":"DIR/ready"`)
	n.write(filepath.Join(n.confDir, "10-calico.conflist"), calico)
	ours := n.list(`"clusterNetwork":"k8s-pod-network","readinessindicatorfile":"DIR/ready"`)
	n.run(func() {
		n.stays("")
		n.write(filepath.Join(n.confDir, "ready"), "")
		n.becomes(ours)
		n.remove(filepath.Join(n.confDir, "ready"))
		n.becomes("")
	})
}

// TestInstallsAtOnceWhereThePluginWaits (N71).
func TestInstallsAtOnceWhereThePluginWaits(t *testing.T) {
	const plugin = `"clusterNetwork":"k8s-pod-network","readinessindicatorfile":"DIR/ready"`
	n := newNode(t, plugin)
	n.cfg.AtOnce = true
	n.run(func() { n.becomes(n.list(plugin)) })
}

// An API server that is away says nothing about the default network: the node stays
// as it is, ready or not, also over a restart of the agent.
func TestAPIOutageDoesNotFlipIt(t *testing.T) {
	const plugin = `"defaultNetwork":"kube-system/base"`
	n := newNode(t, plugin)
	ours := n.list(plugin)
	n.run(func() { n.stays("") }) // unknown, and not there
	n.cluster.known.Store(true)
	n.run(func() {
		n.stays("") // known not to exist
		n.cluster.exists.Store(true)
		n.becomes(ours)
		n.cluster.known.Store(false) // first: it must not be known that there is none
		n.cluster.exists.Store(false)
		n.stays(ours)
	})
	n.run(func() { n.stays(ours) })
	if ref := n.cluster.asked.Load(); *ref != (facts.Ref{Namespace: "kube-system", Name: "base"}) {
		t.Errorf("asked for %s", ref)
	}
	n.cluster.known.Store(true)
	n.run(func() { n.becomes("") })
}

// TestDefinitionOrFileOfThatName (N69).
func TestDefinitionOrFileOfThatName(t *testing.T) {
	const plugin = `"defaultNetwork":"base"`
	n := newNode(t, plugin)
	n.cluster.known.Store(true)
	n.run(func() {
		n.stays("")
		n.cluster.exists.Store(true)
		n.becomes(n.list(plugin))
	})
}

func TestChangesOfTheSourceAreInstalled(t *testing.T) {
	n := newNode(t, `"defaultNetwork":{"cniVersion":"1.0.0","name":"n","type":"x"}`)
	n.run(func() {
		n.becomes(n.list(`"defaultNetwork":{"cniVersion":"1.0.0","name":"n","type":"x"}`))
		second := n.list(`"defaultNetwork":{"cniVersion":"1.0.0","name":"n","type":"y"}`)
		n.write(n.cfg.Source, second)
		n.becomes(second)
		n.write(n.cfg.Source, `{"plugins":[`) // half of a file, or a mistake
		n.stays(second)
		n.write(n.cfg.Source, `{"plugins":[{"type":"bridge"}]}`) // not ours
		n.stays(second)
		n.remove(n.cfg.Source)
		n.stays(second)
	})
}

// A default network whose file is being written in place is not unready.
func TestHalfAFileForAMomentChangesNothing(t *testing.T) {
	n := newNode(t, `"clusterNetwork":"k8s-pod-network"`)
	n.cluster.known.Store(true)
	k, err := New(n.cfg, &n.cluster, n.events.warn, n.events.turned, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.confDir, "10-calico.conflist")
	for i, step := range []struct {
		text string
		want bool
	}{{calico, true}, {calico[:20], true}, {calico, true}, {calico[:20], true}, {calico[:20], false}} {
		n.write(file, step.text)
		k.look(t.Context())
		if _, err := os.Lstat(n.installed()); (err == nil) != step.want {
			t.Errorf("look %d: %v; want installed %v", i, err, step.want)
		}
	}
}

// Where another file comes first, the runtime takes that, and no pod is attached by us:
// it is said, and the metric says it. What the node says of itself is said anew each time that the
// runtime's first file is another one.
func TestAnotherFileComesFirst(t *testing.T) {
	n := newNode(t, `"defaultNetwork":{"cniVersion":"1.0.0","name":"n","type":"x"}`)
	var log strings.Builder
	k, err := New(n.cfg, &n.cluster, n.events.warn, n.events.turned, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	multus := filepath.Join(n.cfg.Dir, "00-multus.conf")
	for _, step := range []struct {
		name   string
		change func()
		want   bool // that the runtime takes ours
		turns  int  // how often the first file has changed by then
	}{
		{"alone", func() {}, true, 0},
		{"later ones, and what no runtime reads", func() {
			n.write(filepath.Join(n.cfg.Dir, "10-calico.conflist"), calico)
			n.write(filepath.Join(n.cfg.Dir, "00-a.txt"), "")
			if err := os.Mkdir(filepath.Join(n.cfg.Dir, "00-multus.d"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, true, 0},
		{"Multus's", func() { n.write(multus, "{}") }, false, 1},
		{"Multus's is gone", func() { n.remove(multus) }, true, 2},
	} {
		step.change()
		log.Reset()
		k.look(t.Context())
		k.look(t.Context()) // which finds nothing new
		if got := k.first.Load(); got != step.want {
			t.Errorf("%s: the metric says %v; want %v", step.name, got, step.want)
		}
		if n.events.turns != step.turns {
			t.Errorf("%s: the node was to say what it says anew %d times; want %d", step.name, n.events.turns, step.turns)
		}
		if said := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "the runtime takes 00-multus.conf"); said == step.want {
			t.Errorf("%s: it says %q", step.name, &log)
		}
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	n := newNode(t, `"clusterNetwork":"none"`)
	left := filepath.Join(n.cfg.Dir, ".00-tenure.conflist.new")
	n.write(left, "half of a fi")
	if err := os.Chtimes(left, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	n.run(func() {
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if _, err := os.Lstat(left); errors.Is(err, fs.ErrNotExist) {
				return
			}
		}
		t.Error("what a killed agent has left is still there")
	})
}

func TestFaultsOfTheConfiguration(t *testing.T) {
	good := DefaultConfig()
	good.Source, good.Record = "/etc/tenure/cni.conflist", "/var/lib/tenure/agent/cni-conf.json"
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Config){
		`Source is "x"`:                 func(c *Config) { c.Source = "x" },
		`Record is ""`:                  func(c *Config) { c.Record = "" },
		`Dir is ""`:                     func(c *Config) { c.Dir = "" },
		`Name is "a/b.conf"`:            func(c *Config) { c.Name = "a/b.conf" },
		`Name is "00-tenure"`:           func(c *Config) { c.Name = "00-tenure" },
		"the very file that is written": func(c *Config) { c.Source = filepath.Join(c.Dir, c.Name) },
		"Every is 0s, must be positive": func(c *Config) { c.Every = 0 },
	} {
		c := good
		spoil(&c)
		if _, err := New(c, &definitions{}, (&events{}).warn, func() {}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
}
