package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// A scene is what a plan is made of; the zero scene is a pod of namespace shop with
// its default network alone.
type scene struct {
	keys     string // further members of the plugin's configuration
	networks string // the annotation
	own      string // the default-network annotation
	labels   map[string]string
	defs     []facts.Definition
	files    map[string]string // below /etc/cni/net.d unless absolute
	runtime  map[string]json.RawMessage
	args     []Arg
	podSpace string // shop if empty

	podNetworks string // the pod's list of PodNetworks
	judged      []facts.PodNetwork
	off         bool // they are not served

	vifs    []facts.VIF
	vifsOff bool
}

const inlineDefault = `"defaultNetwork": {"cniVersion": "1.0.0", "name": "cluster", "type": "flannel"}`

func (s scene) config(t *testing.T) *Config {
	t.Helper()
	keys := s.keys
	if !strings.Contains(keys, "defaultNetwork\"") && !strings.Contains(keys, "clusterNetwork") && !strings.Contains(keys, "delegates") {
		keys = strings.TrimSuffix(inlineDefault+","+keys, ",")
	}
	c, err := ParseConfig([]byte(`{"cniVersion": "1.1.0", "name": "tenure", "type": "tenure-attach", ` + keys + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s scene) disk() Files {
	root := fstest.MapFS{}
	for name, text := range s.files {
		if !strings.HasPrefix(name, "/") {
			name = "/etc/cni/net.d/" + name
		}
		root[name[1:]] = &fstest.MapFile{Data: []byte(text)}
	}
	return Files{Root: root, ConfDir: "/etc/cni/net.d"}
}

func (s scene) make(t *testing.T) (Plan, error) {
	t.Helper()
	if s.podSpace == "" {
		s.podSpace = "shop"
	}
	pod := facts.Pod{PodRef: facts.PodRef{Namespace: s.podSpace, Name: "web", UID: "u1"}, Annotations: map[string]string{}, NamespaceLabels: s.labels}
	if s.networks != "" {
		pod.Annotations[npwg.AnnotationNetworks] = s.networks
	}
	if s.podNetworks != "" {
		pod.Annotations[podnetwork.AnnotationNetworks] = s.podNetworks
	}
	if s.own != "" {
		pod.Annotations[npwg.AnnotationDefaultNetwork] = s.own
	}
	call := CallOf(pod.PodRef)
	call.Runtime, call.Args = s.runtime, append(call.Args, s.args...)
	c := s.config(t)
	answer := facts.Answer{Pod: pod, PodNetworks: s.judged, NoPodNetworks: s.off, VIFs: s.vifs, NoVIFs: s.vifsOff}
	wanted := Wanted(c.Question(pod.PodRef), pod) // as the agent does
	for _, n := range s.judged {
		if n.Definition.Name != "" {
			wanted = append(wanted, n.Definition)
		}
	}
	for _, v := range s.vifs {
		wanted = append(wanted, v.Definition)
	}
	for _, ref := range wanted {
		i := slices.IndexFunc(s.defs, func(d facts.Definition) bool { return d.Ref == ref })
		if i < 0 {
			answer.Networks = append(answer.Networks, facts.Definition{Ref: ref, Missing: "does not exist"})
		} else {
			answer.Networks = append(answer.Networks, s.defs[i])
		}
	}
	return Make(c, call, answer, s.disk())
}

// plan returns the plan of a scene without faults.
func (s scene) plan(t *testing.T) Plan {
	t.Helper()
	p, err := s.make(t)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fails checks that there is no plan, for a reason that has all of the texts and
// names the pod.
func (s scene) fails(t *testing.T, texts ...string) {
	t.Helper()
	_, err := s.make(t)
	if err == nil {
		t.Fatalf("the pod has a plan; want an error with %q", texts)
	}
	for _, text := range append(texts, "pod shop/web: ") {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q; want %q in it", err, text)
		}
	}
}

// def is a definition of namespace shop, or of the one in name.
func def(name, config string, annotations ...string) facts.Definition {
	namespace, object, ok := strings.Cut(name, "/")
	if !ok {
		namespace, object = "shop", name
	}
	d := facts.Definition{Ref: facts.Ref{Namespace: namespace, Name: object}, Annotations: map[string]string{}}
	if config != "" {
		d.Config = &config
	}
	for i := 0; i < len(annotations); i += 2 {
		d.Annotations[annotations[i]] = annotations[i+1]
	}
	return d
}

// bridge is the configuration of a network with the given capabilities.
func bridge(name string, capabilities ...string) string {
	on := map[string]bool{}
	for _, c := range capabilities {
		on[c] = true
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "type": "bridge", "capabilities": %s}`, name, encode(on))
}

// stdins returns what the plugins of a step get.
func stdins(t *testing.T, s Step) (all []map[string]any) {
	t.Helper()
	runs, err := s.Invocations()
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		var v map[string]any
		if err := json.Unmarshal(run.Config, &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// values is a JSON object, for comparing.
func values(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// attachments returns the networks of a plan with their interfaces.
func attachments(p Plan) (all []string) {
	for _, s := range p.Steps {
		all = append(all, s.Name+"="+s.IfName)
	}
	return all
}

func sameStrings(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConfigurationsOfDefinitions (N3, N7, N8, N9, N10, N11, N12, N13).
func TestConfigurationsOfDefinitions(t *testing.T) {
	file := `{"cniVersion": "1.0.0", "name": "net-a", "type": "from-file"}`
	other := strings.ReplaceAll(file, "from-file", "single")
	conflist := `{"cniVersion": "1.0.0", "name": "net-a", "plugins": [{"type": "from-list"}]}`
	for _, tt := range []struct {
		name, config string
		files        map[string]string
		want         string // type
	}{
		{"N7 spec.config before files", `{"cniVersion": "1.0.0", "name": "net-a", "type": "spec"}`, map[string]string{"a.conflist": conflist}, "spec"},
		{"N3 no spec", "", map[string]string{"a.conflist": conflist}, "from-list"},
		{"N8 empty spec.config", "  ", map[string]string{"a.conf": file}, "from-file"},
		{"N9 list before single", "", map[string]string{"a.conf": file, "z.conflist": conflist}, "from-list"},
		{"N9 the specification's extension", "", map[string]string{"a.conf": file, "z.configlist": conflist}, "from-list"},
		{"N9 malformed files are passed over", "", map[string]string{"a.conflist": "{", "b.conflist": conflist, "c.conflist": "[]"}, "from-list"},
		{"N10 .config", "", map[string]string{"a.config": file}, "from-file"},
		{"N10 .json", "", map[string]string{"b.json": other, "x.txt": file}, "single"},
		{"N10 in order", "", map[string]string{"a.json": other, "b.conf": file}, "single"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := scene{networks: "net-a", defs: []facts.Definition{def("net-a", tt.config)}, files: tt.files}.plan(t)
			if got := stdins(t, p.Steps[1])[0]; got["type"] != tt.want {
				t.Errorf("plugin %v; want type %s", got, tt.want)
			}
		})
	}
	t.Run("N5 somebody's own configuration in annotations", func(t *testing.T) {
		d := def("net-a", "", "openstack.org/kuryr-config", `{"subnetId": "x"}`)
		p := scene{networks: "net-a", defs: []facts.Definition{d}, files: map[string]string{"a.conf": file}}.plan(t)
		if got := stdins(t, p.Steps[1])[0]; len(got) != 3 || got["type"] != "from-file" {
			t.Errorf("plugin gets %v; want the file's configuration and nothing else", got)
		}
	})
	t.Run("N11 neither", func(t *testing.T) {
		scene{networks: "net-a", defs: []facts.Definition{def("net-a", "")}, files: map[string]string{"a.conf": bridge("else"), "b.conf": "{"}}.
			fails(t, "element 1", "shop/net-a", "no spec.config", "/etc/cni/net.d", "b.conf", "3.4.1")
	})
	t.Run("N12 name injected", func(t *testing.T) {
		p := scene{networks: "a-bridge-network", defs: []facts.Definition{def("a-bridge-network", `{"cniVersion": "0.3.0", "type": "awesome-plugin"}`)}}.plan(t)
		want := values(t, `{"cniVersion": "0.3.0", "type": "awesome-plugin", "name": "a-bridge-network"}`)
		if diff := cmp.Diff(want, stdins(t, p.Steps[1])[0]); diff != "" {
			t.Errorf("stdin (-want +got):\n%s", diff)
		}
	})
	t.Run("N12 N73 name and version injected into lists", func(t *testing.T) {
		p := scene{networks: "a", defs: []facts.Definition{def("a", `{"cniVersion": "0.3.1", "plugins": [{"type": "x", "cniVersion": "0.2.0"}, {"type": "y"}]}`)}}.plan(t)
		for _, got := range stdins(t, p.Steps[1]) {
			if got["name"] != "a" || got["cniVersion"] != "0.3.1" {
				t.Errorf("stdin %v; want name a and cniVersion 0.3.1", got)
			}
		}
	})
	t.Run("N13 another name works", func(t *testing.T) {
		p := scene{networks: "a", defs: []facts.Definition{def("a", bridge("blue"))}}.plan(t)
		if p.Steps[1].Network != "blue" || p.Steps[1].Name != "shop/a" || len(p.Notes) != 1 {
			t.Errorf("step %+v, notes %q; want network blue of definition shop/a, and a note", p.Steps[1], p.Notes)
		}
	})
}

// TestConfigurationsThatCannotRun (N4).
func TestConfigurationsThatCannotRun(t *testing.T) {
	for _, tt := range []struct{ name, config, want string }{
		{"not JSON", "{", "not a CNI configuration"},
		{"null", "null", "not a CNI configuration"},
		{"a list", "[]", "not a CNI configuration"},
		{"no type", `{"name": "x"}`, "has none"},
		{"type is a number", `{"name": "x", "type": 1}`, "type: number is not what CNI wants"},
		{"no plugins", `{"name": "x", "plugins": []}`, "plugins"},
		{"plugin without type", `{"name": "x", "plugins": [{}]}`, "plugins[0]: type: missing"},
		{"plugin that is no object", `{"name": "x", "plugins": [1]}`, "plugins[0]"},
		{"bad name", `{"name": "../x", "type": "t"}`, "a network's name"},
		{"capabilities", `{"name": "x", "type": "t", "capabilities": {"ips": "yes"}}`, "capabilities"},
		{"itself", `{"name": "x", "type": "tenure-attach"}`, "would call itself"},
		{"D6 unknown version", `{"cniVersion": "2.0.0", "name": "x", "type": "t"}`, "cniVersion 2.0.0: none that is known"},
		{"D6 no version", `{"cniVersion": "new", "name": "x", "type": "t"}`, "cniVersion"},
		{"ipam", `{"name": "x", "type": "t", "ipam": 1}`, "ipam: number"},
		{"D8 disableCheck", `{"name": "x", "disableCheck": null, "plugins": [{"type": "t"}]}`, "disableCheck: null"},
		{"D7 nothing to load", `{"name": "x", "loadOnlyInlinedPlugins": true}`, "loadOnlyInlinedPlugins"},
		{"D7 neither true nor false", `{"name": "x", "loadOnlyInlinedPlugins": 1, "plugins": [{"type": "t"}]}`, "loadOnlyInlinedPlugins: 1"},
		{"two types", `{"name": "x", "type": "tenure-attach", "Type": "macvlan"}`, `type: it is "tenure-attach"`},
		{"two types of a plugin", `{"name": "x", "plugins": [{"TYPE": "macvlan", "type": "tenure-attach"}, {"type": "t"}]}`, "is run by tenure-attach"},
		{"another type", `{"name": "x", "plugins": [{"Type": "macvlan"}]}`, `type: it is ""`},
		{"N32 args", `{"name": "x", "type": "t", "args": [1]}`, "args: [1] is not an object"},
		{"N32 args.cni", `{"name": "x", "type": "t", "args": {"cni": "no"}}`, `args: cni: "no" is not an object`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scene{networks: `[{"name": "x", "cni-args": {"k": "v"}}]`, defs: []facts.Definition{def("x", tt.config)}}.fails(t, "element 1", "shop/x", tt.want)
		})
	}
}

// TestHighestKnownVersion (D6).
func TestHighestKnownVersion(t *testing.T) {
	p := scene{networks: "x", defs: []facts.Definition{def("x", `{"cniVersion": "0.4.0", "cniVersions": ["0.3.1", "1.0.0", "1.1.0", "2.0.0"], "plugins": [{"type": "t"}]}`)}}.plan(t)
	if got := stdins(t, p.Steps[1])[0]["cniVersion"]; got != "1.1.0" {
		t.Errorf("cniVersion %v; want 1.1.0", got)
	}
}

// TestPluginsFromFiles (D7).
func TestPluginsFromFiles(t *testing.T) {
	files := map[string]string{
		"x.conflist":  `{"cniVersion": "1.1.0", "name": "x", "plugins": [{"type": "first"}]}`,
		"x/20-c.conf": `{"type": "third"}`, "x/10-b.conf": `{"type": "second"}`, "x/30.json": `{"type": "no"}`,
	}
	s := scene{networks: "x", defs: []facts.Definition{def("x", "")}, files: files}
	var types []string
	for _, got := range stdins(t, s.plan(t).Steps[1]) {
		types = append(types, fmt.Sprint(got["type"]))
	}
	sameStrings(t, types, "first", "second", "third")

	files["x.conflist"] = `{"cniVersion": "1.1.0", "name": "x", "loadOnlyInlinedPlugins": "true", "plugins": [{"type": "first"}]}`
	if got := stdins(t, s.plan(t).Steps[1]); len(got) != 1 {
		t.Errorf("plugins %v; want the inlined one", got)
	}
	files["x.conflist"] = `{"cniVersion": "1.1.0", "name": "x"}`
	if got := stdins(t, s.plan(t).Steps[1]); len(got) != 2 {
		t.Errorf("plugins %v; want those of files", got)
	}
	delete(files, "x/20-c.conf")
	delete(files, "x/10-b.conf")
	s.fails(t, "the list has none")
}

// TestSwitchesStayInTheList (D8).
func TestSwitchesStayInTheList(t *testing.T) {
	p := scene{networks: "x", defs: []facts.Definition{def("x", `{"cniVersion": "1.1.0", "disableCheck": true, "disableGC": true, "plugins": [{"type": "t"}]}`)}}.plan(t)
	got := values(t, string(p.Steps[1].List))
	if got["disableCheck"] != true || got["disableGC"] != true {
		t.Errorf("list %v; want disableCheck and disableGC", got)
	}
}

// TestOrderAndNames (N14, N15, N44, N46, N67).
func TestOrderAndNames(t *testing.T) {
	defs := []facts.Definition{def("net-a", bridge("net-a")), def("net-b", bridge("net-b")), def("other-ns/net-c", bridge("net-c"), npwg.AnnotationNamespaces, "shop")}
	want := []string{"cluster=eth0", "shop/net-a=net1", "shop/net-b=net2", "other-ns/net-c=net3", "shop/net-a=net4"}
	list := scene{networks: "net-a,net-b, other-ns/net-c ,net-a", defs: defs}.plan(t)
	sameStrings(t, attachments(list), want...)
	if !list.Steps[0].Default || list.Steps[1].Default {
		t.Errorf("steps %+v; want the first to be the default network's alone", list.Steps)
	}
	inJSON := scene{networks: `[{"name": "net-a"}, {"name": "net-b"}, {"name": "net-c", "namespace": "other-ns"}, {"name": "net-a"}]`, defs: defs}.plan(t)
	if diff := cmp.Diff(list, inJSON, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("N14 the two formats differ (-list +JSON):\n%s", diff)
	}
	sameStrings(t, attachments(scene{}.plan(t)), "cluster=eth0")
}

// TestNamesInUse (N29).
func TestNamesInUse(t *testing.T) {
	defs := []facts.Definition{def("a", bridge("a")), def("b", bridge("b"))}
	for _, tt := range []struct{ name, networks, want string }{
		{"asked for twice", "a@lan0,b@lan0", "interface lan0 is already that of element 1"},
		{"the default network's", "a@eth0", "interface eth0 is already that of the default network"},
		{"one that another has by its place", "a,b,a@net2", "interface net2 is already that of element 2"},
		{"its place's, that another asked for", "a@net2,b", "interface net2 is already that of element 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scene{networks: tt.networks, defs: defs}.fails(t, tt.want, "4.1.2.1.5", "ask for another name")
		})
	}
}

// TestInvalidAnnotationIsIgnored (N20, N25, N28, N33, N35, N37, N40).
func TestInvalidAnnotationIsIgnored(t *testing.T) {
	s := scene{networks: `[{"name": "a"}, {"name": "a", "ips": []}]`, defs: []facts.Definition{def("a", bridge("a", "ips"))}}
	p := s.plan(t)
	sameStrings(t, attachments(p), "cluster=eth0")
	if len(p.Warnings) != 1 || p.Warnings[0].Reason != ReasonInvalid || !strings.Contains(p.Warnings[0].Message, "element 2: ips") {
		t.Errorf("warnings %+v; want one that says what is wrong", p.Warnings)
	}
	s.keys = `"invalidAnnotation": "Fail"`
	s.fails(t, "annotation k8s.v1.cni.cncf.io/networks", "element 2: ips", "correct it")
}

// TestUnknownKeys (N17).
func TestUnknownKeys(t *testing.T) {
	p := scene{networks: `[{"name": "a", "org.foo.bar.k": 1, "ip": "10.0.0.1"}]`, defs: []facts.Definition{def("a", bridge("a"))}}.plan(t)
	sameStrings(t, attachments(p), "cluster=eth0", "shop/a=net1")
	if len(p.Warnings) != 1 || p.Warnings[0].Reason != ReasonUnknownKey || !strings.Contains(p.Warnings[0].Message, "key ip has") {
		t.Errorf("warnings %+v; want one about the key ip", p.Warnings)
	}
}

func TestDepthIsBounded(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	with := func(depth int) facts.Definition {
		return def("a", `{"cniVersion": "1.0.0", "type": "bridge", "x": `+deep(depth)+`}`)
	}
	scene{networks: "a", defs: []facts.Definition{with(90)}}.plan(t)
	scene{networks: "a", defs: []facts.Definition{with(9998)}}.fails(t, "element 1", "shop/a", "more than 100 objects and lists")
	args := `[{"name": "a", "cni-args": {"x": ` + deep(9990) + `}}]`
	scene{networks: args, defs: []facts.Definition{with(1)}}.fails(t, "element 1", "shop/a", "more than 100 objects and lists")
}

// TestWarningsAreBounded: they stand in the journal, in the report and in the status.
func TestWarningsAreBounded(t *testing.T) {
	var keys strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&keys, `, "key%d": 1`, i)
	}
	for what, networks := range map[string]string{
		"unknown keys":       `[{"name": "a"` + keys.String() + `}]`,
		"an invalid element": `[{"name": "` + strings.Repeat("A", 100_000) + `"}]`,
	} {
		p, err := scene{networks: networks, defs: []facts.Definition{def("a", bridge("a"))}}.make(t)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, w := range p.Warnings {
			total += len(w.Message)
		}
		if n := len(p.Warnings); n == 0 || n > 17 || total > 17<<10 {
			t.Errorf("%s: %d warnings of %d bytes; want some, 17 KB at most", what, n, total)
		}
	}
}

// TestCapabilityArguments (N21, N26, N34, N36, N41).
func TestCapabilityArguments(t *testing.T) {
	for _, tt := range []struct{ row, capability, keys, want string }{
		{"N21", "ips", `"ips": ["10.2.2.42/24", "2001:db8::5/64"]`, `["10.2.2.42/24", "2001:db8::5/64"]`},
		{"N26", "mac", `"mac": "02:23:45:67:89:AB"`, `"02:23:45:67:89:ab"`},
		{"N34", "portMappings", `"portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "TcP"}, {"hostPort": 1, "containerPort": 65535}]`,
			`[{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}, {"hostPort": 1, "containerPort": 65535, "protocol": "tcp"}]`},
		{"N36", "bandwidth", `"bandwidth": {"ingressRate": 1000, "egressRate": 5, "egressBurst": 7}`,
			`{"ingressRate": 1000, "ingressBurst": 2147483647, "egressRate": 5, "egressBurst": 7}`},
		{"N41", "infinibandGUID", `"infiniband-guid": "24:8a:07:03:00:8d:ae:2f"`, `"24:8a:07:03:00:8d:ae:2f"`},
	} {
		config := `{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "first"}, {"type": "second", "capabilities": {%q: %v}}]}`
		networks := `[{"name": "a", ` + tt.keys + `}]`
		t.Run(tt.row+" "+tt.capability, func(t *testing.T) {
			p := scene{networks: networks, defs: []facts.Definition{def("a", fmt.Sprintf(config, tt.capability, true))}}.plan(t)
			got := stdins(t, p.Steps[1])
			if got[0]["runtimeConfig"] != nil {
				t.Errorf("the first plugin gets runtimeConfig %v; it declares no capability", got[0]["runtimeConfig"])
			}
			want := values(t, fmt.Sprintf(`{%q: %s}`, tt.capability, tt.want))
			if diff := cmp.Diff(any(want), got[1]["runtimeConfig"]); diff != "" {
				t.Errorf("runtimeConfig (-want +got):\n%s", diff)
			}
		})
		t.Run("N22 "+tt.row+" "+tt.capability+" required", func(t *testing.T) {
			scene{networks: networks, defs: []facts.Definition{def("a", fmt.Sprintf(config, tt.capability, false))}}.
				fails(t, "element 1", "shop/a", "declares the capability "+tt.capability, "4.1.2.1.", `add "capabilities": {"`+tt.capability+`": true}`)
		})
	}
}

