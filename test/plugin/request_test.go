package plugin_test

import (
	"strings"
	"testing"
)

type keys = map[string]any

func ips(addrs ...string) keys { return keys{"ips": addrs} }

// TestPrecedence (C9): runtimeConfig.ips counts, then args.cni.ips, then CNI_ARGS.
func TestPrecedence(t *testing.T) {
	runtimeConfig, args := ips("10.0.0.11"), keys{"cni": ips("10.0.0.12")}
	for _, tt := range []struct {
		name    string
		keys    keys
		cniArgs string
		want    string
	}{
		{"runtimeConfig before all", keys{"runtimeConfig": runtimeConfig, "args": args}, "IP=10.0.0.13", "10.0.0.11/24"},
		{"args before CNI_ARGS", keys{"args": args}, "IP=10.0.0.13", "10.0.0.12/24"},
		{"CNI_ARGS", keys{}, "IP=10.0.0.13", "10.0.0.13/24"},
		{"N23 with the range's prefix length", keys{"runtimeConfig": ips("10.0.0.14/24")}, "", "10.0.0.14/24"},
		{"an empty runtimeConfig asks for nothing", keys{"runtimeConfig": ips(), "args": args}, "", "10.0.0.12/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				n := b.network(t, "10.0.0.0/24").with(tt.keys)
				if got := n.addBy(n.call("ADD", "c1").set("CNI_ARGS", tt.cniArgs)); got != tt.want {
					t.Errorf("got %s; want %s", got, tt.want)
				}
			})
		})
	}
}

// TestBothFamilies (C9).
func TestBothFamilies(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24", "fd00::/64").with(keys{"runtimeConfig": ips("fd00::99", "10.0.0.99")})
		if got := n.add("c1"); got != "fd00::99/64 10.0.0.99/24" {
			t.Errorf("got %s; want exactly what was asked for", got)
		}
		n = n.with(keys{"runtimeConfig": ips("10.0.0.77")})
		if got := n.add("c2"); !strings.HasPrefix(got, "10.0.0.77/24 fd00::") {
			t.Errorf("got %s; want what was asked for, and any address of the other family", got)
		}
		n = n.with(keys{"runtimeConfig": ips("10.0.0.78"), "args": keys{"cni": keys{"families": []string{"IPv4"}}}})
		if got := n.add("c3"); got != "10.0.0.78/24" {
			t.Errorf("got %s; want one family alone", got)
		}
	})
}

// TestUnfulfilled (C9): what cannot be given is refused with the reason, and nothing
// of the request is taken.
func TestUnfulfilled(t *testing.T) {
	for _, tt := range []struct {
		name string
		ips  keys
		code int
		text string
	}{
		{"outside the ranges", ips("10.0.0.3", "192.0.2.1"), 7, "192.0.2.1"},
		{"network address", ips("10.0.0.0"), 7, "network address"},
		{"broadcast address", ips("10.0.0.7"), 7, "broadcast address"},
		{"gateway", ips("10.0.0.3", "10.0.0.1"), 7, "gateway"},
		{"N23 another prefix length", ips("10.0.0.3/16"), 7, "prefix length"},
		{"not an address", ips("10.0.0.3", "rubbish"), 7, "rubbish"},
		{"held by somebody", ips("10.0.0.3", "10.0.0.6"), 11, "10.0.0.6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				n := b.network(t, "10.0.0.0/29")
				n.with(keys{"runtimeConfig": ips("10.0.0.6")}).add("holder")
				n.with(keys{"runtimeConfig": tt.ips}).call("ADD", "c1").run(t).wantError(t, tt.code, tt.text)
				if got := n.with(keys{"runtimeConfig": ips("10.0.0.3")}).add("c2"); got != "10.0.0.3/29" {
					t.Errorf("afterwards another pod gets %s; want 10.0.0.3, which must not be taken", got)
				}
			})
		})
	}
}

