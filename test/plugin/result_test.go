package plugin_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/programs"
)

// TestCalledByAPlugin (C1) has the reference bridge plugin call it, with the whole
// configuration, the keys of others included.
func TestCalledByAPlugin(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.1.0.0/24", "fd00:1::/64").with(map[string]any{
			"bridge": "br-" + b.name, "isGateway": true, "noSuchKeyOfAnybody": map[string]any{"ipam": 1},
			"capabilities": map[string]any{"portMappings": true},
		})
		rig, err := programs.RigDir()
		if err != nil {
			t.Fatal(err)
		}
		rt := cninet.NewRuntime([]string{rig, pluginDir()}, t.TempDir())
		ns, err := cninet.Make("c1-" + b.name)
		if err != nil {
			t.Fatal(err)
		}
		a := cninet.Attachment{ContainerID: "c1", NS: ns, IfName: "net1"}
		conf := string(n.config())
		res, err := rt.Add(t.Context(), conf, a)
		if err != nil {
			t.Fatal(err)
		}
		want := cninet.Addresses(res)
		got, err := ns.Addrs("net1")
		if err != nil {
			t.Fatal(err)
		}
		if len(want) != 2 || !cmp.Equal(addressTexts(want), addressTexts(got)) {
			t.Errorf("the interface has %v, the result %v; want the same two", got, want)
		}
		if err := rt.Check(t.Context(), conf, a); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		if err := rt.Status(t.Context(), conf); err != nil {
			t.Errorf("STATUS: %v", err)
		}
		if err := rt.Del(t.Context(), conf, a); err != nil {
			t.Errorf("DEL: %v", err)
		}
	})
}

func addressTexts[T interface{ String() string }](list []T) []string {
	var texts []string
	for _, x := range list {
		texts = append(texts, x.String())
	}
	return texts
}

// TestVersion (C2).
func TestVersion(t *testing.T) {
	o := call{env: map[string]string{"CNI_COMMAND": "VERSION"}}.run(t)
	var got struct {
		CNIVersion        string   `json:"cniVersion"`
		SupportedVersions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.exit != 0 {
		t.Fatalf("exit %d, stdout %q, %v; want a version", o.exit, o.stdout, err)
	}
	if d := cmp.Diff(versions, got.SupportedVersions); d != "" || got.CNIVersion == "" {
		t.Errorf("cniVersion %q, versions (-want +got):\n%s", got.CNIVersion, d)
	}
}

var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// TestUnsupportedVersion (C3).
func TestUnsupportedVersion(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24")
		for _, v := range []string{"9.9.9", "0.2.1"} {
			for _, verb := range []string{"ADD", "DEL"} {
				n.in(v).call(verb, "c1").run(t).wantError(t, 1, v)
			}
		}
	})
}

// TestResult (C4, C6, C7, C8) takes one address of each family in every version and
// compares the whole result.
func TestResult(t *testing.T) {
	type m = map[string]any
	route := func(dst string) m { return m{"dst": dst} }
	via := m{"dst": "10.9.0.0/16", "gw": "10.0.0.9"}
	dns := m{"nameservers": []any{"10.0.0.53"}, "domain": "d.test", "search": []any{"s.test"}, "options": []any{"ndots:2"}}
	ip := func(version, address, gateway string) m {
		x := m{"address": address, "gateway": gateway}
		if version != "" {
			x["version"] = version
		}
		return x
	}
	old := m{
		"ip4": m{"ip": "10.0.0.2/29", "gateway": "10.0.0.1", "routes": []any{route("0.0.0.0/0"), via}},
		"ip6": m{"ip": "fd00::2/125", "gateway": "fd00::1", "routes": []any{route("::/0")}},
	}
	routes := []any{route("0.0.0.0/0"), via, route("::/0")}
	middle := m{"ips": []any{ip("4", "10.0.0.2/29", "10.0.0.1"), ip("6", "fd00::2/125", "fd00::1")}, "routes": routes}
	modern := m{"ips": []any{ip("", "10.0.0.2/29", "10.0.0.1"), ip("", "fd00::2/125", "fd00::1")}, "routes": routes}
	want := map[string]m{
		"": old, "0.1.0": old, "0.2.0": old, "0.3.0": middle, "0.3.1": middle, "0.4.0": middle, "1.0.0": modern, "1.1.0": modern,
	}
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/29", "fd00::/125").with(m{
			"ipam.routes": []any{route("0.0.0.0/0"), via, route("::/0")}, "ipam.dns": dns,
		})
		for version, w := range want {
			t.Run("version "+version, func(t *testing.T) {
				o := n.in(version).call("ADD", "c1").run(t) // C10: the same addresses
				var got m
				if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.exit != 0 {
					t.Fatalf("exit %d, stdout %q, stderr %q; want a result", o.exit, o.stdout, o.stderr)
				}
				if version == "" {
					version = "0.1.0" // as the CNI library has it
				}
				w := m{"cniVersion": version, "dns": dns, "ips": w["ips"], "routes": w["routes"], "ip4": w["ip4"], "ip6": w["ip6"]}
				for k, v := range w {
					if v == nil {
						delete(w, k)
					}
				}
				anchor(w, got)
				if d := cmp.Diff(w, got); d != "" {
					t.Errorf("result (-want +got):\n%s", d)
				}
			})
		}
	})
}

