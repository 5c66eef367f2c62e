package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// TestDefaultNetworkFromEverySource (N66).
func TestDefaultNetworkFromEverySource(t *testing.T) {
	conflist := `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}`
	own := `{"cniVersion": "1.0.0", "name": "tenure", "plugins": [{"type": "tenure-attach"}]}`
	files := map[string]string{"00-tenure.conflist": own, "10-flannel.conflist": conflist, "/opt/net/one.conf": bridge("one"), "/opt/bad/a.conflist": "{",
		"/opt/evil.conflist": `{"cniVersion": "1.0.0", "name": "../etc/cni/net.d"}`}
	for _, tt := range []struct{ name, keys, want string }{
		{"inline", `"defaultNetwork": ` + conflist, "cluster"},
		{"by file", `"defaultNetwork": "/etc/cni/net.d/10-flannel.conflist"`, "cluster"},
		{"by single file", `"defaultNetwork": "/opt/net/one.conf"`, "one"},
		{"by directory, itself passed over", `"defaultNetwork": "/etc/cni/net.d/"`, "cluster"},
		{"by definition", `"defaultNetwork": "defined"`, "kube-system/defined"},
		{"by definition in a namespace", `"defaultNetwork": "infra/defined"`, "infra/defined"},
		{"by definition in defaultNamespace", `"defaultNetwork": "defined", "defaultNamespace": "infra"`, "infra/defined"},
		{"by name in a file", `"defaultNetwork": "cluster"`, "cluster"},
		{"clusterNetwork, a definition", `"clusterNetwork": "defined", "multusNamespace": "infra"`, "infra/defined"},
		{"clusterNetwork, a file's name", `"clusterNetwork": "cluster", "confDir": "/etc/cni/net.d"`, "cluster"},
		{"delegates", `"delegates": [` + conflist + `]`, "cluster"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := scene{keys: tt.keys, files: files, defs: []facts.Definition{def("kube-system/defined", bridge("x")), def("infra/defined", bridge("x"))}, podSpace: "kube-system"}
			p := s.plan(t)
			sameStrings(t, attachments(p), tt.want+"=eth0")
			if !p.Steps[0].Default {
				t.Errorf("step %+v; want default", p.Steps[0])
			}
			step, err := DefaultNetwork(s.config(t), s.defs, s.disk())
			if err != nil || step.Name != tt.want || string(step.List) != string(p.Steps[0].List) {
				t.Errorf("DefaultNetwork = %+v, %v; want that of the plan", step, err)
			}
		})
	}
	for _, tt := range []struct{ name, keys, want string }{
		{"nowhere", `"defaultNetwork": "none"`, "neither a definition (kube-system/none: does not exist) nor a configuration on this node"},
		{"no definition of that namespace", `"defaultNetwork": "infra/none"`, "definition infra/none: does not exist"},
		{"no file", `"defaultNetwork": "/none"`, "/none: file does not exist"},
		{"nothing in a directory", `"defaultNetwork": "/opt/bad"`, "passed over: /opt/bad/a.conflist"},
		{"itself", `"defaultNetwork": "/etc/cni/net.d/00-tenure.conflist"`, "would call itself"},
		{"Multus, which sorts after", `"defaultNetwork": {"name": "multus-cni-network", "type": "multus-shim"}`, "would attach the pod's networks a second time"},
		{"name that leads elsewhere", `"defaultNetwork": "/opt/evil.conflist"`, "a network's name begins"},
		{"without a name", `"defaultNetwork": {"type": "flannel"}`, "name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := scene{keys: tt.keys, files: files}
			s.fails(t, "defaultNetwork", tt.want)
			if _, err := DefaultNetwork(s.config(t), nil, s.disk()); err == nil || !strings.Contains(err.Error(), "defaultNetwork: ") {
				t.Errorf("DefaultNetwork: %v; want an error that names the key", err)
			}
		})
	}
}

// TestInvalidAnnotationStillGivesTheDefaultNetwork (N66).
func TestInvalidAnnotationStillGivesTheDefaultNetwork(t *testing.T) {
	for _, networks := range []string{"[", "a,,b", `{"name": "a"}`, "A_B"} {
		p := scene{networks: networks, keys: `"defaultNetworks": ["extra"]`, defs: []facts.Definition{def("kube-system/extra", bridge("extra"))}}.plan(t)
		sameStrings(t, attachments(p), "cluster=eth0", "kube-system/extra=net1")
	}
}

