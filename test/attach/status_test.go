package attach_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// answers are results of delegates, in their versions of CNI, and what the status
// annotation is to say of each beside its name. NETNS stands for the pod's, IFNAME for
// CNI_IFNAME.
var answers = []struct {
	row, version, result string
	keys                 map[string]any // further ones of the element
	ips                  []string
	want                 map[string]any
}{
	{
		row: "N48 N53 N61: routes stay out, name servers do not", version: "1.0.0", keys: map[string]any{"colour": "red", "org.example/colour": "red"},
		result: `{"interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"NETNS","mtu":9000}],"ips":[{"interface":0,"address":"10.7.0.1/24","gateway":"10.7.0.254"}],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.8.0.0/16","gw":"10.7.0.253"},{"dst":"0.0.0.0/1","gw":"10.7.0.252"}],
			"dns":{"nameservers":["10.7.0.53"],"domain":"lan","search":["a.lan"],"options":["ndots:5"]}}`,
		ips: []string{"10.7.0.1/24"},
		want: map[string]any{
			"interface": "net1", "mac": "02:00:00:00:00:01", "gateway": []any{"10.7.0.254"},
			"dns": map[string]any{"nameservers": []any{"10.7.0.53"}, "domain": "lan", "search": []any{"a.lan"}},
		},
	},
	{
		row: "N49 N55 N59: the first interface of the pod", version: "0.4.0",
		result: `{"interfaces":[{"name":"veth0","mac":"02:00:00:00:00:10"},{"name":"x0","mac":"02:00:00:00:00:11","sandbox":"NETNS"},{"name":"x1","mac":"02:00:00:00:00:12","sandbox":"NETNS"}],
			"ips":[{"version":"4","interface":2,"address":"10.7.0.2/24"},{"version":"4","interface":1,"address":"10.7.0.1/24"},{"version":"4","interface":0,"address":"10.7.0.3/24"}]}`,
		ips:  []string{"10.7.0.1/24"},
		want: map[string]any{"interface": "x0", "mac": "02:00:00:00:00:11"},
	},
	{
		row: "N56: addresses of the host's interface alone", version: "1.0.0",
		result: `{"interfaces":[{"name":"veth0"},{"name":"x0","sandbox":"NETNS"}],"ips":[{"interface":0,"address":"10.7.0.1/24"}]}`,
		want:   map[string]any{"interface": "x0"},
	},
	{
		row: "N56: no interface of the pod, the first address of each family", version: "1.0.0",
		result: `{"interfaces":[{"name":"veth0"}],"ips":[{"interface":0,"address":"10.7.0.9/24"},{"address":"10.7.0.1/24"},{"address":"10.7.0.2/24"},{"address":"2001:db8::1/64"}]}`,
		ips:    []string{"10.7.0.1/24", "2001:db8::1/64"},
		want:   map[string]any{"interface": "IFNAME"},
	},
	{
		row: "N56: addresses without an index", version: "1.1.0",
		result: `{"interfaces":[{"name":"veth0"},{"name":"x0","sandbox":"NETNS"}],"ips":[{"address":"10.7.0.1/24"},{"address":"2001:db8::1/64"}]}`,
		ips:    []string{"10.7.0.1/24", "2001:db8::1/64"},
		want:   map[string]any{"interface": "x0"},
	},
	{
		row: "N51 N58: before CNI 0.3.0", version: "0.2.0",
		result: `{"ip4":{"ip":"10.7.0.1/24"},"ip6":{"ip":"2001:db8::1/64"},"dns":{"nameservers":["10.7.0.53"]}}`,
		ips:    []string{"10.7.0.1/24", "2001:db8::1/64"},
		want:   map[string]any{"interface": "IFNAME", "dns": map[string]any{"nameservers": []any{"10.7.0.53"}}},
	},
	{
		row: "N51 N58: before CNI 0.3.0, IPv6 alone", version: "0.1.0",
		result: `{"ip6":{"ip":"2001:db8::1/64","gateway":"2001:db8::fe","routes":[{"dst":"::/0"}]}}`,
		ips:    []string{"2001:db8::1/64"},
		want:   map[string]any{"interface": "IFNAME", "gateway": []any{"2001:db8::fe"}},
	},
	{
		row: "N57: an IPv4 address that is written as one of IPv6", version: "1.0.0",
		result: `{"interfaces":[{"name":"x0","sandbox":"NETNS"}],"ips":[{"interface":0,"address":"::ffff:10.7.0.1/120"}]}`,
		ips:    []string{"10.7.0.1/24"},
		want:   map[string]any{"interface": "x0"},
	},
	{row: "N50: no result", version: "1.0.0", result: "", want: map[string]any{}},
	{
		row: "N65: a GUID that was asked for", version: "1.0.0", keys: map[string]any{"infiniband-guid": "24-8A-07-03-00-8D-AE-2F"},
		result: `{"interfaces":[{"name":"ib0","sandbox":"NETNS"}]}`,
		want:   map[string]any{"interface": "ib0", "infiniband-guid": "24:8a:07:03:00:8d:ae:2f"},
	},
}