// TestUnknownArgs (C9).
func TestUnknownArgs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24")
		n.call("ADD", "c1").set("CNI_ARGS", "COLOUR=red").run(t).wantError(t, 4, "COLOUR")
		n.addBy(n.call("ADD", "c1").set("CNI_ARGS", "IgnoreUnknown=1;COLOUR=red=green"))
	})
}

// TestIPRanges (C9) is host-local's capability: the runtime brings the ranges.
func TestIPRanges(t *testing.T) {
	n := localNetwork(t, "10.0.0.0/24").with(keys{
		"runtimeConfig": keys{"ipRanges": []any{[]any{keys{"subnet": "10.5.0.0/29"}}, []any{keys{"subnet": "fd05::/125"}}}},
	})
	delete(n.ipam, "ranges")
	if got := n.add("c1"); got != "10.5.0.2/29 fd05::2/125" {
		t.Errorf("got %s; want one address of each range", got)
	}
}

// TestRepeatedADD (C10).
func TestRepeatedADD(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/29", "fd00::/125")
		n.start("c1")
		first := n.add("c1")
		for range 3 {
			if got := n.add("c1"); got != first {
				t.Errorf("got %s; want %s", got, first)
			}
		}
		if got := n.with(keys{"ipam.routes": []any{keys{"dst": "0.0.0.0/0"}}}).add("c1"); got != first {
			t.Errorf("with an edited configuration: %s; want %s", got, first)
		}
		other := "10.0.0.6"
		if strings.HasPrefix(first, other+"/") {
			other = "10.0.0.5"
		}
		n.with(keys{"runtimeConfig": ips(other)}).call("ADD", "c1").run(t).wantError(t, 11, other)
		n.kill("c1")
		n.start("c1") // podman starts a container anew under its old ID
		if got := n.add("c1"); got != first {
			t.Errorf("in another network namespace: %s; want %s", got, first)
		}
		n.del("c1")
	})
}

func TestTwoInterfaces(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24")
		one := n.add("c1")
		two := n.addBy(n.call("ADD", "c1").set("CNI_IFNAME", "net1"))
		if one == two {
			t.Errorf("both interfaces have %s; want two addresses", one)
		}
		n.call("DEL", "c1").set("CNI_IFNAME", "net1").run(t).wantQuiet(t)
		if got := n.add("c1"); got != one {
			t.Errorf("the first interface has %s after the DEL of the second; want %s", got, one)
		}
	})
}

// TestNewSandbox: the pod's sandbox is made anew while the pool is full. An
// agent's pods are in the API: its own tests have this case.
func TestNewSandbox(t *testing.T) {
	n := localNetwork(t, "10.0.0.0/30") // one address
	const pod = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u1"
	n.start("old", "new")
	first := n.addBy(n.call("ADD", "old").set("CNI_ARGS", pod))
	n.call("ADD", "new").set("CNI_ARGS", pod).run(t).wantError(t, 11, "no free IPv4 address")
	n.kill("old")
	n.call("ADD", "new").set("CNI_ARGS", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=q;K8S_POD_UID=u2").run(t).wantError(t, 11, "no free IPv4 address")
	n.call("ADD", "new").run(t).wantError(t, 11, "no free IPv4 address") // no pod UID: no take-over
	if got := n.addBy(n.call("ADD", "new").set("CNI_ARGS", pod)); got != first {
		t.Errorf("got %s; want the old sandbox's %s", got, first)
	}
	n.del("old") // late: frees nothing
	n.call("ADD", "c3").run(t).wantError(t, 11, "no free IPv4 address")
	n.del("new")
	n.add("c3")
}

func TestFullPool(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/29") // five addresses
		l := newLedger(t)
		for _, c := range []string{"c1", "c2", "c3", "c4", "c5"} {
			l.added(n.add(c), c)
		}
		n.call("ADD", "c6").run(t).wantError(t, 11, "IPv4")
		l.deleting("c3")
		n.del("c3")
		l.added(n.add("c6"), "c6")
	})
}
