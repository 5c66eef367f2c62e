package attach_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// onlyDefault adds the pod, expects the default network alone and a warning that
// says why, and removes it again.
func (n *node) onlyDefault(name, why string) {
	n.t.Helper()
	n.ok("ADD", pod(name))
	n.called("ADD default eth0")
	r := n.reported(1)[0]
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Message, why) {
		n.t.Errorf("warnings %+v; want one that says %q", r.Warnings, why)
	}
	var status []map[string]any
	must(n.t, json.Unmarshal(r.Status, &status))
	if len(status) != 1 || status[0]["default"] != true || !strings.Contains(fmt.Sprint(status[0]["dev.tenure.warnings"]), why) {
		n.t.Errorf("status %s; want the default network's alone, with the warning", r.Status)
	}
	n.ok("DEL", pod(name))
	n.called("DEL default eth0")
}

// TestBothFormats (N14, N15, N16, N17, N19, N30).
func TestBothFormats(t *testing.T) {
	n := newNode(t)
	n.define("ns", "net-a", n.recorder("a", nil))
	n.define("ns", "net-b", n.recorder("b", nil))
	n.define("other", "net-c", n.recorder("c", nil))
	n.config["isolation"] = "None"
	for name, annotation := range map[string]string{
		"names":  " net-a , net-b@x0,other/net-c",
		"json":   `[{"name":"net-a"},{"name":"net-b","namespace":"","interface":"x0"},{"name":"net-c","namespace":"other"}]`,
		"spaces": "\n[ {\"name\":\"net-a\",\"org.foo.bar.k\":1},{\"name\":\"net-b\",\"interface\":\"x0\"},{\"name\":\"net-c\",\"namespace\":\"other\"} ]\n",
	} {
		n.selects(name, annotation)
		n.ok("ADD", pod(name))
		n.called("ADD default eth0", "ADD a net1", "ADD b x0", "ADD c net3")
		n.ok("CHECK", pod(name))
		n.called("CHECK default eth0", "CHECK a net1", "CHECK b x0", "CHECK c net3")
		n.ok("DEL", pod(name))
		n.called("DEL c net3", "DEL b x0", "DEL a net1", "DEL default eth0")
		n.reported(1)
	}
	n.ok("ADD", pod("none"))
	n.called("ADD default eth0")
}

