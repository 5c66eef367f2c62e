package plugin_test

import (
	"strings"
	"testing"
)

// TestDel (C11): the pool has one address of each family, so that each ADD proves
// that the DEL before it freed both.
func TestDel(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/30", "fd00::/126").with(keys{"runtimeConfig": ips("10.0.0.2", "fd00::2")})
		n.del("c1") // before any ADD
		dels := map[string]func(*network, call) call{
			"as it came":       func(_ *network, c call) call { return c },
			"no CNI_NETNS":     func(_ *network, c call) call { return c.set("CNI_NETNS", "") },
			"namespace gone":   func(n *network, c call) call { n.kill(c.env["CNI_CONTAINERID"]); return c },
			"without CNI_ARGS": func(_ *network, c call) call { return c.set("CNI_ARGS", "") },
			"with a prevResult": func(n *network, _ call) call {
				return n.with(keys{"prevResult": keys{"ips": []any{}}}).call("DEL", "c2")
			},
			"edited rubbish": func(n *network, _ call) call {
				return n.with(keys{"ipam.ranges": "?", "ipam.x": 1, "runtimeConfig": 2, "args": 3, "dns": 4}).call("DEL", "c2")
			},
			"in an old version": func(n *network, _ call) call { return n.in("0.1.0").call("DEL", "c2") },
		}
		for name, change := range dels {
			t.Run(name, func(t *testing.T) {
				n := *n
				n.t = t
				n.start("c2")
				n.add("c2")
				change(&n, n.call("DEL", "c2")).run(t).wantQuiet(t)
			})
		}
		for range 3 {
			n.del("c2")
		}
		n.add("c3")
		n.del("c2") // not its address any more
		n.call("ADD", "c4").run(t).wantError(t, 11, "10.0.0.2")
	})
}

// attach starts containers and adds them to n.
func (n *network) attach(containers ...string) {
	n.t.Helper()
	n.start(containers...)
	for _, c := range containers {
		n.add(c)
	}
}

// has reports which containers have an address in n, by CHECK.
func (n *network) has(containers ...string) string {
	n.t.Helper()
	var yes []string
	for _, c := range containers {
		o := n.with(keys{"prevResult": keys{"cniVersion": "1.1.0", "ips": []any{}}}).call("CHECK", c).run(n.t)
		if !strings.Contains(o.stdout, "no address recorded") {
			yes = append(yes, c)
		}
	}
	return strings.Join(yes, " ")
}

// TestGC (C14): c3's network namespace is there, so it stays, listed or not: an
// address that is in use is not freed by a list that may be old.
func TestGC(t *testing.T) {
	const current, legacy = "cni.dev/valid-attachments", "cni.dev/attachments"
	attachment := func(container, ifName string) any { return keys{"containerID": container, "ifname": ifName} }
	eachBackend(t, func(t *testing.T, b backend) {
		for _, tt := range []struct {
			name string
			keys keys
			want string
		}{
			{"null", keys{current: nil}, "c3"},
			{"empty", keys{current: []any{}}, "c3"},
			{"one is listed", keys{current: []any{attachment("c1", "eth0")}}, "c1 c3"},
			{"another interface is listed", keys{current: []any{attachment("c1", "eth1")}}, "c3"},
			{"the legacy key alone", keys{legacy: []any{attachment("c2", "eth0")}}, "c2 c3"},
			{"both keys, as libcni sends them", keys{current: []any{attachment("c1", "eth0")}, legacy: []any{attachment("c1", "eth0")}}, "c1 c3"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				n := b.network(t, "10.0.0.0/24")
				n.attach("c1", "c2", "c3")
				other := n.named("other")
				other.attach("c1", "c2")
				n.call("GC", "").run(t).wantError(t, 7, "cni.dev/valid-attachments") // absent
				n.kill("c1", "c2")
				if got := n.has("c1", "c2", "c3"); got != "c1 c2 c3" {
					t.Fatalf("before: %s; want all", got)
				}
				n.with(tt.keys).call("GC", "").run(t).wantQuiet(t)
				if got := n.has("c1", "c2", "c3"); got != tt.want {
					t.Errorf("after: %s; want %s", got, tt.want)
				}
				if got := other.has("c1", "c2"); got != "c1 c2" {
					t.Errorf("the other network after: %s; want both", got)
				}
			})
		}
	})
}

// TestGCNeedsNoContainer (C14).
func TestGCNeedsNoContainer(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24").with(keys{"cni.dev/valid-attachments": []any{}})
		n.call("GC", "").set("CNI_CONTAINERID", "").set("CNI_NETNS", "").set("CNI_IFNAME", "").run(t).wantQuiet(t)
	})
}