func TestDefaultNetworkOfAPodsAnnotation(t *testing.T) {
	s := scene{own: "infra/ovn", defs: []facts.Definition{def("infra/ovn", bridge("ovn", "ips", "mac")), def("kube-system/ovn", bridge("ovn")), def("ovn", bridge("ovn", "ips", "mac"))}}
	s.fails(t, "annotation v1.multus-cni.io/default-network", "infra/ovn", "namespaces are isolated")
	for own, want := range map[string]string{"ovn": "kube-system/ovn", "kube-system/ovn": "kube-system/ovn", "shop/ovn": "shop/ovn", "ovn@eth0": "kube-system/ovn"} {
		s.own = own
		sameStrings(t, attachments(s.plan(t)), want+"=eth0")
	}
	s.keys, s.own = `"isolation": "None"`, "infra/ovn"
	sameStrings(t, attachments(s.plan(t)), "infra/ovn=eth0")

	restricted := scene{own: "kube-system/x", defs: []facts.Definition{def("kube-system/x", bridge("x"), npwg.AnnotationNamespaces, "blog")}}
	restricted.fails(t, "kube-system/x", "does not let pods of namespace shop")

	s = scene{own: `[{"name": "ovn", "namespace": "shop", "mac": "02:00:00:00:00:01", "ips": ["10.0.0.5/16"]}]`, defs: s.defs}
	step := s.plan(t).Steps[0]
	if !step.Default || string(step.Capabilities["mac"]) != `"02:00:00:00:00:01"` || string(step.Capabilities["ips"]) != `["10.0.0.5/16"]` || step.Requested.MAC == "" {
		t.Errorf("step %+v; want the default network with what the element asks for", step)
	}
	for own, want := range map[string]string{
		"a,b":                                    "it names 2 networks",
		"none":                                   "does not exist",
		"A":                                      "invalid",
		"ovn@net9":                               "it asks for interface net9",
		"shop/ovn@x":                             "it asks for interface x",
		`[{"name": "ovn", "ips": ["10.0.0.1"]}]`: "capability ips",
	} {
		t.Run(own, func(t *testing.T) {
			s.own = own
			s.fails(t, "annotation v1.multus-cni.io/default-network", want)
		})
	}
	t.Run("its definition is invalid", func(t *testing.T) {
		scene{own: "shop/x", defs: []facts.Definition{def("x", "{")}}.fails(t, "shop/x", "not a CNI configuration")
	})
}

// TestDefaultRouteOnDefaultNetworkToo (N37).
func TestDefaultRouteOnDefaultNetworkToo(t *testing.T) {
	s := scene{own: `[{"name": "own", "namespace": "shop", "default-route": ["10.0.0.1"]}]`, networks: "a", defs: []facts.Definition{def("own", bridge("own")), def("a", bridge("a"))}}
	p := s.plan(t)
	if p.Steps[0].DefaultRoute == nil || p.Steps[0].LosesDefaultRoute || !p.Steps[1].LosesDefaultRoute {
		t.Errorf("steps %+v; want the default network to keep the route", p.Steps)
	}
	s.networks = `[{"name": "a", "default-route": []}]`
	s.fails(t, "shop/own, shop/a", "more than one attachment asks for the default route")
}

// TestClaimOnTheDefaultNetwork (N79): claims are for secondary networks. The pod is told so, and no
// claim is shown.
func TestClaimOnTheDefaultNetwork(t *testing.T) {
	s := scene{own: `[{"name": "own", "namespace": "shop", "ipam-claim-reference": "mine"}]`, networks: `[{"name": "a", "ipam-claim-reference": "other"}]`, defs: []facts.Definition{def("own", bridge("own")), def("a", bridge("a"))}}
	p := s.plan(t)
	if len(p.Warnings) != 1 || p.Warnings[0].Reason != ReasonClaim || !strings.Contains(p.Warnings[0].Message, "annotation v1.multus-cni.io/default-network, network shop/own: ipam-claim-reference mine has no effect") {
		t.Errorf("warnings %v; want one of the default network's claim", p.Warnings)
	}
	var b strings.Builder
	if err := Explain(&b, p, nil, ""); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "mine: its addresses") || !strings.Contains(text, "other: its addresses") || !strings.Contains(text, ReasonClaim+": ") {
		t.Errorf("it is explained as\n%s\nwant the secondary network's claim alone, and the warning", text)
	}
	s.own = `[{"name": "own", "namespace": "shop", "ipam-claim-reference": "mine", "ips": ["10.0.0.5"]}]`
	s.fails(t, "shop/own", "both ips and ipam-claim-reference")
}

