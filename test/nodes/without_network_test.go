package nodes_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
)

// hosts are two nodes with a network namespace each, whose uplinks are joined.
type hosts struct {
	t      *testing.T
	fleet  *fleet.Fleet
	plugin string // the directory of the tenure plugin
	rig    string // that of the reference plugins
	nodes  map[string]*host
}

type host struct {
	node *fleet.Node
	ns   cninet.NS
	rt   *cninet.Runtime
}

func newHosts(t *testing.T, names ...string) *hosts {
	t.Helper()
	bin := t.TempDir()
	if _, err := programs.Build(t.Context(), bin, "tenure"); err != nil {
		t.Fatal(err)
	}
	rig, err := programs.RigDir()
	if err != nil {
		t.Fatal(err)
	}
	h := &hosts{t: t, fleet: newFleet(t), plugin: bin, rig: rig, nodes: map[string]*host{}}
	for _, name := range names {
		ns, err := cninet.Make("host-" + name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Delete() })
		rt := cninet.NewRuntime([]string{bin, rig}, t.TempDir())
		rt.Host = ns
		h.nodes[name] = &host{node: h.fleet.Start(name), ns: ns, rt: rt}
	}
	if len(names) == 2 {
		must(t, cninet.Veth(h.nodes[names[0]].ns, "uplink", h.nodes[names[1]].ns, "uplink"))
	}
	return h
}

// conf is a network of one plugin on a node: Tenure hands out the addresses.
func (h *hosts) conf(node, network string, plugin map[string]any, pool string) string {
	h.t.Helper()
	c := h.nodes[node].node.Config()
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": network,
		"ipam": map[string]any{"type": "tenure", "pool": pool, "socket": c.Socket, "journalDir": c.Agent.JournalDir},
	}
	maps.Copy(conf, plugin)
	raw, err := json.Marshal(conf)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(raw)
}

func (h *hosts) attach(node, conf, sandbox string) (cninet.Attachment, []netip.Prefix) {
	h.t.Helper()
	ns, err := cninet.Make(sandbox)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = ns.Delete() }) // a test may have done it
	a := cninet.Attachment{ContainerID: sandbox, NS: ns, IfName: "net1"}
	res, err := h.nodes[node].rt.Add(h.t.Context(), conf, a)
	if err != nil {
		h.t.Fatalf("ADD of %s on %s: %v", sandbox, node, err)
	}
	return a, cninet.Addresses(res)
}

func (h *hosts) ping(from cninet.Attachment, to []netip.Prefix) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	for _, p := range to {
		if err := from.NS.Ping(ctx, p.Addr()); err != nil {
			h.t.Error(err)
		}
	}
}

// TestRealNetworks attaches network namespaces with the bridge and macvlan plugins
// on two nodes of one segment, dual stack, and pings between them.
func TestRealNetworks(t *testing.T) {
	openPool(t, "segment", v1alpha1.Range{CIDR: "10.30.0.0/24", Gateway: "10.30.0.1"}, v1alpha1.Range{CIDR: "fd00:30::/64"})
	for _, tt := range []struct {
		name   string
		plugin map[string]any
		bridge string // made on each node, with the uplink as a port
	}{
		{name: "macvlan", plugin: map[string]any{"type": "macvlan", "master": "uplink"}},
		{name: "bridge", plugin: map[string]any{"type": "bridge", "bridge": "br-lan"}, bridge: "br-lan"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one, two := tt.name+"-1", tt.name+"-2"
			h := newHosts(t, one, two)
			for _, x := range h.nodes {
				if tt.bridge == "" {
					continue
				}
				must(t, x.ns.Bridge(tt.bridge, "uplink"))
			}
			conf1, conf2 := h.conf(one, tt.name, tt.plugin, "segment"), h.conf(two, tt.name, tt.plugin, "segment")
			a, addrsA := h.attach(one, conf1, tt.name+"-a")
			b, addrsB := h.attach(one, conf1, tt.name+"-b")
			c, addrsC := h.attach(two, conf2, tt.name+"-c")
			if len(addrsA) != 2 {
				t.Fatalf("got %v; want IPv4 and IPv6", addrsA)
			}
			h.ping(a, addrsB)
			h.ping(a, addrsC)
			h.ping(c, addrsA)
			for _, x := range []struct {
				node, conf string
				a          cninet.Attachment
			}{{one, conf1, a}, {one, conf1, b}, {two, conf2, c}} {
				rt := h.nodes[x.node].rt
				if err := rt.Check(t.Context(), x.conf, x.a); err != nil {
					t.Errorf("CHECK: %v", err)
				}
				if err := rt.Del(t.Context(), x.conf, x.a); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		})
	}
}

// TestDELWhileAgentIsAway: the runtime is told that the DEL succeeded; the address
// comes back when the agent does.
func TestDELWhileAgentIsAway(t *testing.T) {
	openPool(t, "away", v1alpha1.Range{CIDR: "10.31.0.0/30"})
	h := newHosts(t, "away")
	conf := h.conf("away", "away", map[string]any{"type": "bridge", "bridge": "br-away"}, "away")
	a, first := h.attach("away", conf, "away-a")
	h.nodes["away"].node.Stop()
	if err := h.nodes["away"].rt.Del(t.Context(), conf, a); err != nil {
		t.Fatalf("DEL without an agent: %v", err)
	}
	entries, err := filepath.Glob(filepath.Join(h.nodes["away"].node.Config().Agent.JournalDir, "*"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("the journal has %v, %v; want one entry", entries, err)
	}
	h.fleet.Start("away")
	_, second := h.attach("away", conf, "away-b")
	_, third := h.attach("away", conf, "away-c") // the pool has two addresses: one is the deleted one's
	if second[0] != first[0] && third[0] != first[0] {
		t.Errorf("%v has not come back: got %v and %v", first, second, third)
	}
}
