package plugin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// network is a CNI network whose IPAM is the plugin's.
type network struct {
	t       *testing.T
	name    string
	version string         // cniVersion
	ipam    map[string]any // the "ipam" section, but for its type
	top     map[string]any // further keys of the configuration
	netns   string         // directory of files that stand in for network namespaces
	// down takes the agent away, up brings it back; nil in local mode.
	down, up func()
}

func newNetwork(t *testing.T, ipam map[string]any) *network {
	return &network{t: t, name: "net", version: "1.1.0", ipam: ipam, top: map[string]any{}, netns: t.TempDir()}
}

// with returns n with other keys of its configuration; those that start with
// "ipam." are of the "ipam" section.
func (n *network) with(keys map[string]any) *network {
	c := *n
	c.ipam, c.top = maps.Clone(n.ipam), maps.Clone(n.top)
	for k, v := range keys {
		if sub, ok := strings.CutPrefix(k, "ipam."); ok {
			c.ipam[sub] = v
		} else {
			c.top[k] = v
		}
	}
	return &c
}

// in returns n with another cniVersion; "" leaves it out.
func (n *network) in(version string) *network {
	c := *n
	c.version = version
	return &c
}

// named returns another network by the same backend.
func (n *network) named(name string) *network {
	c := *n
	c.name = name
	return &c
}

func (n *network) config() []byte {
	n.t.Helper()
	ipam := maps.Clone(n.ipam)
	ipam["type"] = "tenure"
	conf := map[string]any{"name": n.name, "type": "bridge", "ipam": ipam}
	if n.version != "" {
		conf["cniVersion"] = n.version
	}
	maps.Copy(conf, n.top)
	text, err := json.Marshal(conf)
	if err != nil {
		n.t.Fatal(err)
	}
	return text
}

// netnsOf returns what stands in for the container's network namespace.
func (n *network) netnsOf(container string) string { return filepath.Join(n.netns, container) }

// start makes the network namespaces of containers.
func (n *network) start(containers ...string) {
	n.t.Helper()
	for _, c := range containers {
		if err := os.WriteFile(n.netnsOf(c), nil, 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// kill removes the network namespaces of containers, without a DEL.
func (n *network) kill(containers ...string) {
	n.t.Helper()
	for _, c := range containers {
		if err := os.Remove(n.netnsOf(c)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// A call is one run of the plugin.
type call struct {
	env   map[string]string
	stdin io.Reader
}

// call returns a call of verb for the container's eth0.
func (n *network) call(verb, container string) call {
	return call{
		env: map[string]string{
			"CNI_COMMAND": verb, "CNI_CONTAINERID": container, "CNI_NETNS": n.netnsOf(container), "CNI_IFNAME": "eth0",
			"CNI_PATH": pluginDir(),
		},
		stdin: bytes.NewReader(n.config()),
	}
}

// set changes a variable of the environment; "" removes it.
func (c call) set(name, value string) call {
	c.env = maps.Clone(c.env)
	if c.env[name] = value; value == "" {
		delete(c.env, name)
	}
	return c
}

func (c call) command() (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.Command(plugin)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, stdout, stderr
	cmd.Env = []string{"GOTRACEBACK=all"}
	for k, v := range c.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd, stdout, stderr
}

// outcome is what a runtime sees of a call.
type outcome struct {
	exit           int
	stdout, stderr string
}

func (c call) run(t *testing.T) outcome {
	t.Helper()
	cmd, stdout, stderr := c.command()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// cniError is an error as the specification has it.
type cniError struct {
	CNIVersion string `json:"cniVersion"`
	Code       int    `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// wantError checks that the outcome is that error, well-formed and on stdout. The
// text may be a part of the message or of the details.
func (o outcome) wantError(t *testing.T, code int, text string) {
	t.Helper()
	var e cniError
	dec := json.NewDecoder(strings.NewReader(o.stdout))
	if err := dec.Decode(&e); err != nil || dec.More() {
		t.Errorf("exit %d, stdout %q (%v), stderr %q; want one error of code %d", o.exit, o.stdout, err, o.stderr, code)
		return
	}
	if o.exit == 0 || e.Code != code || e.CNIVersion == "" || !strings.Contains(e.Msg+" "+e.Details, text) {
		t.Errorf("exit %d, error %+v; want code %d with %q", o.exit, e, code, text)
	}
}

// wantQuiet checks that the outcome is a success that prints no result.
func (o outcome) wantQuiet(t *testing.T) {
	t.Helper()
	if o.exit != 0 || o.stdout != "" {
		t.Errorf("exit %d, stdout %q, stderr %q; want success and no output", o.exit, o.stdout, o.stderr)
	}
}

// addresses returns the addresses of a result of any version: "10.0.0.2/24 fd00::2/64".
func (o outcome) addresses() (string, error) {
	if o.exit != 0 {
		return "", fmt.Errorf("exit %d: %s %s", o.exit, o.stdout, o.stderr)
	}
	var r struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
		IP4 *struct {
			IP string `json:"ip"`
		} `json:"ip4"`
		IP6 *struct {
			IP string `json:"ip"`
		} `json:"ip6"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		return "", err
	}
	var all []string
	for _, ip := range r.IPs {
		all = append(all, ip.Address)
	}
	if r.IP4 != nil {
		all = append(all, r.IP4.IP)
	}
	if r.IP6 != nil {
		all = append(all, r.IP6.IP)
	}
	return strings.Join(all, " "), nil
}

// add runs an ADD that has to succeed and returns its addresses.
func (n *network) add(container string) string {
	n.t.Helper()
	return n.addBy(n.call("ADD", container))
}

// insist adds as a runtime does, and returns the addresses: an ADD that is told to try
// again is made again, for a minute, since on a machine that is busy an agent may not
// have leased in time what many want at once.
func (n *network) insist(t *testing.T, container string) (addresses string, err error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		o := n.call("ADD", container).run(t)
		if addresses, err = o.addresses(); err == nil || time.Now().After(deadline) {
			return addresses, err
		}
		var e cniError
		if json.Unmarshal([]byte(o.stdout), &e) != nil || e.Code != 11 {
			return "", err
		}
		t.Logf("ADD of %s is made again: %v", container, err)
	}
}

func (n *network) addBy(c call) string {
	n.t.Helper()
	got, err := c.run(n.t).addresses()
	if err != nil {
		n.t.Fatalf("ADD of %s %s: %v", c.env["CNI_CONTAINERID"], c.env["CNI_IFNAME"], err)
	}
	return got
}

// del runs a DEL that has to succeed.
func (n *network) del(container string) {
	n.t.Helper()
	n.call("DEL", container).run(n.t).wantQuiet(n.t)
}

// ledger keeps the one rule over every answer of a test: an address has at most
// one holder.
type ledger struct {
	t      *testing.T
	mu     sync.Mutex
	holder map[string]string // guarded by mu; address to container
}

func newLedger(t *testing.T) *ledger { return &ledger{t: t, holder: map[string]string{}} }

// added notes an answer.
func (l *ledger) added(addresses, container string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range strings.FieldsSeq(addresses) {
		if was, ok := l.holder[a]; ok && was != container {
			l.t.Errorf("%s is given to %s while %s has it", a, container, was)
		}
		l.holder[a] = container
	}
}

// deleting notes that others may have what the container has: call it before
// the DEL.
func (l *ledger) deleting(container string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.holder, func(_, holder string) bool { return holder == container })
}