// TestArgumentsWithoutCapability: where it is so configured, addresses and a MAC go into CNI_ARGS
// as Multus passes them, with a warning; other keys fail all the same.
func TestArgumentsWithoutCapability(t *testing.T) {
	const keys = `"missingCapability": "CNIArgs"`
	none := []facts.Definition{def("a", `{"cniVersion": "1.0.0", "name": "a", "type": "t"}`)}
	asked := `[{"name": "a", "ips": ["10.2.2.42/24", "2001:db8::5"], "mac": "02:23:45:67:89:ab"}]`
	p := scene{networks: asked, defs: none, keys: keys}.plan(t)
	args := joinArgs(p.Steps[1].Args)
	for _, want := range []string{"IgnoreUnknown=1", "IP=10.2.2.42/24,2001:db8::5", "MAC=02:23:45:67:89:ab"} {
		if !slices.Contains(strings.Split(args, ";"), want) {
			t.Errorf("CNI_ARGS %s; want %s in it", args, want)
		}
	}
	if got := stdins(t, p.Steps[1])[0]["runtimeConfig"]; got != nil {
		t.Errorf("runtimeConfig %v; want none", got)
	}
	for i, want := range []string{`"capabilities": {"ips": true}`, `"capabilities": {"mac": true}`} {
		if len(p.Warnings) != 2 || p.Warnings[i].Reason != ReasonArgs || !strings.Contains(p.Warnings[i].Message, want) {
			t.Fatalf("warnings %+v; want that of %s in place %d", p.Warnings, want, i)
		}
	}
	scene{networks: `[{"name": "a", "bandwidth": {"ingressRate": 1}}]`, defs: none, keys: keys}.fails(t, "element 1", "shop/a", "declares the capability bandwidth")
	declared := []facts.Definition{def("a", `{"cniVersion": "1.0.0", "name": "a", "type": "t", "capabilities": {"ips": true, "mac": true}}`)}
	p = scene{networks: asked, defs: declared, keys: keys}.plan(t)
	if args := joinArgs(p.Steps[1].Args); strings.Contains(args, "IP=") || strings.Contains(args, "MAC=") || len(p.Warnings) > 0 {
		t.Errorf("CNI_ARGS %s, warnings %v of a network that declares both; want neither", args, p.Warnings)
	}
}