// TestInvalidAnnotationIsIgnored (N6, N16, N18, N20, N25, N28, N31, N33, N35, N37, N40, N41, N66):
// whatever is wrong in an annotation, the whole of it is ignored, with a warning, and the pod has
// its default network.
func TestInvalidAnnotationIsIgnored(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("a", nil))
	for row, tt := range map[string]struct{ annotation, why string }{
		"A1":    {`[{"name":"a"`, "JSON"},
		"N6":    {"a,Net_A", "Net_A"},
		"N16-1": {"a,a/b/c", "a/b/c"},
		"N16-2": {"a@b@c", "more than one @"},
		"N18-1": {`[{"name":"a"},{"namespace":"ns"}]`, "name: missing"},
		"N18-2": {`[{"name":""}]`, "name: missing"},
		"N18-3": {`[{"name":5}]`, "name: 5 is not a string"},
		"N20-1": {`[{"name":"a","ips":[]}]`, "ips"},
		"N20-2": {`[{"name":"a","ips":["10.1.1.300"]}]`, "10.1.1.300"},
		"N20-3": {`[{"name":"a","ips":"10.1.1.6/24"}]`, "ips"},
		"N25-1": {`[{"name":"a","mac":"zz:00:00:00:00:01"}]`, "mac"},
		"N25-2": {`[{"name":"a","mac":"02:00:00:00:00:00:00:01"}]`, "mac"},
		"N25-3": {`[{"name":"a","mac":"` + strings.Repeat("02:", 19) + `01"}]`, "mac"},
		"N28-1": {`[{"name":"a","interface":"sixteen-letters-"}]`, "interface"},
		"N28-2": {`[{"name":"a","interface":"a/b"}]`, "interface"},
		"N28-3": {`[{"name":"a","interface":".."}]`, "interface"},
		"N28-4": {`[{"name":"a","interface":"net%d"}]`, "interface"},
		"N31-1": {`[{"name":"a","cni-args":"spoofchk=on"}]`, "cni-args"},
		"N31-2": {`[{"name":"a","cni-args":[{}]}]`, "cni-args"},
		"N33-1": {`[{"name":"a","portMappings":[{"hostPort":0,"containerPort":80}]}]`, "portMappings"},
		"N33-2": {`[{"name":"a","portMappings":[{"hostPort":80,"containerPort":80,"protocol":"icmp"}]}]`, "portMappings"},
		"N33-3": {`[{"name":"a","portMappings":[{"hostPort":65536,"containerPort":80}]}]`, "portMappings"},
		"N33-4": {`[{"name":"a","portMappings":[{"hostPort":80}]}]`, "portMappings"},
		"N33-5": {`[{"name":"a","portMappings":[]}]`, "portMappings"},
		"N33-6": {`[{"name":"a","portMappings":[{"hostPort":80,"containerPort":80,"Protocol":"UDP"}]}]`, "portMappings"},
		"N35-1": {`[{"name":"a","bandwidth":{}}]`, "bandwidth"},
		"N35-2": {`[{"name":"a","bandwidth":{"ingressBurst":1}}]`, "bandwidth"},
		"N35-3": {`[{"name":"a","bandwidth":{"ingressRate":0}}]`, "bandwidth"},
		"N35-4": {`[{"name":"a","bandwidth":{"egressRate":-1}}]`, "bandwidth"},
		"N37":   {`[{"name":"a","default-route":["10.0.0.1"]},{"name":"a","default-route":[]}]`, "default-route"},
		"N40-1": {`[{"name":"a","default-route":["gateway"]}]`, "default-route"},
		"N40-2": {`[{"name":"a","default-route":["0.0.0.0"]}]`, "default-route"},
		"N40-3": {`[{"name":"a","default-route":["ff02::1"]}]`, "default-route"},
		"N41-1": {`[{"name":"a","infiniband-guid":"02:00:00:00:00:01"}]`, "infiniband-guid"},
		"N41-2": {`[{"name":"a","infiniband-guid":"` + strings.Repeat("02:", 19) + `01"}]`, "infiniband-guid"},
	} {
		t.Run(row, func(t *testing.T) {
			n.t = t
			n.selects("p", tt.annotation)
			n.onlyDefault("p", tt.why)
			s := pod("p")
			s.config = map[string]any{"invalidAnnotation": "Fail"}
			n.fails("ADD", s, "invalid", tt.why)
			n.called()
			n.reported(0)
		})
	}
}

