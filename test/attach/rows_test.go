package attach_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/tenure-ipam/tenure/attach/cni/route"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// TestDottedNames (N6): Kubernetes allows them, so both formats do.
func TestDottedNames(t *testing.T) {
	n := newNode(t)
	n.define("ns", "net.a-1", n.recorder("a", nil))
	for _, annotation := range []string{"net.a-1,ns/net.a-1", `[{"name":"net.a-1"},{"name":"net.a-1","namespace":"ns"}]`} {
		n.selects("p", annotation)
		n.ok("ADD", pod("p"))
		n.called("ADD default eth0", "ADD a net1", "ADD a net2")
		n.ok("DEL", pod("p"))
		n.records()
	}
}

// TestLongHardwareAddress (N27): version 1 knows those of 20 bytes.
func TestLongHardwareAddress(t *testing.T) {
	n := newNode(t)
	mac := strings.Repeat("02:", 19) + "01"
	n.define("ns", "a", n.recorder("a", map[string]any{"mac": mac}), "tenure.dev/spec-version", "1")
	n.selects("p", fmt.Sprintf(`[{"name":"a","mac":%q}]`, mac))
	n.ok("ADD", pod("p"))
	if got := n.called("ADD default eth0", "ADD a net1")[1].at("args", "cni", "mac"); got != mac {
		t.Errorf("args.cni.mac is %v; want %s", got, mac)
	}
	n.ok("DEL", pod("p"))
}

// TestNamesAsTheKernelHasThem (N28): an annotation with a name is ignored just where the kernel
// would not give that name to an interface.
func TestNamesAsTheKernelHasThem(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("a", nil))
	ns := netns(t, "names")
	for _, name := range []string{"all", "default", "lo0", "a%d", "%", "à", "a\u00a0b", "ü", "a.b", "-a", "a=b", "15-letters-long", "16-letters-long-"} {
		var made bool
		must(t, ns.Do(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			_ = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}) // or it has no such name
			link, err := netlink.LinkByName(name)
			if made = err == nil; made {
				return netlink.LinkDel(link)
			}
			return nil
		}))
		n.selects("p", string(encoded(t, []any{map[string]any{"name": "a", "interface": name}})))
		n.ok("ADD", pod("p"))
		if taken := len(n.records()) == 2; taken != made {
			t.Errorf("interface %q: it is taken: %v; the kernel makes it: %v", name, taken, made)
		}
		n.ok("DEL", pod("p"))
		n.records()
	}
}

// TestArgumentsThatAreNoObject (N32): of a definition they are an error, and nothing worse.
func TestArgumentsThatAreNoObject(t *testing.T) {
	n := newNode(t)
	for _, args := range []any{"x", []any{1}, map[string]any{"cni": "x"}} {
		p := n.plugin(nil)
		p["args"] = args
		n.define("ns", "a", map[string]any{"cniVersion": "1.1.0", "name": "a", "plugins": []any{p}})
		n.selects("p", `[{"name":"a","cni-args":{"k":"v"}}]`)
		n.fails("ADD", pod("p"), "network ns/a", "plugin 1", "args", "is not an object")
		n.called()
	}
}