// TestVersion1 (N24, N27).
func TestVersion1(t *testing.T) {
	defs := func(config string, annotations ...string) []facts.Definition {
		return []facts.Definition{def("a", config, annotations...)}
	}
	config := `{"cniVersion": "1.0.0", "name": "a", "type": "t", "args": {"cni": {"ips": ["10.0.0.9"], "k": 1}, "other": {}}}`
	networks := `[{"name": "a", "ips": ["10.0.0.1"], "mac": "80:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22", "bandwidth": 3, "default-route": ["no"]}]`
	for name, s := range map[string]scene{
		"for the definition":   {networks: networks, defs: defs(config, npwg.AnnotationVersion, "1")},
		"for the whole plugin": {networks: networks, defs: defs(config), keys: `"specVersion": "1"`},
	} {
		t.Run("N24 N27 "+name, func(t *testing.T) {
			step := s.plan(t).Steps[1]
			want := values(t, `{"cni": {"ips": ["10.0.0.1"], "k": 1, "mac": "80:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22"}, "other": {}}`)
			got := stdins(t, step)[0]
			if diff := cmp.Diff(any(want), got["args"]); diff != "" || got["runtimeConfig"] != nil {
				t.Errorf("stdin %v; args (-want +got):\n%s", got, diff)
			}
			if !slices.Equal(step.Requested.IPs, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) || !strings.HasPrefix(step.Requested.MAC, "80:00:") || step.DefaultRoute != nil {
				t.Errorf("step %+v; want the address and the MAC wanted, and no default route", step)
			}
		})
	}
	t.Run("N24 a prefix length makes the annotation invalid", func(t *testing.T) {
		p := scene{networks: `[{"name": "a", "ips": ["10.0.0.1/24"]}]`, defs: defs(config, npwg.AnnotationVersion, "1")}.plan(t)
		if len(p.Steps) != 1 || len(p.Warnings) != 1 {
			t.Errorf("plan %+v; want the default network alone, and a warning", p)
		}
	})
	t.Run("N26 version 1.3 for one definition", func(t *testing.T) {
		p := scene{networks: `[{"name": "a", "ips": ["10.0.0.1/24"]}]`, defs: defs(bridge("a", "ips"), npwg.AnnotationVersion, "1.3"), keys: `"specVersion": "1"`}.plan(t)
		if got := string(p.Steps[1].Capabilities["ips"]); got != `["10.0.0.1/24"]` {
			t.Errorf("capability ips %s; want the address", got)
		}
	})
	t.Run("no such version", func(t *testing.T) {
		scene{networks: "a", defs: defs(config, npwg.AnnotationVersion, "2")}.fails(t, npwg.AnnotationVersion, `"2"`)
	})
}