// anchor makes want name the addresses that got has: which one of a range is
// handed out is not what the test is about.
func anchor(want, got map[string]any) {
	type m = map[string]any
	for _, family := range []string{"ip4", "ip6"} {
		if w, ok := want[family].(m); ok {
			if g, ok := got[family].(m); ok {
				w := maps.Clone(w)
				w["ip"] = g["ip"]
				want[family] = w
			}
		}
	}
	ips, _ := want["ips"].([]any)
	gotIPs, _ := got["ips"].([]any)
	var anchored []any
	for i, x := range ips {
		w := maps.Clone(x.(m))
		if i < len(gotIPs) {
			w["address"] = gotIPs[i].(m)["address"]
		}
		anchored = append(anchored, w)
	}
	if anchored != nil {
		want["ips"] = anchored
	}
}

// TestTwoAddressesOfAFamily (C5): old versions cannot say it. Nothing is taken: each
// range has one address, and somebody else gets it.
func TestTwoAddressesOfAFamily(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/30", "10.0.1.0/30")
		for _, v := range []string{"", "0.1.0", "0.2.0"} {
			n.in(v).call("ADD", "c1").run(t).wantError(t, 1, "IPv4")
		}
		if got := n.in("0.3.0").add("c2"); got != "10.0.0.2/30 10.0.1.2/30" {
			t.Errorf("got %s; want both addresses", got)
		}
	})
}

// TestGatewayAddsNoRoute (C7).
func TestGatewayAddsNoRoute(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		o := b.network(t, "10.0.0.0/24").call("ADD", "c1").run(t)
		var got map[string]any
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
			t.Fatal(err)
		}
		if _, ok := got["routes"]; ok {
			t.Errorf("result %s; want no routes where the configuration has none", o.stdout)
		}
	})
}

// TestResolvConf (C8).
func TestResolvConf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	const text = "# of the host\nnameserver 10.0.0.53\nnameserver fd00::53\ndomain d.test\nsearch a.test b.test\noptions ndots:5\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/30") // one address
		o := n.with(map[string]any{"ipam.resolvConf": file + ".none"}).call("ADD", "c1").run(t)
		o.wantError(t, 5, "resolv.conf.none")

		o = n.with(map[string]any{"ipam.resolvConf": file}).call("ADD", "c2").run(t)
		var got struct {
			DNS map[string]any `json:"dns"`
		}
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
			t.Fatalf("%v: %s %s", err, o.stdout, o.stderr)
		}
		want := map[string]any{
			"nameservers": []any{"10.0.0.53", "fd00::53"}, "domain": "d.test", "search": []any{"a.test", "b.test"}, "options": []any{"ndots:5"},
		}
		if d := cmp.Diff(want, got.DNS); d != "" {
			t.Errorf("dns (-want +got):\n%s", d)
		}
	})
}