// TestWhereAConfigurationIs (N7, N8, N9, N10, N11, N12, N13).
func TestWhereAConfigurationIs(t *testing.T) {
	n := newNode(t)
	tagged := func(name, tag string) map[string]any { return n.recorder(name, map[string]any{"tag": tag}) }
	single := func(name, tag string) map[string]any {
		p := n.plugin(map[string]any{"tag": tag})
		p["cniVersion"] = "1.1.0"
		if name != "" {
			p["name"] = name
		}
		return p
	}
	n.onDisk("00-broken.conflist", "{")
	n.onDisk("10-list-and-conf.conf", single("both", "conf"))
	n.onDisk("20-list-and-conf.conflist", tagged("both", "list"))
	n.onDisk("30-conf.conf", single("conf", "conf"))
	n.onDisk("40.configlist", tagged("configlist", "configlist"))
	n.onDisk("50.config", single("config", "config"))
	n.onDisk("60.conflist", tagged("key", "disk"))
	for name, tt := range map[string]struct {
		config       any
		network, tag string
	}{
		"key":        {tagged("key", "key"), "key", "key"},                           // N7
		"both":       {nil, "both", "list"},                                          // N9
		"conf":       {"", "conf", "conf"},                                           // N8, N10
		"configlist": {nil, "configlist", "configlist"},                              // A3
		"config":     {nil, "config", "config"},                                      // A3
		"nameless":   {single("", "nameless"), "nameless", "nameless"},               // N4, N12
		"different":  {tagged("another-name", "another"), "another-name", "another"}, // N13
	} {
		n.define("ns", name, tt.config)
		n.selects("p", name)
		n.ok("ADD", pod("p"))
		if c := n.called("ADD default eth0", "ADD "+tt.network+" net1")[1]; c.at("recorder", "tag") != tt.tag || c.at("name") != tt.network {
			t.Errorf("%s: configuration %v named %v; want %s named %s", name, c.at("recorder", "tag"), c.at("name"), tt.tag, tt.network)
		}
		n.ok("DEL", pod("p"))
		n.records()
	}
	n.define("ns", "nowhere", nil)
	n.selects("p", "key,nowhere")
	n.fails("ADD", pod("p"), "network ns/nowhere", "3.4.1", "00-broken.conflist")
	n.selects("p", "key,unknown")
	n.fails("ADD", pod("p"), "network ns/unknown")
	n.called()
}

// TestNameIsInjected (N12): a configuration without a name gets that of its
// definition, and nothing else.
func TestNameIsInjected(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a-bridge-network", fmt.Sprintf(`{"cniVersion":"0.3.0","type":"recorder","recorder":{"log":%q}}`, n.path("log")))
	n.selects("p", "a-bridge-network")
	n.ok("ADD", pod("p"))
	c := n.called("ADD default eth0", "ADD a-bridge-network net1")[1]
	want := map[string]any{"cniVersion": "0.3.0", "type": "recorder", "name": "a-bridge-network", "recorder": map[string]any{"log": n.path("log")}}
	if d := cmp.Diff(want, c.Stdin); d != "" {
		t.Errorf("stdin (-want +got):\n%s", d)
	}
}

// able is a network whose plugins have capabilities, one more has none.
func (n *node) able(name string, instructions map[string]any, capabilities ...string) map[string]any {
	p := n.plugin(instructions)
	all := map[string]bool{}
	for _, c := range capabilities {
		all[c] = true
	}
	p["capabilities"] = all
	return map[string]any{"cniVersion": "1.1.0", "name": name, "plugins": []any{n.plugin(instructions), p}}
}

// TestCapabilityArguments (N21, N26, N33, N34, N36, N41, D3).
func TestCapabilityArguments(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.able("a", map[string]any{"ips": []string{"10.2.2.42/24", "2001:db8::5/64"}, "mac": "02:00:00:00:00:09"},
		"ips", "mac", "portMappings", "bandwidth", "infinibandGUID", "unused"))
	n.selects("p", `[{"name":"a","ips":["10.2.2.42/24","2001:db8::5/64"],"mac":"02:00:00:00:00:09",
		"portMappings":[{"hostPort":8080,"containerPort":80},{"hostPort":53,"containerPort":53,"protocol":"UdP","hostIP":"192.0.2.1"}],
		"bandwidth":{"ingressRate":1000},"infiniband-guid":"24:8a:07:03:00:8d:ae:2f"}]`)
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD a net1", "ADD a net1")
	if got := calls[1].at("runtimeConfig"); got != nil {
		t.Errorf("a plugin without capabilities has runtimeConfig %v", got)
	}
	for key, want := range map[string]any{
		"ips": []any{"10.2.2.42/24", "2001:db8::5/64"}, "mac": "02:00:00:00:00:09", "infinibandGUID": "24:8a:07:03:00:8d:ae:2f",
	} {
		if d := cmp.Diff(want, calls[2].at("runtimeConfig", key)); d != "" {
			t.Errorf("runtimeConfig.%s (-want +got):\n%s", key, d)
		}
	}
	ports := []any{ // the protocols filled in, and in lower case
		map[string]any{"hostPort": 8080.0, "containerPort": 80.0, "protocol": "tcp"},
		map[string]any{"hostPort": 53.0, "containerPort": 53.0, "protocol": "udp", "hostIP": "192.0.2.1"},
	}
	if d := cmp.Diff(any(ports), calls[2].at("runtimeConfig", "portMappings")); d != "" {
		t.Errorf("runtimeConfig.portMappings (-want +got):\n%s", d)
	}
	if burst := calls[2].at("runtimeConfig", "bandwidth", "ingressBurst"); burst == nil {
		t.Errorf("bandwidth: %v; want a burst", calls[2].at("runtimeConfig", "bandwidth"))
	}
	if _, ok := calls[2].at("runtimeConfig").(map[string]any)["unused"]; ok {
		t.Error("a capability without a value is in runtimeConfig")
	}
}

