package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/test/cninet"
)

// A node is a Node object, its agent, and the host's side of its pods' network:
// a network namespace with a bridge.
type node struct {
	name  string
	dir   string // of its files
	agent *program
	host  cninet.NS
	cni   *cninet.Runtime
}

// bridgeName is the bridge of every node, uplink the port that leads to the other.
const (
	bridgeName = "br-lan"
	uplink     = "uplink"
)

func (n *node) socket() string  { return filepath.Join(n.dir, "agent.sock") }
func (n *node) journal() string { return filepath.Join(n.dir, "journal") }
func (n *node) store() string   { return filepath.Join(n.dir, "store.db") }

// startNode makes the i-th node and starts its agent. The agent's token is bound
// to the Node, as the token of a DaemonSet's pod is to the pod on it.
func (d *demo) startNode(ctx context.Context, bin string, i int) (*node, error) {
	name := "node-" + string(rune('a'+i))
	n := &node{name: name, dir: filepath.Join(workDir, name)}
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return nil, err
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := d.kube.Create(ctx, object); err != nil {
		return nil, err
	}
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "DemoSaysSo"}}
	if err := d.kube.Status().Update(ctx, object); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(n.dir, "tenured.kubeconfig")
	bound := &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: object.UID}
	if err := d.account(ctx, "tenured", kubeconfig, bound); err != nil {
		return nil, err
	}
	var err error
	if n.host, err = cninet.Make("host-" + name); err != nil {
		return nil, err
	}
	n.cni = cninet.NewRuntime([]string{filepath.Join(bin, "rig"), bin}, filepath.Join(n.dir, "cni-cache"))
	n.cni.Host = n.host
	listen := fmt.Sprintf("127.0.0.1:%d", 9471+i)
	n.agent = &program{
		name: "tenured on " + name, path: filepath.Join(bin, "tenured"), log: filepath.Join(n.dir, "tenured.log"), listen: listen,
		args: []string{
			"--node=" + name, "--kubeconfig=" + kubeconfig, "--machine-id=machine-of-" + name,
			"--store=" + n.store(), "--socket=" + n.socket(), "--journal=" + n.journal(), "--listen=" + listen,
			// A minute and half a minute in production: too long to watch.
			"--idle=3s", "--publish-every=1s",
		},
	}
	return n, d.screen.step(n.agent.name+", as its service account", func(func(string)) error { return n.agent.start(ctx) })
}

// connect makes the bridges of two nodes one L2 segment.
func connect(a, b *node) error {
	for _, n := range []*node{a, b} {
		err := n.host.Do(func() error {
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
			if err := netlink.LinkAdd(bridge); err != nil {
				return err
			}
			link, err := netlink.LinkByName(bridgeName)
			if err != nil {
				return err
			}
			// A MAC that was set stays; one that was not follows the ports, and CHECK
			// does not like that.
			if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
				return err
			}
			return netlink.LinkSetUp(link)
		})
		if err != nil {
			return fmt.Errorf("make %s of %s: %w", bridgeName, n.name, err)
		}
	}
	if err := cninet.Veth(a.host, uplink, b.host, uplink); err != nil {
		return err
	}
	for _, n := range []*node{a, b} {
		err := n.host.Do(func() error {
			port, err := netlink.LinkByName(uplink)
			if err != nil {
				return err
			}
			bridge, err := netlink.LinkByName(bridgeName)
			if err != nil {
				return err
			}
			return netlink.LinkSetMaster(port, bridge)
		})
		if err != nil {
			return fmt.Errorf("plug the cable into %s of %s: %w", bridgeName, n.name, err)
		}
	}
	return nil
}

// config returns a network's configuration for this node. On one machine the two
// agents cannot both be at the path where every node has its own, so their
// sockets and journals are named.
func (n *node) config(network string) (string, error) {
	var list map[string]any
	if err := json.Unmarshal([]byte(network), &list); err != nil {
		return "", err
	}
	plugins, _ := list["plugins"].([]any)
	for _, p := range plugins {
		plugin, _ := p.(map[string]any)
		if ipam, ok := plugin["ipam"].(map[string]any); ok {
			ipam["socket"], ipam["journalDir"] = n.socket(), n.journal()
		}
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// tookIn returns how long the agent took to answer the ADD of a sandbox: what it
// has logged. ok is false if the log does not say.
func (n *node) tookIn(sandbox string) (took time.Duration, ok bool) {
	text, err := os.ReadFile(n.agent.log)
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
			took, ok = l.Took, true
		}
	}
	return took, ok
}
