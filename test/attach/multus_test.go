package attach_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// multus is a configuration as Multus's own DaemonSet writes it, and people do by hand:
// but for its type, none of it is Tenure's. What of these keys has no effect may be there.
func (n *node) multus(further map[string]any) map[string]any {
	c := map[string]any{
		"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "tenure-attach", "capabilities": map[string]bool{"portMappings": true},
		"kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig", "cniDir": "/var/lib/cni/multus", "logFile": "/var/log/multus.log", "logLevel": "verbose",
		"logToStderr": true, "logOptions": map[string]any{"maxAge": 5}, "retryDeleteOnError": true, "socketDir": "/host/run/multus/", "daemonSocketDir": "/run/multus/socket",
		"confDir": n.path("conf"), "binDir": pluginDirs[0],
	}
	maps.Copy(c, further)
	// A test's node has these two elsewhere.
	c["socket"], c["stateDir"] = n.path("agent.sock"), n.path("state")
	return c
}

// TestMultusConfiguration: each of Multus's keys does what it does there, or is refused
// by name.
func TestMultusConfiguration(t *testing.T) {
	type keys = map[string]any
	n := newNode(t)
	n.define("kube-system", "flat", n.recorder("flat", nil))
	n.define("multus", "flat", n.recorder("multus-flat", nil))
	n.define("kube-system", "lan", n.recorder("lan", nil))
	n.define("ns", "a", n.recorder("a", nil))
	n.define("default", "shared", n.recorder("shared", nil))
	n.define("other", "c", n.recorder("c", nil))
	n.onDisk("10-flannel.conflist", n.recorder("cbr0", nil))
	path, count := n.path("conf", "10-flannel.conflist"), 0
	elsewhere := n.plugin(nil)
	elsewhere["type"], elsewhere["name"], elsewhere["cniVersion"] = "elsewhere", "first", "0.4.0"
	must(t, os.Symlink(filepath.Join(pluginDirs[0], "recorder"), n.path("elsewhere")))
	for name, tt := range map[string]struct {
		keys               keys
		namespace, selects string // of the pod; ns if empty
		calls              []string
		refused            string // and then there are no calls
	}{
		"clusterNetwork, a path":             {keys: keys{"clusterNetwork": path}, calls: []string{"cbr0 eth0"}},
		"clusterNetwork, a directory":        {keys: keys{"clusterNetwork": n.path("conf")}, calls: []string{"cbr0 eth0"}},
		"clusterNetwork, a name in confDir":  {keys: keys{"clusterNetwork": "cbr0"}, calls: []string{"cbr0 eth0"}},
		"clusterNetwork, a definition":       {keys: keys{"clusterNetwork": "flat"}, calls: []string{"flat eth0"}},
		"multusNamespace":                    {keys: keys{"clusterNetwork": "flat", "multusNamespace": "multus"}, calls: []string{"multus-flat eth0"}},
		"clusterNetwork, of no network":      {keys: keys{"clusterNetwork": "none"}, refused: "clusterNetwork: none names neither"},
		"defaultNetworks":                    {keys: keys{"clusterNetwork": path, "defaultNetworks": []string{"lan", "flat@lan7"}}, selects: "a", calls: []string{"cbr0 eth0", "lan net2", "flat lan7", "a net1"}},
		"defaultNetworks, a system pod":      {keys: keys{"clusterNetwork": path, "defaultNetworks": []string{"lan"}}, namespace: "kube-system", calls: []string{"cbr0 eth0"}},
		"systemNamespaces":                   {keys: keys{"clusterNetwork": path, "defaultNetworks": []string{"lan"}, "systemNamespaces": []string{"ns"}}, selects: "a", calls: []string{"cbr0 eth0", "a net1"}},
		"systemNamespaces, others no longer": {keys: keys{"clusterNetwork": path, "defaultNetworks": []string{"lan"}, "systemNamespaces": []string{"ns"}}, namespace: "kube-system", calls: []string{"cbr0 eth0", "lan net1"}},
		"delegates":                          {keys: keys{"delegates": []any{n.recorder("first", nil), n.recorder("second", nil)}}, selects: "a", calls: []string{"first eth0", "second net2", "a net1"}},
		"delegates, a system pod":            {keys: keys{"delegates": []any{n.recorder("first", nil), n.recorder("second", nil)}}, namespace: "kube-system", calls: []string{"first eth0", "second net1"}},
		"no isolation":                       {keys: keys{"clusterNetwork": path}, selects: "other/c@x0", calls: []string{"cbr0 eth0", "c x0"}},
		"namespaceIsolation":                 {keys: keys{"clusterNetwork": path, "namespaceIsolation": true}, selects: "other/c", refused: "network other/c: namespaces are isolated"},
		"namespaceIsolation, as text":        {keys: keys{"clusterNetwork": path, "namespaceIsolation": "true"}, refused: "namespaceIsolation"},
		"namespace default is global":        {keys: keys{"clusterNetwork": path, "namespaceIsolation": true}, selects: "default/shared", calls: []string{"cbr0 eth0", "shared net1"}},
		"globalNamespaces":                   {keys: keys{"clusterNetwork": path, "namespaceIsolation": true, "globalNamespaces": "x, other"}, selects: "other/c", calls: []string{"cbr0 eth0", "c net1"}},
		"globalNamespaces, default is not":   {keys: keys{"clusterNetwork": path, "namespaceIsolation": true, "globalNamespaces": "other"}, selects: "default/shared", refused: "network default/shared: namespaces are isolated"},
		"binDir":                             {keys: keys{"delegates": []any{elsewhere}, "binDir": n.dir}, calls: []string{"first eth0"}},
		"confDir, its default":               {keys: keys{"clusterNetwork": "cbr0", "confDir": nil}, refused: "/etc/cni/multus/net.d"},
		"readinessindicatorfile":             {keys: keys{"clusterNetwork": path, "readinessindicatorfile": path}, calls: []string{"cbr0 eth0"}},
		"auxiliaryCNIChainName":              {keys: keys{"clusterNetwork": path, "auxiliaryCNIChainName": "chain"}, refused: `auxiliaryCNIChainName: not supported ("chain")`},
		"misspelt":                           {keys: keys{"clusterNetwork": path, "namespaceIsoltion": true}, refused: "namespaceIsoltion: not supported (true): no such key"},
		"no default network":                 {refused: "defaultNetwork: missing"},
		"two of them":                        {keys: keys{"clusterNetwork": path, "delegates": []any{n.recorder("first", nil)}}, refused: "clusterNetwork, delegates: all of them"},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			n.config = n.multus(tt.keys)
			// Its own: what fails in one case must not in the next.
			s := sandboxOf{pod: "p", container: fmt.Sprintf("c%d", count)}
			count++
			n.records()
			n.selects("p", tt.selects)
			if tt.namespace != "" {
				s.args = "K8S_POD_NAMESPACE=" + tt.namespace + ";K8S_POD_NAME=p;K8S_POD_UID=u"
			}
			if tt.refused != "" {
				n.fails("ADD", s, tt.refused)
				n.called()
				return
			}
			n.ok("ADD", s)
			var adds, dels []string
			for _, c := range tt.calls {
				adds, dels = append(adds, "ADD "+c), append([]string{"DEL " + c}, dels...)
			}
			n.called(adds...)
			n.ok("DEL", s)
			n.called(dels...)
		})
	}
}