// TestCapabilityIsMissing (N22, N26, N34, N36, N41).
func TestCapabilityIsMissing(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("a", nil))
	for key, value := range map[string]string{
		"ips": `["10.2.2.42"]`, "mac": `"02:00:00:00:00:09"`, "portMappings": `[{"hostPort":1,"containerPort":1}]`,
		"bandwidth": `{"egressRate":1}`, "infiniband-guid": `"24:8a:07:03:00:8d:ae:2f"`,
	} {
		n.selects("p", fmt.Sprintf(`[{"name":"a",%q:%s}]`, key, value))
		n.fails("ADD", pod("p"), "network ns/a", "capabilit")
		n.called()
	}
}

// TestRequestedAndIgnored (N24, N27): a delegate that takes a request and ignores it
// fails the attachment, which is undone, in both versions.
func TestRequestedAndIgnored(t *testing.T) {
	n := newNode(t)
	n.define("ns", "v13", n.able("v13", map[string]any{"ips": []string{"10.2.2.1/24"}, "mac": "02:00:00:00:00:01"}, "ips", "mac"))
	n.define("ns", "v1", n.recorder("v1", map[string]any{"ips": []string{"10.2.2.1/24"}, "mac": "02:00:00:00:00:01"}), "tenure.dev/spec-version", "1")
	for _, name := range []string{"v13", "v1"} {
		for request, text := range map[string]string{
			`"ips":["10.2.2.42"]`: "address 10.2.2.42 was asked for", `"mac":"02:00:00:00:00:09"`: "hardware address 02:00:00:00:00:09 was asked for",
		} {
			n.selects("p", fmt.Sprintf(`[{"name":%q,%s}]`, name, request))
			n.fails("ADD", pod("p"), "network ns/"+name, text)
			calls := n.records()
			dels := 0
			for _, c := range calls {
				if c.Verb == "DEL" && c.at("name") == name {
					dels++
				}
			}
			if dels == 0 {
				t.Errorf("%s, %s: the attachment was not undone", name, request)
			}
		}
		n.selects("p", fmt.Sprintf(`[{"name":%q,"ips":["10.2.2.1"],"mac":"02:00:00:00:00:01"}]`, name))
		n.ok("ADD", pod("p"))
		if shown := n.reported(1)[0].Status; !strings.Contains(string(shown), `"10.2.2.1"`) {
			t.Errorf("%s: the status is %s; want the address that was asked for in it", name, shown)
		}
		calls := n.records()
		last := calls[len(calls)-1]
		if name == "v1" {
			if d := cmp.Diff(map[string]any{"ips": []any{"10.2.2.1"}, "mac": "02:00:00:00:00:01"}, last.at("args", "cni")); d != "" {
				t.Errorf("version 1: args.cni (-want +got):\n%s", d)
			}
		}
		n.ok("DEL", pod("p"))
		n.records()
	}
}