// TestCNIArgsComeBeforeTheConfigurations (N32).
func TestCNIArgsComeBeforeTheConfigurations(t *testing.T) {
	config := `{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "x", "args": {"cni": {"spoofchk": "off", "trust": "on"}}}, {"type": "y"}, {"type": "z", "args": null}]}`
	p := scene{networks: `[{"name": "a", "cni-args": {"spoofchk": "on"}}]`, defs: []facts.Definition{def("a", config)}}.plan(t)
	got := stdins(t, p.Steps[1])
	for i, want := range []string{`{"cni": {"spoofchk": "on", "trust": "on"}}`, `{"cni": {"spoofchk": "on"}}`, `{"cni": {"spoofchk": "on"}}`} {
		if diff := cmp.Diff(any(values(t, want)), got[i]["args"]); diff != "" {
			t.Errorf("args of plugin %d (-want +got):\n%s", i+1, diff)
		}
	}
}

// TestDefaultRouteThroughATableOfItsOwn (N38): where a plugin of the chain takes the interface's
// routes out of the main table, no default route can lead through it.
func TestDefaultRouteThroughATableOfItsOwn(t *testing.T) {
	for _, last := range []string{"sbr", "vrf"} {
		chain := func(name string) string {
			return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": "macvlan"}, {"type": %q}]}`, name, last)
		}
		s := scene{networks: "a", own: "shop/a", defs: []facts.Definition{def("a", chain("a")), def("b", bridge("b"))}}
		s.plan(t)
		for _, gateways := range []string{`[]`, `["10.0.0.1"]`} {
			s.networks = `[{"name": "a", "default-route": ` + gateways + `}, {"name": "b"}]`
			s.fails(t, "element 1: network shop/a: ", "default-route", "the chain macvlan, "+last, "out of the main table", "remove default-route")
		}
		s.networks = `[{"name": "a"}, {"name": "b", "default-route": ["10.0.0.1"]}]`
		s.plan(t)
		s.networks, s.own = "", `[{"name": "a", "namespace": "shop", "default-route": []}]`
		s.fails(t, "annotation v1.multus-cni.io/default-network: network shop/a: ", "the chain macvlan, "+last)

		n := network("a")
		s = lists(`[{"podNetworkName": "a", "isDefaultGW6": true}, {"podNetworkName": "default", "isDefaultGW4": true}]`, n, facts.PodNetwork{Name: "default"})
		s.defs[0] = def(n.Definition.Namespace+"/"+n.Definition.Name, chain("a"))
		s.fails(t, "element 1 of tenure.dev/pod-networks: network a: ", "isDefaultGW6", "the chain macvlan, "+last, "remove isDefaultGW6")
	}
}