// TestTwoAddresses (N44): the same network twice is two interfaces with an address each.
func TestTwoAddresses(t *testing.T) {
	n := routedNode(t)
	ns := netns(t, "p")
	n.selects("p", "b,b")
	n.ok("ADD", pod("p"))
	var got []string
	for _, name := range []string{"net1", "net2"} {
		addrs, err := ns.Addrs(name)
		must(t, err)
		for _, a := range addrs {
			if a.Addr().Is4() {
				got = append(got, a.String())
			}
		}
	}
	var shown []string
	for _, s := range n.statusOf()[1:] {
		shown = append(shown, fmt.Sprint(s["name"], " ", s["ips"].([]any)[0]))
	}
	if len(got) != 2 || got[0] == got[1] {
		t.Fatalf("addresses %v; want two", got)
	}
	want := []string{"ns/b " + strings.TrimSuffix(got[0], "/24"), "ns/b " + strings.TrimSuffix(got[1], "/24")}
	if d := cmp.Diff(want, shown); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestEveryTypeOfDevice (N63): each is shown if it has what its type requires.
func TestEveryTypeOfDevice(t *testing.T) {
	n := newNode(t)
	for kind, keys := range map[string][]string{
		"pci": {"pci-address"}, "vdpa": {"parent-device", "driver", "path"}, "vhost-user": {"mode", "path"}, "memif": {"role", "path", "mode"}, "usb": nil,
	} {
		for missing := range len(keys) + 1 { // the last time, none is
			device := map[string]any{}
			for i, key := range keys {
				if i != missing {
					device[key] = "x"
				}
			}
			info := map[string]any{"type": kind, "version": "1.1.0", kind: device}
			n.define("ns", "a", n.able("a", map[string]any{"device": string(encoded(t, info))}, "CNIDeviceInfoFile"))
			n.selects("p", "a")
			n.ok("ADD", pod("p"))
			var want any
			if missing == len(keys) && kind != "usb" {
				want = info
			}
			if d := cmp.Diff(want, n.statusOf()[1]["device-info"]); d != "" {
				t.Errorf("%v: device-info (-want +got):\n%s", info, d)
			}
			n.ok("DEL", pod("p"))
			n.records()
		}
	}
}

// TestDevicesOfTheKubelet (N64): each attachment of a definition with a resource takes the next
// of the pod's devices, and has a copy of what the device plugin says of it.
func TestDevicesOfTheKubelet(t *testing.T) {
	const said = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	n := newNode(t)
	must(t, os.RemoveAll(filepath.Dir(said)))
	must(t, os.MkdirAll(said, 0o755))
	info := func(device string) map[string]any {
		return map[string]any{"type": "pci", "version": "1.1.0", "pci": map[string]any{"pci-address": device}}
	}
	for _, device := range []string{"0000:01:02.3", "0000:01:02.4"} {
		must(t, os.WriteFile(filepath.Join(said, "intel.com-sriov-"+device+"-device.json"), encoded(t, info(device)), 0o600))
	}
	n.define("ns", "a", n.able("a", nil, "CNIDeviceInfoFile", "deviceID"), "k8s.v1.cni.cncf.io/resourceName", "intel.com/sriov")
	ref := facts.Ref{Namespace: "ns", Name: "a"}
	d := n.agent.definitions[ref]
	d.Devices = []string{"0000:01:02.3", "0000:01:02.4"}
	n.agent.definitions[ref] = d
	n.selects("p", "a,a")
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD a net1", "ADD a net1", "ADD a net2", "ADD a net2")
	status := n.statusOf()
	var files []string
	for i, device := range d.Devices {
		first, second := calls[1+2*i], calls[2+2*i]
		if first.at("deviceID") != device || first.at("pciBusID") != device || second.at("runtimeConfig", "deviceID") != device {
			t.Errorf("%s: %v, %v; want device %s", first.id(), first.Stdin, second.Stdin, device)
		}
		files = append(files, fmt.Sprint(second.at("runtimeConfig", "CNIDeviceInfoFile")))
		text, err := os.ReadFile(files[i])
		var got map[string]any
		if err != nil || json.Unmarshal(text, &got) != nil || !cmp.Equal(got, info(device)) {
			t.Errorf("%s: %q, %v; want what the device plugin says", files[i], text, err)
		}
		if d := cmp.Diff(any(info(device)), status[1+i]["device-info"]); d != "" {
			t.Errorf("device-info (-want +got):\n%s", d)
		}
	}
	n.ok("DEL", pod("p"))
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s is still there after the DEL", file)
		}
	}
	n.selects("p", "a,a,a")
	n.fails("ADD", pod("p"), "element 3", "network ns/a", "intel.com/sriov", "all 2 of the pod's are assigned")
}

// TestNothingOfTheRuntimesReachesOthers (N78, A11), whatever it is, also by CNI_ARGS.
func TestNothingOfTheRuntimesReachesOthers(t *testing.T) {
	n := newNode(t)
	asked := map[string]any{
		"portMappings": []any{map[string]any{"hostPort": 80.0, "containerPort": 80.0, "protocol": "tcp"}}, "bandwidth": map[string]any{"ingressRate": 1000.0, "ingressBurst": 1000.0},
		"dns": map[string]any{"servers": []any{"10.0.0.10"}}, "ipRanges": []any{[]any{map[string]any{"subnet": "10.9.0.0/24"}}},
		"cgroupPath": "/kubepods/p", "io.kubernetes.cri.pod-annotations": map[string]any{"a": "b"}, "mac": "02:00:00:00:00:05",
	}
	all := map[string]bool{}
	var names []string
	for name := range asked {
		all[name], names = true, append(names, name)
	}
	n.config["capabilities"], n.config["runtimeConfig"] = all, asked
	n.config["defaultNetwork"] = n.able("default", nil, names...)
	n.config["defaultNetworks"] = []string{"extra"}
	n.define("kube-system", "extra", n.able("extra", nil, names...))
	n.define("ns", "a", n.able("a", nil, names...))
	n.selects("p", "a")
	s := pod("p")
	s.args = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;IP=10.1.0.9;MAC=02:00:00:00:00:05;GATEWAY=10.1.0.1;LABEL=x"
	n.ok("ADD", s)
	n.ok("CHECK", s)
	n.ok("DEL", s)
	for _, c := range n.records() {
		got, has := c.at("runtimeConfig").(map[string]any)
		switch {
		case c.at("name") != "default":
			if has || strings.Contains(c.Env["CNI_ARGS"], "10.1.0.") || strings.Contains(c.Env["CNI_ARGS"], "MAC=") || !strings.Contains(c.Env["CNI_ARGS"], "LABEL=x") {
				t.Errorf("%s: runtimeConfig %v, CNI_ARGS %s; want nothing that the runtime asks for", c.id(), got, c.Env["CNI_ARGS"])
			}
		case has && !cmp.Equal(got, asked), !strings.Contains(c.Env["CNI_ARGS"], "IP=10.1.0.9;MAC=02:00:00:00:00:05;GATEWAY=10.1.0.1"):
			t.Errorf("%s: runtimeConfig %v, CNI_ARGS %s; want all that the runtime asks for", c.id(), got, c.Env["CNI_ARGS"])
		}
	}
}