// TestStatus (N48, N49, N50, N51, N54, N55, N56, N57, N58, N59, N60, N61, N65) has delegates answer
// all kinds of results, and the agent itself write what follows from them. A member that is not in
// the table must not be there: every key is the specification's or has a period in it (N53), but
// for gateway.
func TestStatus(t *testing.T) {
	c := useCluster(t)
	n := newNode(t)
	ns := c.namespace()
	var elements []map[string]any
	for i, a := range answers {
		name := fmt.Sprintf("net-%d", i)
		result := strings.ReplaceAll(a.result, "NETNS", "/run/netns/p")
		if result != "" {
			result = fmt.Sprintf(`{"cniVersion":%q,%s`, a.version, result[1:])
		}
		plugin := n.plugin(map[string]any{"say": result})
		plugin["capabilities"] = map[string]bool{"infinibandGUID": true}
		c.define(ns, name, map[string]any{"cniVersion": a.version, "name": name, "plugins": []any{plugin}})
		element := map[string]any{"name": name}
		maps.Copy(element, a.keys)
		elements = append(elements, element)
	}
	n.config["socket"] = fleet.New(t, c.Config()).Start("status").Socket()
	for setting, form := range map[string]func(string) string{
		"Address": func(address string) string { bare, _, _ := strings.Cut(address, "/"); return bare },
		"CIDR":    func(address string) string { return address },
	} {
		t.Run(setting, func(t *testing.T) {
			n.t, c.t = t, t
			p, s := c.pod(ns, "p", "status", string(encoded(t, elements)))
			s.config = map[string]any{"statusIPs": setting}
			n.ok("ADD", s)
			var got []map[string]any
			fleet.Eventually(t, waitLimit, func() (err error) {
				got, err = c.status(p)
				return err
			})
			expectEntries(t, got, ns, form)
			n.ok("DEL", s)
			must(t, c.client.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
		})
	}
}

// expectEntries compares a status annotation with what the table and the default network
// give, whose addresses are written in some form.
func expectEntries(t *testing.T, got []map[string]any, ns string, form func(string) string) {
	t.Helper()
	if len(got) != len(answers)+1 {
		t.Fatalf("status of %d networks: %v; want %d", len(got), got, len(answers)+1)
	}
	const warnings = "dev.tenure.warnings"
	if text := fmt.Sprint(got[0][warnings]); !strings.Contains(text, "key colour has no effect") {
		t.Errorf("%s: %s; want the key that means nothing", warnings, text)
	}
	delete(got[0], warnings)
	want := map[string]any{"name": "default", "interface": "eth0", "ips": []any{form("10.1.0.5/24")}, "default": true}
	if d := cmp.Diff(want, got[0]); d != "" {
		t.Errorf("the default network's entry (-want +got):\n%s", d)
	}
	for i, a := range answers {
		want := map[string]any{"name": fmt.Sprintf("%s/net-%d", ns, i), "default": false}
		maps.Copy(want, a.want)
		if want["interface"] == "IFNAME" {
			want["interface"] = fmt.Sprintf("net%d", i+1)
		}
		if len(a.ips) > 0 {
			var ips []any
			for _, address := range a.ips {
				ips = append(ips, form(address))
			}
			want["ips"] = ips
		}
		if d := cmp.Diff(want, got[i+1]); d != "" {
			t.Errorf("%s (-want +got):\n%s", a.row, d)
		}
	}
}