// TestRequestedAndOnAnotherInterface (N24): the addresses have to be on the attachment's interface,
// not on another one of the pod.
func TestRequestedAndOnAnotherInterface(t *testing.T) {
	n := newNode(t)
	say := `{"cniVersion":"1.1.0","interfaces":[{"name":"net1","sandbox":"/run/netns/p"},{"name":"other0","sandbox":"/run/netns/p"}],"ips":[{"address":"10.2.2.42/24","interface":1}]}`
	n.define("ns", "v13", n.able("v13", map[string]any{"say": say}, "ips"))
	n.define("ns", "v1", n.recorder("v1", map[string]any{"say": say}), "tenure.dev/spec-version", "1")
	for _, name := range []string{"v13", "v1"} {
		n.selects("p", fmt.Sprintf(`[{"name":%q,"ips":["10.2.2.42"]}]`, name))
		n.fails("ADD", pod("p"), "network ns/"+name, "address 10.2.2.42 was asked for")
		calls := n.records()
		if undone := calls[len(calls)-2].id(); undone != "DEL "+name+" net1" {
			t.Errorf("the last call but one was %s; want the attachment undone", undone)
		}
	}
}

// TestInterfaceNameThatIsTaken (N29).
func TestInterfaceNameThatIsTaken(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("a", nil))
	for _, annotation := range []string{
		`[{"name":"a","interface":"x"},{"name":"a","interface":"x"}]`, `[{"name":"a","interface":"eth0"}]`, `[{"name":"a","interface":"net2"},{"name":"a"}]`,
	} {
		n.selects("p", annotation)
		n.fails("ADD", pod("p"), "interface", "already")
		n.called()
	}
}

// TestArgumentsOfThePod (N31, N32).
func TestArgumentsOfThePod(t *testing.T) {
	n := newNode(t)
	list := n.able("a", nil, "ips")
	for _, p := range list["plugins"].([]any) {
		p.(map[string]any)["args"] = map[string]any{"cni": map[string]any{"spoofchk": "off", "trust": "on"}}
	}
	n.define("ns", "a", list)
	n.selects("p", `[{"name":"a","cni-args":{"spoofchk":"on"}}]`)
	n.ok("ADD", pod("p"))
	for _, c := range n.called("ADD default eth0", "ADD a net1", "ADD a net1")[1:] {
		if d := cmp.Diff(map[string]any{"spoofchk": "on", "trust": "on"}, c.at("args", "cni")); d != "" {
			t.Errorf("args.cni (-want +got):\n%s", d)
		}
	}
}

// TestAddressesAndClaim (N43).
func TestAddressesAndClaim(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.able("a", map[string]any{"ips": []string{"10.2.2.42/24"}}, "ips"))
	n.selects("p", `[{"name":"a","ips":["10.2.2.42"],"ipam-claim-reference":"c"}]`)
	n.fails("ADD", pod("p"), "ips", "ipam-claim-reference")
	n.called()
	s := pod("p")
	s.config = map[string]any{"ipsWithClaim": "Allow"}
	n.ok("ADD", s)
}

// TestSameNetworkTwice (N44, N46).
func TestSameNetworkTwice(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("a", nil))
	n.selects("p", "a,a")
	n.ok("ADD", pod("p"))
	n.called("ADD default eth0", "ADD a net1", "ADD a net2")
	var names []string
	for _, s := range n.statusOf() {
		names = append(names, fmt.Sprint(s["name"], " ", s["interface"]))
	}
	if want := []string{"default eth0", "ns/a net1", "ns/a net2"}; !slices.Equal(names, want) {
		t.Errorf("status of %v; want %v", names, want)
	}
	n.ok("DEL", pod("p"))
	n.called("DEL a net2", "DEL a net1", "DEL default eth0")
}

