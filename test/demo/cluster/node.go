package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
)

// A node is a Node object, its agent, and the host's side of its pods' network:
// a network namespace with a bridge.
type node struct {
	name  string
	index int
	dir   string // of its files
	agent *process.Process
	host  cninet.NS
	files cninet.Files // its own /run/tenure, /var/lib and so on
	cni   *cninet.Runtime
}

// bridgeName is the bridge of every node, uplink the port that leads to the other
// one. A second cable leads from port to port of the other name.
const (
	bridgeName = "br-lan"
	uplink     = "uplink"
	secondPort = "eth1"
)

// Directories as a node's own programs see them: each node has another one there.
const (
	nodeRun = "/run/tenure"
	nodeLib = "/var/lib"
	nodeCNI = "/run/cni"
)

// Files in nodeCNI.
const (
	attachSource = "tenure.conflist"             // what the agent installs
	attachConf   = "net.d/00-tenure.conflist"    // where it does: what the runtime reads
	podsConf     = "networks/10-pods.conflist"   // the default network
	podsLeases   = "cni/networks/" + podsNetwork // in nodeLib: what its IPAM plugin has given out
)

// The default network, which is none of Tenure's business.
const (
	podsNetwork = "pods"
	podsBridge  = "br-pods"
	podsConfig  = `{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "br-pods", "isGateway": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`
)

// attachConfig is what the runtime runs for every pod.
const attachConfig = `{
  "cniVersion": "1.0.0", "name": "tenure",
  "plugins": [{
    "type": "tenure-attach",
    "confDir": "` + nodeCNI + `/networks", "defaultNetwork": "` + nodeCNI + "/" + podsConf + `"
  }]
}`

// Paths as the demo sees them.
func (n *node) lib(path string) string { return filepath.Join(n.dir, "lib", path) }
func (n *node) etc(path string) string { return filepath.Join(n.dir, "cni", path) }
func (n *node) journal() string        { return n.lib("tenure/journal") }
func (n *node) store() string          { return n.lib("tenure/agent/store.db") }

// startNode makes the i-th node and starts its agent. The agent's token is bound
// to the Node, as the token of a DaemonSet's pod is to the pod on it.
func (d *demo) startNode(ctx context.Context, bin string, i int) *node {
	name := "node-" + string(rune('a'+i))
	n := &node{name: name, index: i, dir: filepath.Join(workDir, name)}
	d.Must(n.makeFiles())
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.Must(d.Client.Create(ctx, object))
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "DemoSaysSo"}}
	d.Must(d.Client.Status().Update(ctx, object))
	kubeconfig := filepath.Join(n.dir, "tenured.kubeconfig")
	bound := &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: object.UID}
	d.account(ctx, "tenured", kubeconfig, bound)
	var err error
	n.host, err = cninet.Make("host-" + name)
	d.Must(err)
	d.Must(n.host.Bridge(podsBridge))
	n.cni = cninet.NewRuntime([]string{filepath.Join(bin, "rig"), bin}, filepath.Join(nodeLib, "cni"))
	n.cni.Host, n.cni.Files = n.host, n.files
	a := agent.DefaultConfig(protocol.NodeName(name))
	// A minute and half a minute in production: too long to watch.
	a.Machine, a.Idle, a.PublishEvery = "machine-of-"+name, 3*time.Second, time.Second
	c := daemon.Config{Agent: a, Listen: fmt.Sprintf("127.0.0.1:%d", 9471+i), Ready: ready.Config{
		Source: filepath.Join(nodeCNI, attachSource), Dir: filepath.Join(nodeCNI, filepath.Dir(attachConf)),
	}}
	p := fleet.Program{Path: filepath.Join(bin, "tenured"), Kubeconfig: kubeconfig, Exec: func(cmd *exec.Cmd) error { return n.files.Do(cmd.Start) }}
	n.agent = p.Agent(c, filepath.Join(n.dir, "tenured.log"), "--multi-network")
	n.agent.Ready = fleet.Ready(c.Listen) // its socket is seen from its own view of the files alone
	d.Step(n.agent.Name+", as its service account", func() error { return n.agent.Start(ctx) })
	return n
}

// makeFiles makes the node's directories, and has its programs see them where every
// node has them.
func (n *node) makeFiles() (err error) {
	for _, dir := range []string{n.dir, filepath.Join(n.dir, "run"), n.lib(""), n.etc(filepath.Dir(attachConf)), n.etc(filepath.Dir(podsConf))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(n.etc(attachSource), []byte(attachConfig), 0o600); err != nil {
		return err
	}
	n.files, err = cninet.MakeFiles(map[string]string{nodeRun: filepath.Join(n.dir, "run"), nodeLib: n.lib(""), nodeCNI: n.etc("")})
	return err
}

// makeReady gives the nodes their default network, as a network's own agent does, and
// waits until Tenure's have installed the meta-plugin's configuration: not before.
func (d *demo) makeReady(ctx context.Context) {
	nodes := []*node{d.nodeA, d.nodeB}
	for _, n := range nodes {
		if _, err := os.Stat(n.etc(attachConf)); !errors.Is(err, os.ErrNotExist) {
			d.Fail("%s has a configuration for the runtime before it has a default network: %w", n.name, err)
		}
		d.Must(os.WriteFile(n.etc(podsConf), fmt.Appendf(nil, podsConfig, n.index), 0o600))
	}
	d.Await(ctx, "the agents install the configuration of tenure-attach", func(context.Context) error {
		for _, n := range nodes {
			_, err := n.configuration()
			if errors.Is(err, os.ErrNotExist) {
				return errors.New(n.name + " has none")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	d.OK("The nodes' default network is there, and so the agents have installed the configuration of the meta-plugin tenure-attach.")
}

// configuration returns what the container runtime finds on the node.
func (n *node) configuration() (string, error) {
	text, err := os.ReadFile(n.etc(attachConf))
	return string(text), err
}

// connect makes the bridges of two nodes one L2 segment, and gives them a second
// cable.
func connect(a, b *node) error {
	return errors.Join(cninet.Veth(a.host, uplink, b.host, uplink), cninet.Veth(a.host, secondPort, b.host, secondPort),
		a.host.Bridge(bridgeName, uplink), b.host.Bridge(bridgeName, uplink))
}

// tookIn returns how long the agent took to answer the ADDs of a sandbox: what it
// has logged. ok is false if the log does not say.
func (n *node) tookIn(sandbox string) (took time.Duration, ok bool) {
	text, err := os.ReadFile(n.agent.Log)
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var l struct {
			Verb, Sandbox string
			Took          time.Duration
		}
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.Verb == "ADD" && l.Sandbox == sandbox {
			took, ok = took+l.Took, true
		}
	}
	return took, ok
}