// TestDefaultRoute (N37, N38, N39).
func TestDefaultRoute(t *testing.T) {
	defs := []facts.Definition{def("a", bridge("a")), def("b", bridge("b"))}
	routes := func(networks string) (all []string) {
		for _, s := range (scene{networks: networks, defs: defs}).plan(t).Steps {
			text := fmt.Sprint(s.LosesDefaultRoute)
			if s.DefaultRoute != nil {
				text = fmt.Sprint(*s.DefaultRoute)
			}
			all = append(all, s.IfName+" "+text)
		}
		return all
	}
	sameStrings(t, routes(`[{"name": "a"}, {"name": "b", "default-route": ["10.0.0.1", "10.0.0.2", "fd00::1"]}]`), "eth0 true", "net1 true", "net2 [10.0.0.1 10.0.0.2 fd00::1]")
	sameStrings(t, routes(`[{"name": "a", "default-route": []}]`), "eth0 true", "net1 []")
	sameStrings(t, routes(`[{"name": "a"}]`), "eth0 false", "net1 false")
	// N37: ignored.
	sameStrings(t, routes(`[{"name": "a", "default-route": []}, {"name": "b", "default-route": []}]`), "eth0 false")
}

// TestClaimsAndAddresses (N42, N43).
func TestClaimsAndAddresses(t *testing.T) {
	s := scene{networks: `[{"name": "a", "ips": ["10.0.0.1"], "ipam-claim-reference": "c"}]`, defs: []facts.Definition{def("a", bridge("a", "ips"))}}
	s.fails(t, "element 1", "shop/a", "both ips and ipam-claim-reference", "4.1.2.1.11.1", "keep one")
	s.keys = `"ipsWithClaim": "Allow"`
	sameStrings(t, attachments(s.plan(t)), "cluster=eth0", "shop/a=net1")
	s = scene{networks: `[{"name": "a", "ipam-claim-reference": "c"}]`, defs: s.defs}
	if got := s.plan(t).Steps[1]; got.Capabilities != nil || !got.Requested.isZero() {
		t.Errorf("N42 step %+v; want nothing but what the IPAM plugin reads itself", got)
	}
}

