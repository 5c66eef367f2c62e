package cninet_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(sandbox.Options{}, m.Run))
}

const bridge = `{
	"cniVersion": "1.1.0", "name": "net", "plugins": [{
		"type": "bridge", "bridge": "br0", "isGateway": true,
		"ipam": {
			"type": "host-local", "dataDir": "/run/host-local",
			"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]],
			"routes": [{"dst": "10.9.0.0/16"}]
		}
	}]
}`

// macvlan is the configuration of one plugin, not a list.
const macvlan = `{
	"cniVersion": "1.1.0", "name": "lan", "type": "macvlan", "master": "parent0", "mode": "bridge",
	"ipam": {"type": "host-local", "dataDir": "/run/host-local", "ranges": [[{"subnet": "10.2.0.0/24"}]]}
}`

var compareAddresses = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmpopts.SortSlices(func(a, b cninet.Route) int { return a.Dst.Compare(b.Dst) }),
}

func TestBridge(t *testing.T) {
	ctx := t.Context()
	rt := newRuntime(t)
	a := attachment(t, "a", "net1")
	b := attachment(t, "b", "net1")

	added, err := rt.Add(ctx, bridge, a)
	if err != nil {
		t.Fatal(err)
	}
	want := prefixes("10.1.0.2/24", "fd00:1::2/64")
	if diff := cmp.Diff(want, cninet.Addresses(added), compareAddresses); diff != "" {
		t.Errorf("addresses of ADD's result (-want +got):\n%s", diff)
	}
	got, err := a.NS.Addrs("net1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compareAddresses); diff != "" {
		t.Errorf("addresses of the interface (-want +got):\n%s", diff)
	}
	routes, err := a.NS.Routes()
	if err != nil {
		t.Fatal(err)
	}
	wantRoutes := []cninet.Route{
		{Dst: netip.MustParsePrefix("10.1.0.0/24"), Interface: "net1"},
		{Dst: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("10.1.0.1"), Interface: "net1"},
		{Dst: netip.MustParsePrefix("fd00:1::/64"), Interface: "net1"},
	}
	if diff := cmp.Diff(wantRoutes, routes, compareAddresses); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}

	if _, err := rt.Add(ctx, bridge, b); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"10.1.0.3", "fd00:1::3", "10.1.0.1"} {
		reaches(t, a.NS, to)
	}
	reaches(t, cninet.NS{}, "10.1.0.2")
	reachesNot(t, a.NS, "10.1.0.99")
	reachesNot(t, a.NS, "192.0.2.1") // no route

	if err := rt.Check(ctx, bridge, a); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := rt.Status(ctx, bridge); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	if err := rt.Del(ctx, bridge, b); err != nil {
		t.Fatal(err)
	}
	if ok, err := b.NS.HasInterface("net1"); ok || err != nil {
		t.Errorf("interface after DEL: %v, %v; want none", ok, err)
	}
	reachesNot(t, a.NS, "10.1.0.3")
	if err := rt.GC(ctx, bridge); err != nil {
		t.Errorf("GC: %v", err)
	}
}

func TestMacvlan(t *testing.T) {
	ctx := t.Context()
	rt := newRuntime(t)
	lan, err := cninet.Make("lan")
	if err != nil {
		t.Fatal(err)
	}
	if err := cninet.Veth(cninet.NS{}, "parent0", lan, "eth0"); err != nil {
		t.Fatal(err)
	}
	a, b := attachment(t, "a", "net1"), attachment(t, "b", "net1")
	for _, x := range []cninet.Attachment{a, b} {
		if _, err := rt.Add(ctx, macvlan, x); err != nil {
			t.Fatal(err)
		}
	}
	reaches(t, a.NS, "10.2.0.3")
}

func TestPluginsRunInTheHostsNamespace(t *testing.T) {
	host, err := cninet.Make("host")
	if err != nil {
		t.Fatal(err)
	}
	rt := newRuntime(t)
	rt.Host = host
	if _, err := rt.Add(t.Context(), bridge, attachment(t, "c", "net1")); err != nil {
		t.Fatal(err)
	}
	if ok, err := host.HasInterface("br0"); !ok || err != nil {
		t.Errorf("bridge in the host's namespace: %v, %v; want one", ok, err)
	}
}

func TestErrorsOfPluginsKeepTheirCode(t *testing.T) {
	rt := newRuntime(t)
	_, err := rt.Add(t.Context(), `{"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "mode": "no such mode"}`, attachment(t, "d", "net1"))
	if _, ok := errors.AsType[*types.Error](err); !ok {
		t.Errorf("ADD: %v (%T); want the plugin's error", err, err)
	}
	_, err = rt.Add(t.Context(), `{"plugins": `, attachment(t, "e", "net1"))
	if err == nil {
		t.Error("ADD with half a configuration succeeds; want an error")
	}
}

func TestDeletedNamespaceIsGone(t *testing.T) {
	ns, err := cninet.Make("gone")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ns.Interfaces(); err != nil || len(got) != 1 || got[0] != "lo" {
		t.Errorf("interfaces of a new namespace: %v, %v; want lo", got, err)
	}
	if err := ns.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ns.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s: %v; want no such file", ns.Path(), err)
	}
	if _, err := ns.Interfaces(); err == nil {
		t.Error("a deleted namespace can be entered")
	}
}

// TestFiles: two views have files of their own at one path, in processes as well,
// and network namespaces in common.
func TestFiles(t *testing.T) {
	common := t.TempDir()
	var views []cninet.Files
	for _, name := range []string{"a", "b"} {
		own := t.TempDir()
		if err := os.WriteFile(filepath.Join(own, "name"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := cninet.MakeFiles(map[string]string{common: own})
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, f)
	}
	ns, err := cninet.Make("later")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a", "b"} {
		err := views[i].Do(func() error {
			seen, err := exec.CommandContext(t.Context(), "cat", filepath.Join(common, "name")).Output()
			if string(seen) != want {
				t.Errorf("a process of view %s reads %q", want, seen)
			}
			// A namespace that is not mounted is an empty file.
			return errors.Join(err, exec.CommandContext(t.Context(), "nsenter", "--net="+ns.Path(), "true").Run())
		})
		if err != nil {
			t.Errorf("in view %s: %v", want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(common, "name")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("outside of the views: %v; want no such file", err)
	}
	if err := ns.Delete(); err != nil {
		t.Error(err)
	}
}

func newRuntime(t *testing.T) *cninet.Runtime {
	t.Helper()
	bin, err := programs.RigDir()
	if err != nil {
		t.Fatal(err)
	}
	return cninet.NewRuntime([]string{bin}, t.TempDir())
}

// attachment is one interface of a container with a namespace of its own, which
// lasts as long as the test.
func attachment(t *testing.T, container, ifName string) cninet.Attachment {
	t.Helper()
	ns, err := cninet.Make(container)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			t.Error(err)
		}
	})
	return cninet.Attachment{ContainerID: container, NS: ns, IfName: ifName}
}

func reaches(t *testing.T, from cninet.NS, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := from.Ping(ctx, netip.MustParseAddr(to)); err != nil {
		t.Error(err)
	}
}

func reachesNot(t *testing.T, from cninet.NS, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := from.Ping(ctx, netip.MustParseAddr(to)); err == nil {
		t.Errorf("%s answers a ping from %s; want no answer", to, from.Path())
	}
}

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}