func TestExtraNetworks(t *testing.T) {
	s := scene{
		keys: `"defaultNetworks": ["one", "infra/two@stor0", "three"]`, networks: "a,a@net4",
		defs: []facts.Definition{def("kube-system/one", bridge("one")), def("infra/two", bridge("two")), def("a", bridge("a"))}, files: map[string]string{"3.conf": bridge("three")},
	}
	sameStrings(t, attachments(s.plan(t)), "cluster=eth0", "kube-system/one=net3", "infra/two=stor0", "three=net5", "shop/a=net1", "shop/a=net4")
	s.networks = ""
	for _, s.podSpace = range []string{"kube-system", "tenure-system"} {
		sameStrings(t, attachments(s.plan(t)), "cluster=eth0")
	}
	s.keys = `"delegates": [` + bridge("cluster") + `, ` + bridge("second") + `], "defaultNetworks": ["one"]`
	sameStrings(t, attachments(s.plan(t)), "cluster=eth0", "second=net1")
	scene{keys: `"defaultNetworks": ["none"]`}.fails(t, "defaultNetworks[0]", "neither a definition")
	scene{keys: `"defaultNetworks": ["one@lan0"]`, networks: "a@lan0", defs: s.defs}.fails(t, "element 1", "interface lan0 is already that of defaultNetworks[0]")
}

// TestIsolation (N77).
func TestIsolation(t *testing.T) {
	for _, tt := range []struct {
		name, keys string
		def        facts.Definition
		refused    string
	}{
		{"another namespace, and not there", "", facts.Definition{Ref: facts.Ref{Namespace: "infra", Name: "x"}, Missing: "does not exist"}, "namespaces are isolated"},
		{"own namespace", "", def("shop/x", bridge("x")), ""},
		{"another namespace", "", def("infra/x", bridge("x")), "namespaces are isolated"},
		{"off", `"isolation": "None"`, def("infra/x", bridge("x")), ""},
		{"global namespaces", `"globalNamespaces": "infra, default"`, def("infra/x", bridge("x")), ""},
		{"other global namespaces", `"globalNamespaces": ["default"]`, def("infra/x", bridge("x")), "its own namespace, default"},
		{"of Multus's configuration", `"clusterNetwork": "/c"`, def("infra/x", bridge("x")), ""},
		{"of Multus's configuration, on", `"clusterNetwork": "/c", "namespaceIsolation": true`, def("infra/x", bridge("x")), "namespaces are isolated"},
		{"of Multus's configuration, default", `"clusterNetwork": "/c", "namespaceIsolation": true`, def("default/x", bridge("x")), ""},
		{"named by the definition", "", def("infra/x", bridge("x"), npwg.AnnotationNamespaces, "blog, shop"), ""},
		{"all named by the definition", "", def("infra/x", bridge("x"), npwg.AnnotationNamespaces, "*"), ""},
		{"not named by the definition", `"isolation": "None"`, def("infra/x", bridge("x"), npwg.AnnotationNamespaces, "blog"), "does not let pods of namespace shop"},
		{"nobody named by a global definition", `"globalNamespaces": "infra"`, def("infra/x", bridge("x"), npwg.AnnotationNamespaces, ""), "does not let pods of namespace shop"},
		{"selected by the definition", "", def("infra/x", bridge("x"), npwg.AnnotationSelector, "team in (blue, red), !old"), ""},
		{"not selected by the definition", "", def("infra/x", bridge("x"), npwg.AnnotationSelector, "team=red"), "does not let pods of namespace shop"},
		{"named, not selected", "", def("infra/x", bridge("x"), npwg.AnnotationSelector, "team=red", npwg.AnnotationNamespaces, "shop"), ""},
		{"a selector that cannot be read", "", def("infra/x", bridge("x"), npwg.AnnotationSelector, "team in blue"), npwg.AnnotationSelector + " cannot be read"},
		{"an empty selector", "", def("infra/x", bridge("x"), npwg.AnnotationSelector, ""), npwg.AnnotationSelector + " cannot be read"},
		{"itself, whatever it says", "", def("shop/x", bridge("x"), npwg.AnnotationNamespaces, "blog"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := scene{keys: tt.keys, networks: tt.def.Ref.String(), defs: []facts.Definition{tt.def}, labels: map[string]string{"team": "blue"}, files: map[string]string{"/c": bridge("cluster")}}
			if tt.refused != "" {
				s.fails(t, "element 1", tt.def.Ref.String(), tt.refused, npwg.AnnotationNamespaces)
				return
			}
			sameStrings(t, attachments(s.plan(t)), "cluster=eth0", tt.def.Ref.String()+"=net1")
		})
	}
}