// TestAnswerThatSaysNothing (N50).
func TestAnswerThatSaysNothing(t *testing.T) {
	n := newNode(t)
	for _, say := range []string{"", "\n", "{}", "null"} {
		n.define("ns", "a", n.recorder("a", map[string]any{"say": say}))
		n.selects("p", "a")
		n.ok("ADD", pod("p"))
		if d := cmp.Diff(map[string]any{"name": "ns/a", "default": false}, n.statusOf()[1]); d != "" {
			t.Errorf("answer %q: status (-want +got):\n%s", say, d)
		}
		n.ok("DEL", pod("p"))
		n.records()
	}
	for _, say := range []string{"rubbish", `{"ips":[{}]}`, `{"routes":[{}]}`} {
		n.define("ns", "a", n.recorder("a", map[string]any{"say": say}))
		n.fails("ADD", pod("p"), "network ns/a", "its result")
		n.ok("DEL", pod("p"))
	}
}

// TestDeviceInformation (N63, N64).
func TestDeviceInformation(t *testing.T) {
	n := newNode(t)
	const info = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:02.3"}}`
	n.define("ns", "a", n.able("a", map[string]any{"device": info}, "CNIDeviceInfoFile"))
	n.selects("p", "a,a")
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD a net1", "ADD a net1", "ADD a net2", "ADD a net2")
	first, second := fmt.Sprint(calls[2].at("runtimeConfig", "CNIDeviceInfoFile")), fmt.Sprint(calls[4].at("runtimeConfig", "CNIDeviceInfoFile"))
	if first == second || !strings.HasPrefix(first, "/var/run/k8s.cni.cncf.io/devinfo/cni/") {
		t.Errorf("files %s and %s; want one for each attachment", first, second)
	}
	want := map[string]any{"type": "pci", "version": "1.1.0", "pci": map[string]any{"pci-address": "0000:01:02.3"}}
	if d := cmp.Diff(want, n.statusOf()[1]["device-info"]); d != "" {
		t.Errorf("device-info (-want +got):\n%s", d)
	}
	n.ok("DEL", pod("p"))
	for _, file := range []string{first, second} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s is still there after the DEL", file)
		}
	}
}

// TestInvalidDeviceInformationIsNotShown (N63).
func TestInvalidDeviceInformationIsNotShown(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.able("a", map[string]any{"device": `{"type":"pci","version":"1.1.0","pci":{}}`}, "CNIDeviceInfoFile"))
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	report := n.reported(1)[0]
	if len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0].Message, "pci.pci-address") || strings.Contains(string(report.Status), "device-info") {
		t.Errorf("status %s, warnings %+v; want no device information, and the reason", report.Status, report.Warnings)
	}
}

// TestRestrictionsAndTheRuntimesRequests (N66, N67, N77, N78).
func TestRestrictionsAndTheRuntimesRequests(t *testing.T) {
	n := newNode(t)
	n.config["defaultNetwork"] = n.able("default", nil, "portMappings")
	n.config["capabilities"] = map[string]bool{"portMappings": true}
	n.config["runtimeConfig"] = map[string]any{"portMappings": []any{map[string]any{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}}}
	n.define("ns", "a", n.able("a", nil, "portMappings"))
	n.define("other", "b", n.recorder("b", nil))
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD default eth0", "ADD a net1", "ADD a net1")
	if calls[1].at("runtimeConfig", "portMappings") == nil {
		t.Error("the default network has no portMappings of the runtime's")
	}
	if got := calls[3].at("runtimeConfig"); got != nil {
		t.Errorf("a selected network has the runtime's %v", got)
	}
	n.selects("q", "a,other/b")
	n.fails("ADD", pod("q"), "network other/b", "namespace")
	n.called()
	s := pod("system")
	s.args = "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=system;K8S_POD_UID=u"
	n.ok("ADD", s)
	n.called("ADD default eth0", "ADD default eth0")
}