// TestStatusStopsAtTheFirstFailure (D2): whose error is returned.
func TestStatusStopsAtTheFirstFailure(t *testing.T) {
	n := newNode(t)
	failing := func(msg string) map[string]any {
		return n.plugin(map[string]any{"tag": msg, "fail": map[string]any{"STATUS": map[string]any{"code": 50, "msg": msg}}})
	}
	n.config["defaultNetwork"] = map[string]any{"cniVersion": "1.1.0", "name": "default", "plugins": []any{n.plugin(nil), failing("second"), failing("third")}}
	if f := n.fails("STATUS", sandboxOf{}, "second"); strings.Contains(f.Msg, "third") {
		t.Errorf("%+v; want the first failure alone", f)
	}
	n.called("STATUS default ", "STATUS default ")
}

// TestTheWholeListIsUndone (D5): also the plugins of a failed ADD that were never called.
func TestTheWholeListIsUndone(t *testing.T) {
	n := newNode(t)
	tagged := func(tag string, further map[string]any) map[string]any {
		p := n.plugin(further)
		p["recorder"].(map[string]any)["tag"] = tag
		return p
	}
	n.define("ns", "a", map[string]any{"cniVersion": "1.0.0", "name": "net-a", "plugins": []any{
		tagged("first", nil), tagged("second", map[string]any{"fail": map[string]any{"ADD": map[string]any{"code": 100, "msg": "broken"}}}), tagged("third", nil),
	}})
	n.selects("p", "a")
	n.fails("ADD", pod("p"), "plugin recorder failed (add)", "broken")
	calls := n.called("ADD default eth0", "ADD net-a net1", "ADD net-a net1", "DEL net-a net1", "DEL net-a net1", "DEL net-a net1", "DEL default eth0")
	for i, want := range []string{"first", "second", "third", "second", "first"} {
		if got := calls[1+i].at("recorder", "tag"); got != want {
			t.Errorf("call %d is of plugin %v; want %s", 1+i, got, want)
		}
	}
	n.ok("DEL", pod("p"))
	n.called()
	n.clean()
}

// TestTheNativeResultIsKept (D13): what the runtime's version of CNI has no place for is still
// there for CHECK and DEL.
func TestTheNativeResultIsKept(t *testing.T) {
	n := newNode(t)
	ips := []string{"10.1.0.5/24", "10.1.0.6/24", "2001:db8::5/64"}
	n.config["defaultNetwork"] = n.recorder("default", map[string]any{"ips": ips, "mac": "02:00:00:00:00:05"})
	n.config["cniVersion"] = "0.2.0"
	if o := n.ok("ADD", pod("p")); strings.Contains(o.stdout, "interfaces") || !strings.Contains(o.stdout, `"ip6"`) {
		t.Errorf("answer %s; want one of CNI 0.2.0", o.stdout)
	}
	n.called("ADD default eth0")
	n.ok("DEL", pod("p"))
	prev, _ := n.called("DEL default eth0")[0].at("prevResult").(map[string]any)
	for _, text := range append(ips, "02:00:00:00:00:05", "/run/netns/p") {
		if !strings.Contains(string(encoded(t, prev)), text) {
			t.Errorf("prevResult of the DEL: %v; want %s in it", prev, text)
		}
	}
}

// TestSeveralOwnDefaultRoutes (N39): a network whose plugin sets several default routes of one
// metric keeps them all, and gets them all back where a change fails.
func TestSeveralOwnDefaultRoutes(t *testing.T) {
	n := routedNode(t)
	network := n.bridge("net-d", 4, true)
	plugin := network["plugins"].([]any)[0].(map[string]any)
	plugin["ipam"].(map[string]any)["routes"] = []any{
		map[string]any{"dst": "0.0.0.0/0", "gw": "10.4.0.9"}, map[string]any{"dst": "0.0.0.0/0", "gw": "10.4.0.1"},
		map[string]any{"dst": "::/0", "gw": "2001:db8:4::1"}, map[string]any{"dst": "::/0", "gw": "2001:db8:4::9"},
	}
	n.define("ns", "d", network)
	ns := netns(t, "p")
	n.selects("p", `[{"name":"d","default-route":[]}]`)
	n.ok("ADD", pod("p"))
	want := []string{"net1 via 10.4.0.1", "net1 via 10.4.0.9", "net1 via 2001:db8:4::1", "net1 via 2001:db8:4::9"}
	expectDefaults(t, ns, want...)
	n.ok("CHECK", pod("p"))
	c := route.Change{Keeper: []string{"eth0"}, Gateways: []netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("2001:db8:99::1")}}
	if err := c.Apply(ns.Path()); err == nil {
		t.Error("gateways in no network: success; want an error")
	}
	expectDefaults(t, ns, want...)
	n.ok("DEL", pod("p"))
	n.clean()
}