// TestDevices (N64).
func TestDevices(t *testing.T) {
	config := func(name string) string {
		return `{"cniVersion": "1.0.0", "name": "` + name + `", "plugins": [{"type": "sriov", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}, {"type": "tuning"}]}`
	}
	sriov := func(name string, devices ...string) facts.Definition {
		d := def(name, config(name), npwg.AnnotationResource, "intel.com/sriov")
		d.Devices = devices
		return d
	}
	s := scene{networks: "a,b,a", defs: []facts.Definition{sriov("a", "0000:18:02.5", "0000:18:02.6", "x/y"), sriov("b", "0000:18:02.5", "0000:18:02.6", "x/y")}}
	p := s.plan(t)
	// One after the other, whatever definition asks.
	for i, id := range []string{"0000:18:02.5", "0000:18:02.6", "x/y"} {
		step := p.Steps[i+1]
		file := fmt.Sprintf("/var/run/k8s.cni.cncf.io/devinfo/cni/%s-CONTAINER-ID-net%d-device.json", step.Network, i+1)
		want := Device{Resource: "intel.com/sriov", ID: id, Source: "/var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-sriov-" + strings.ReplaceAll(id, "/", "-") + "-device.json", File: file}
		if step.Device == nil || *step.Device != want {
			t.Errorf("device %+v; want %+v", step.Device, want)
		}
		got := stdins(t, step)
		runtime, ok := got[0]["runtimeConfig"].(map[string]any)
		if !ok || got[0]["deviceID"] != id || got[0]["pciBusID"] != id || runtime["CNIDeviceInfoFile"] != file || runtime["deviceID"] != id {
			t.Errorf("first plugin gets %v; want the device and the file", got[0])
		}
		if got[1]["deviceID"] != nil || got[1]["runtimeConfig"] != nil {
			t.Errorf("second plugin gets %v; want no device", got[1])
		}
	}
	s.networks = "a,a,a,b"
	s.fails(t, "element 4", "shop/b", "all 3 of the pod's are assigned")

	s = scene{networks: "a", defs: []facts.Definition{sriov("a")}}
	s.fails(t, "element 1", "shop/a", "it takes a device of intel.com/sriov, and the kubelet shows none of this pod")
	plain := def("a", bridge("a"), npwg.AnnotationResource, "intel.com/sriov")
	plain.Devices = []string{"d"}
	if d := (scene{networks: "a", defs: []facts.Definition{plain}}).plan(t).Steps[1].Device; d == nil || d.ID != "d" || d.File != "" {
		t.Errorf("without the capability: %+v; want a device and no file", d)
	}
}

// TestDeviceOfTwoNames: a device of a ResourceClaim is found by its kind and by the ResourceClaim's
// name, and is taken once. Devices of two kinds are two, whatever their IDs.
func TestDeviceOfTwoNames(t *testing.T) {
	of := func(name, resource string, devices ...string) facts.Definition {
		d := def(name, fmt.Sprintf(takes, name), npwg.AnnotationResource, resource)
		d.SetDevices(devices)
		return d
	}
	s := scene{defs: []facts.Definition{
		of("kind", "example.com/vf", "example.com/vf=0", "example.com/vf=1"), of("claim", "nics", "example.com/vf=0", "example.com/vf=1", "example.com/gpu=0"),
		of("gpu", "example.com/gpu", "example.com/gpu=0"),
	}}
	for _, tt := range []struct{ networks, want string }{
		{"kind,claim", "0 of example.com/vf, 1 of nics"},
		{"claim,kind,claim", "0 of nics, 1 of example.com/vf, 0 of nics"},
		{"gpu,kind,claim", "0 of example.com/gpu, 0 of example.com/vf, 1 of nics"},
	} {
		s.networks = tt.networks
		var got []string
		for _, step := range s.plan(t).Steps[1:] {
			got = append(got, step.Device.ID+" of "+step.Device.Resource)
		}
		if has := strings.Join(got, ", "); has != tt.want {
			t.Errorf("%s: devices %s; want %s", tt.networks, has, tt.want)
		}
	}
	s.networks = "claim,claim,gpu,claim"
	s.fails(t, "element 4", "shop/claim", "all 3 of the pod's are assigned")

	// An agent of an earlier version says no names, and nothing tells that they are the same.
	s.defs[0].DeviceNames, s.networks = nil, "kind,gpu"
	if p := s.plan(t); p.Steps[1].Device.ID != "0" || p.Steps[2].Device.ID != "0" {
		t.Errorf("devices %+v, %+v; want both", p.Steps[1].Device, p.Steps[2].Device)
	}
	// A running pod keeps what it has.
	s.defs[0].DeviceNames, s.networks = s.defs[1].DeviceNames[:2], "kind@x"
	was := s.plan(t)
	s.networks = "claim@y,kind@x"
	if c, err := Difference(was.Steps, s.plan(t)); err == nil || !strings.Contains(err.Error(), "device 0 of nics is that of interface x") {
		t.Errorf("%s, %v; want that interface y does not take the device of x", shown(was.Steps, c), err)
	}
}

