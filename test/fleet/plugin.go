package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/programs"
)

// Delegate is the type of a CNI plugin that a [Runtime] has: it attaches nothing and
// says that it has.
const Delegate = "delegate"

const delegateProgram = `#!/bin/sh
cat >/dev/null
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion":"1.0.0","interfaces":[{"name":"veth0"},{"name":"'$CNI_IFNAME'","mac":"02:00:00:00:00:01","sandbox":"'$CNI_NETNS'"}],"ips":[{"interface":1,"address":"192.0.2.7/24"}],"dns":{"domain":"example.org"}}'
`

// A Runtime runs tenure-attach as a container runtime does, beside a node's agent. The
// cluster's default network is one of [Delegate].
type Runtime struct {
	// Further keys of the plugin's configuration.
	Further map[string]any

	t         testing.TB
	path, dir string
	socket    string
	netns     cninet.NS
}

// NewRuntime builds the plugin and returns a runtime with one network namespace, which
// is removed after the test.
func NewRuntime(t testing.TB, n *Node) *Runtime {
	t.Helper()
	dir := t.TempDir()
	path, err := programs.Build(t.Context(), dir, "tenure-attach")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, Delegate), []byte(delegateProgram), 0o700); err != nil {
		t.Fatal(err)
	}
	ns, err := cninet.Make("runtime-" + n.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			t.Error(err)
		}
	})
	return &Runtime{t: t, path: path, dir: dir, socket: n.Socket(), netns: ns}
}

// Call makes one call for a sandbox of a pod, and returns what the plugin prints: a
// result, or with an error what is wrong. A minute bounds it.
func (r *Runtime) Call(verb, container string, pod *corev1.Pod) (string, error) {
	r.t.Helper()
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": "tenure", "type": "tenure-attach", "socket": r.socket, "binDir": r.dir,
		"stateDir": filepath.Join(r.dir, "state"), "confDir": filepath.Join(r.dir, "conf"),
		"defaultNetwork": map[string]any{"cniVersion": "1.0.0", "name": "base", "type": Delegate},
	}
	maps.Copy(conf, r.Further)
	stdin, err := json.Marshal(conf)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.path)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container, "CNI_NETNS="+r.netns.Path(), "CNI_IFNAME=eth0", "CNI_PATH="+r.dir,
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", pod.Namespace, pod.Name, pod.UID))
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	return string(out), err
}