func (w Requested) isZero() bool { return len(w.IPs) == 0 && w.MAC == "" }

// TestRuntimesRequestsAreTheDefaultNetworksAlone (N78, A11).
func TestRuntimesRequestsAreTheDefaultNetworksAlone(t *testing.T) {
	runtime := map[string]json.RawMessage{"portMappings": json.RawMessage(`[{"hostPort": 1}]`), "dns": json.RawMessage(`{}`), "io.kubernetes.cri.pod-annotations": json.RawMessage(`{}`)}
	capabilities := `"capabilities": {"portMappings": true, "dns": true, "io.kubernetes.cri.pod-annotations": true}`
	s := scene{
		keys:     `"defaultNetwork": {"cniVersion": "1.0.0", "name": "cluster", "type": "flannel", ` + capabilities + `}, "defaultNetworks": ["extra"]`,
		networks: "a", runtime: runtime,
		defs: []facts.Definition{def("a", `{"cniVersion": "1.0.0", "type": "t", `+capabilities+`}`), def("kube-system/extra", `{"cniVersion": "1.0.0", "type": "t", `+capabilities+`}`)},
		args: []Arg{{"IP", "10.0.0.1"}, {"MAC", "02:00:00:00:00:01"}, {"GATEWAY", "10.0.0.254"}, {"LABEL", "a=b"}},
	}
	p := s.plan(t)
	if got := stdins(t, p.Steps[0])[0]["runtimeConfig"]; len(got.(map[string]any)) != 3 {
		t.Errorf("the default network gets runtimeConfig %v; want all of it", got)
	}
	if got := joinArgs(p.Steps[0].Args); !strings.HasSuffix(got, "IP=10.0.0.1;MAC=02:00:00:00:00:01;GATEWAY=10.0.0.254;LABEL=a=b") {
		t.Errorf("the default network's CNI_ARGS: %s; want the runtime's", got)
	}
	for i, step := range p.Steps[1:] {
		if got := stdins(t, step)[0]["runtimeConfig"]; got != nil {
			t.Errorf("%s gets runtimeConfig %v; want none", step.Name, got)
		}
		want := "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=CONTAINER-ID;K8S_POD_UID=u1;LABEL=a=b"
		if i == 0 {
			want += ";TENURE_UNSELECTED=1"
		}
		if got := joinArgs(step.Args); got != want {
			t.Errorf("D14 CNI_ARGS of %s: %s; want %s", step.Name, got, want)
		}
	}
}