// TestAddressesAreNoDevices: a definition may name the resource by which its pods ask for
// addresses. It takes no device, and nobody is warned that there is none.
func TestAddressesAreNoDevices(t *testing.T) {
	d := def("a", `{"cniVersion": "1.0.0", "name": "a", "type": "macvlan", "capabilities": {"CNIDeviceInfoFile": true}}`, npwg.AnnotationResource, "tenure.dev/lan")
	d.Devices = []string{"d"}
	p := (scene{networks: "a", defs: []facts.Definition{d}}).plan(t)
	if got := p.Steps[1].Device; got == nil || got.ID != "" || got.Resource != "" || len(p.Warnings) != 0 {
		t.Errorf("device %+v, warnings %+v; want a file alone, and no warning", got, p.Warnings)
	}
}

// manyNames is an annotation that names as many definitions.
func manyNames(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, ",n%x", i)
	}
	return b.String()[1:]
}

func TestWanted(t *testing.T) {
	c := scene{keys: `"clusterNetwork": "c", "defaultNetworks": ["d", "infra/e", "/f", "c"]`}.config(t)
	pod := facts.Pod{PodRef: facts.PodRef{Namespace: "shop", Name: "web"}, Annotations: map[string]string{npwg.AnnotationDefaultNetwork: "own", npwg.AnnotationNetworks: `[{"name": "a", "ips": []}, {"namespace": "x"}, {"name": "a"}]`}}
	var all []string
	for _, ref := range Wanted(c.Question(pod.PodRef), pod) {
		all = append(all, ref.String())
	}
	sameStrings(t, all, "kube-system/c", "kube-system/d", "infra/e", "kube-system/own", "shop/a")
	pod.Annotations[npwg.AnnotationNetworks] = manyNames(40_000)
	if got := Wanted(c.Question(pod.PodRef), pod); len(got) != maxWanted {
		t.Errorf("a pod that names 40000 definitions: %d are looked up; want %d", len(got), maxWanted)
	}
	for key, want := range map[string]bool{
		npwg.AnnotationNetworks: true, npwg.AnnotationDefaultNetwork: true, npwg.AnnotationResource: true, npwg.AnnotationVersion: true, npwg.AnnotationNamespaces: true, npwg.AnnotationSelector: true,
		npwg.AnnotationStatus: false, "kubernetes.io/psp": false,
	} {
		if ReadsAnnotation(key) != want {
			t.Errorf("ReadsAnnotation(%s) = %t", key, !want)
		}
	}
}

func TestLookupThatCannotReadTheDirectory(t *testing.T) {
	f := Files{Root: brokenFS{}, ConfDir: "/etc/cni/net.d"}
	if _, err := f.Lookup("x"); !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "/etc/cni/net.d: permission denied") {
		t.Errorf("Lookup: %v; want the reason, with the directory, and not ErrNotFound", err)
	}
	f = Files{Root: fstest.MapFS{}, ConfDir: "/etc/cni/net.d"}
	if _, err := f.Lookup("x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Lookup without a directory: %v; want ErrNotFound", err)
	}
}

// brokenFS lets nobody in.
type brokenFS struct{}

func (brokenFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}
