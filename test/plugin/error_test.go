package plugin_test

import (
	"os"
	"strings"
	"testing"
)

// TestErrors (C16).
func TestErrors(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24")
		add := n.call("ADD", "c1")
		for name, text := range map[string]string{
			"CNI_CONTAINERID": "CNI_CONTAINERID", "CNI_NETNS": "CNI_NETNS", "CNI_IFNAME": "CNI_IFNAME", "CNI_PATH": "CNI_PATH",
		} {
			n.call("ADD", "c1").set(name, "").run(t).wantError(t, 4, text)
		}
		n.call("ADD", "c1").set("CNI_CONTAINERID", "").set("CNI_IFNAME", "").run(t).wantError(t, 4, "CNI_CONTAINERID,CNI_IFNAME")
		n.call("EAT", "c1").run(t).wantError(t, 4, "EAT")
		n.call("ADD", "c 1").run(t).wantError(t, 4, "CNI_CONTAINERID")
		n.call("ADD", "c1").set("CNI_IFNAME", "a/b").run(t).wantError(t, 4, "CNI_IFNAME")
		n.call("ADD", "c1").set("CNI_ARGS", "rubbish").run(t).wantError(t, 4, "CNI_ARGS")
		if o := n.in("0.4.0").call("ADD", "c 1").run(t); !strings.Contains(o.stdout, `"cniVersion": "0.4.0"`) {
			t.Errorf("a container that is none, with a configuration of CNI 0.4.0: %s; want that version", o.stdout)
		}

		dir, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		add.stdin = dir
		add.run(t).wantError(t, 5, "stdin")
		for _, text := range []string{"", "{", "rubbish", "[]", `"x"`} {
			add.stdin = strings.NewReader(text)
			add.run(t).wantError(t, 6, "")
		}
		n.named("").call("ADD", "c1").run(t).wantError(t, 7, "name")
		n.named("no/name").call("ADD", "c1").run(t).wantError(t, 7, "name")
		// A key that is not supported is named, with its value; in every version.
		for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			misspelt := n.in(version).with(keys{"ipam.rangStart": "10.0.0.9"}).call("ADD", "c1").run(t)
			misspelt.wantError(t, 2, `ipam.rangStart: is not a key that Tenure knows: "10.0.0.9"`)
			refused := n.in(version).with(keys{"ipam.addresses": []string{"10.0.0.8/24"}}).call("ADD", "c1").run(t)
			refused.wantError(t, 2, `ipam.addresses: is not supported: ["10.0.0.8/24"]`)
		}
	})
}

// TestOneLineForManyFaults (C16): every fault of a configuration is told at once.
func TestOneLineForManyFaults(t *testing.T) {
	n := newNetwork(t, keys{"mode": "nowhere", "subnet": "10.0.0.5/24", "gateway": "x"})
	o := n.call("ADD", "c1").run(t)
	for _, path := range []string{"ipam.mode", "ipam.subnet", "ipam.gateway"} {
		o.wantError(t, 7, path)
	}
}

// TestNoCommand (C16).
func TestNoCommand(t *testing.T) {
	o := call{}.run(t)
	if o.exit != 0 || o.stdout != "" || !strings.Contains(o.stderr, "CNI IPAM plugin tenure") || !strings.Contains(o.stderr, "1.1.0") {
		t.Errorf("run by hand: exit %d, stdout %q, stderr %q; want what it is and its versions, on stderr", o.exit, o.stdout, o.stderr)
	}
}

// TestOwnNamespace (C17): an ADD into the plugin's own network namespace is refused, in
// the configuration's version, before anything is taken.
func TestOwnNamespace(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/30").with(keys{"runtimeConfig": ips("10.0.0.2")}) // one address
		own := n.call("ADD", "c1").set("CNI_NETNS", "/proc/self/ns/net")
		own.run(t).wantError(t, 8, "CNI_NETNS")
		older := n.in("0.4.0").call("ADD", "c1").set("CNI_NETNS", "/proc/self/ns/net").run(t)
		older.wantError(t, 8, "CNI_NETNS")
		if !strings.Contains(older.stdout, `"cniVersion": "0.4.0"`) {
			t.Errorf("a configuration of CNI 0.4.0 is refused with %s; want that version", older.stdout)
		}
		n.add("c2")
		n.del("c2")
		for _, yes := range []string{"1", "true", "TRUE"} {
			n.addBy(n.call("ADD", "c1").set("CNI_NETNS", "/proc/self/ns/net").set("CNI_NETNS_OVERRIDE", yes))
		}
	})
}

// TestNames (C17): CNI's rules for names hold for every verb.
func TestNames(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24")
		for _, verb := range []string{"ADD", "CHECK", "DEL", "STATUS", "GC"} {
			n.named(".hidden").call(verb, "c1").run(t).wantError(t, 7, "name")
			n.call(verb, "c1").set("CNI_PATH", "").run(t).wantError(t, 4, "CNI_PATH")
		}
		if got := n.named("A.b_c-9").add("c1"); got == "" {
			t.Error("a name with every allowed character: no address")
		}
	})
}