// TestUnselectedIsThePlansToSay: Tenure's IPAM plugin understands it, and no runtime
// passes it through.
func TestUnselectedIsThePlansToSay(t *testing.T) {
	s := scene{
		keys: `"defaultNetwork": {"cniVersion": "1.0.0", "name": "cluster", "type": "flannel"}, "defaultNetworks": ["extra"]`, networks: "a",
		defs: []facts.Definition{def("a", `{"cniVersion": "1.0.0", "type": "t"}`), def("kube-system/extra", `{"cniVersion": "1.0.0", "type": "t"}`)},
		args: []Arg{{argUnselected, "1"}},
	}
	for i, step := range s.plan(t).Steps {
		conf, err := poolspec.ParseConfig([]byte(`{"cniVersion":"1.0.0","name":"n","type":"t","ipam":{"type":"tenure","pool":"p"}}`), joinArgs(step.Args))
		if err != nil {
			t.Fatal(err)
		}
		if want := i == 1; conf.Pod.Unselected != want {
			t.Errorf("%s, with %s, is taken for unselected: %v; want %v", step.Name, joinArgs(step.Args), conf.Pod.Unselected, want)
		}
	}
}

// TestIgnoreUnknownIsAdded (D14).
func TestIgnoreUnknownIsAdded(t *testing.T) {
	p, err := Make(scene{}.config(t), Call{ContainerID: "c", IfName: "eth0", Args: []Arg{{"K", "v=w"}}}, facts.Answer{}, scene{}.disk())
	if err != nil || joinArgs(p.Steps[0].Args) != "K=v=w;IgnoreUnknown=1" {
		t.Errorf("CNI_ARGS %v, %v; want K=v=w and IgnoreUnknown=1", p.Steps[0].Args, err)
	}
}

func TestErrorsOfAllElementsAreReported(t *testing.T) {
	p, err := scene{networks: "missing,other/b,c", defs: []facts.Definition{def("other/b", bridge("b")), def("c", bridge("c"))}}.make(t)
	var all []string
	for _, fault := range each(err) {
		all = append(all, fault.Error())
	}
	sameStrings(t, all,
		"pod shop/web: element 1: network shop/missing: does not exist; create the definition, or correct the annotation",
		"pod shop/web: element 2: network other/b: namespaces are isolated: a pod of shop may use the definitions of its own namespace; use a definition of the pod's own namespace, or have the definition's owner name the pod's in its annotation tenure.dev/namespaces",
	)
	sameStrings(t, attachments(p), "cluster=eth0", "shop/c=net3")
}
