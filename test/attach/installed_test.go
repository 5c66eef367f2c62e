package attach_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
)

// An installing node is one whose agent, the program itself, keeps the meta-plugin's
// configuration in the runtime's directory. The default network's lies in another one.
type installing struct {
	*node
	program *fleet.Node
	source  string // what is to be installed
	dir     string // the runtime's
	cni     *cninet.Runtime
	changes *os.File // of dir, as the kernel tells them
}

func newInstalling(c realCluster, name string) *installing {
	t := c.t
	t.Helper()
	n := &installing{node: newNode(t)}
	n.stop() // the program answers instead
	n.source, n.dir = n.path("source.conflist"), n.path("net.d")
	must(t, os.Mkdir(n.dir, 0o755))
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	n.changes = os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { must(t, n.changes.Close()) })
	_, err = unix.InotifyAddWatch(fd, n.dir, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE)
	must(t, err)

	path, err := programs.Build(t.Context(), n.path(), "tenured")
	must(t, err)
	p := fleet.Program{Path: path, Kubeconfig: n.path("kubeconfig")}
	must(t, c.Kubeconfig(p.Kubeconfig))
	f := fleet.New(t, c.Config())
	f.Change = func(c *daemon.Config) {
		c.Ready = ready.DefaultConfig()
		c.Ready.Source, c.Ready.Dir = n.source, n.dir
	}
	n.program = f.LaunchProcess(p, name)
	n.program.AwaitServing()
	n.config["socket"] = n.program.Socket()
	n.cni = cninet.NewRuntime(pluginDirs, n.path("cache"))
	return n
}

// offer has the agent install the node's configuration with this default network, and
// returns the text.
func (n *installing) offer(defaultNetwork string) string {
	n.t.Helper()
	plugin := maps.Clone(n.config)
	plugin["defaultNetwork"] = defaultNetwork
	delete(plugin, "name")
	delete(plugin, "cniVersion")
	text := encoded(n.t, map[string]any{"cniVersion": n.config["cniVersion"], "name": n.config["name"], "plugins": []any{plugin}})
	must(n.t, os.WriteFile(n.source+".new", text, 0o600))
	must(n.t, os.Rename(n.source+".new", n.source))
	return string(text)
}

// installed is the file in the runtime's directory.
func (n *installing) installed() string { return filepath.Join(n.dir, "00-tenure.conflist") }

// stays waits until the agent has looked and found the default network not ready for this
// reason, and fails the test if the runtime has a file then.
func (n *installing) stays(reason string) {
	n.t.Helper()
	fleet.Eventually(n.t, waitLimit, func() error {
		if log := n.program.Log(); !strings.Contains(log, "not ready: "+reason) {
			return fmt.Errorf("the agent does not say %q", reason)
		}
		return nil
	})
	if entries, err := os.ReadDir(n.dir); err != nil || len(entries) > 0 {
		n.t.Errorf("%s: the runtime's directory has %v, %v; want nothing", reason, entries, err)
	}
}

// becomes waits until the runtime's file is text, or gone if that is empty.
func (n *installing) becomes(text string) {
	n.t.Helper()
	fleet.Eventually(n.t, waitLimit, func() error {
		got, err := os.ReadFile(n.installed())
		if (err == nil) != (text != "") || string(got) != text {
			return fmt.Errorf("the runtime's file is %q, %v; want %q", got, err, text)
		}
		return nil
	})
}

// history is what has happened in the runtime's directory to files that it reads.
func (n *installing) history() (all []string) {
	n.t.Helper()
	buf := make([]byte, 1<<16)
	size, err := unix.Read(int(n.changes.Fd()), buf)
	must(n.t, err)
	names := map[uint32]string{
		unix.IN_CREATE: "created", unix.IN_MODIFY: "written", unix.IN_MOVED_TO: "renamed to", unix.IN_MOVED_FROM: "renamed from", unix.IN_DELETE: "removed",
	}
	for buf = buf[:size]; len(buf) > 0; {
		mask, length := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[12:])
		name := string(bytes.TrimRight(buf[16:16+length], "\x00"))
		if slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(name)) {
			all = append(all, names[mask]+" "+name)
		}
		buf = buf[16+length:]
	}
	return all
}

// newPod makes a pod of the node, and returns its attachment as the runtime makes it.
func (n *installing) newPod(c realCluster, namespace, name, networks string) cninet.Attachment {
	n.t.Helper()
	_, s := c.pod(namespace, name, n.program.Name, networks)
	at := cninet.Attachment{ContainerID: "c-" + name, NS: netns(n.t, name), IfName: "eth0"}
	for pair := range strings.SplitSeq(s.args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		at.Args = append(at.Args, [2]string{key, value})
	}
	return at
}

// unavailable fails the test unless the plugin answers STATUS that it cannot be used.
func (n *installing) unavailable(conf string) {
	n.t.Helper()
	err := n.cni.Status(n.t.Context(), conf)
	if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != types.ErrPluginNotAvailable {
		n.t.Errorf("STATUS: %v; want code 50", err)
	}
}

// TestInstalledWhileTheDefaultNetworkIsReady (N69, N70, N72) has the agent's program wait for the
// default network, by its readiness file and by its configuration, which is not in the
// runtime's directory. Not before the runtime finds the plugin's, whole, and from then on
// pods are attached and reach their network.
func TestInstalledWhileTheDefaultNetworkIsReady(t *testing.T) {
	c := useCluster(t)
	n := newInstalling(c, "installing")
	base, indicator := n.path("conf", "10-base.conflist"), n.path("ready")
	n.config["readinessindicatorfile"] = indicator
	ours := n.offer(base)
	n.stays("stat " + indicator)
	n.unavailable(ours)
	must(t, os.WriteFile(indicator, nil, 0o600))
	n.stays(base + ": no such file or directory")
	n.unavailable(ours)
	n.onDisk("10-base.conflist", `{"cniVersion":"1.0.0","name":"base","plugins":[`) // as somebody writes it in place
	n.stays(base + ": not a CNI configuration")
	n.onDisk("10-base.conflist", n.bridge("base", 6, true))
	n.becomes(ours)

	must(t, n.cni.Status(t.Context(), ours))
	namespace := c.namespace()
	at := n.newPod(c, namespace, "p", "")
	_, err := n.cni.Add(t.Context(), ours, at)
	must(t, err)
	must(t, at.NS.Ping(t.Context(), netip.MustParseAddr("10.6.0.1")))
	must(t, n.cni.Del(t.Context(), ours, at))

	must(t, os.Remove(base))
	n.becomes("")
	n.unavailable(ours)

	// A definition that there is not yet.
	ours = n.offer(namespace + "/base")
	n.stays("there is no NetworkAttachmentDefinition " + namespace + "/base")
	c.define(namespace, "base", n.bridge("base", 6, true))
	n.becomes(ours)
	n.program.Stop() // an agent that is upgraded leaves its node ready
	n.becomes(ours)
	want := []string{"renamed to 00-tenure.conflist", "removed 00-tenure.conflist", "renamed to 00-tenure.conflist"}
	if got := n.history(); !slices.Equal(got, want) {
		t.Errorf("in the runtime's directory: %q; want %q", got, want)
	}
}
