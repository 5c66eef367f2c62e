package plan

import (
	"encoding/json"
	"io"
	"testing"
	"testing/fstest"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// checkPlan checks what holds of every plan that Make gives out without a fault.
func checkPlan(t *testing.T, p Plan) {
	t.Helper()
	used := map[string]bool{}
	for i, s := range p.Steps {
		if s.Default != (i == 0) || used[s.IfName] || npwg.CheckInterface(s.IfName) != nil || s.Network == "" || s.Name == "" {
			t.Errorf("step %d: %+v; want the default network first, and an interface of its own", i, s)
		}
		used[s.IfName] = true
		confs, err := libcni.NetworkConfFromBytes(s.List)
		if err != nil || confs.Name != s.Network || len(confs.Plugins) == 0 {
			t.Errorf("step %d: %s; libcni: %v", i, s.List, err)
		}
		if runs, err := s.Invocations(); err != nil || len(runs) == 0 {
			t.Errorf("step %d: runs %v, %v", i, runs, err)
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again Plan
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Errorf("the plan does not come back from disk: %v", err)
	}
	if err := Explain(io.Discard, p, nil, ""); err != nil {
		t.Errorf("Explain: %v", err)
	}
}

func FuzzMake(f *testing.F) {
	f.Add("a,b/c@d", "", bridge("a"), "1", "*", `"isolation": "None"`)
	f.Add(`[{"name":"a","ips":["10.0.0.5/24"],"cni-args":{"a":1},"default-route":[]}]`, "a", bridge("a", "ips"), "", "", `"specVersion": "1"`)
	f.Add(`[{"name":"a","mac":"02:00:00:00:00:01","bandwidth":{"ingressRate":1}},{"name":"a"}]`, `[{"name":"a","namespace":"ns"}]`, `{"plugins":[{"type":"x","capabilities":{"mac":true,"bandwidth":true},"args":{"cni":{}}}]}`, "1.3", "", `"defaultNetworks": ["a"]`)
	f.Fuzz(func(t *testing.T, networks, own, config, version, namespaces, keys string) {
		c, err := ParseConfig([]byte(`{"name": "tenure", ` + inlineDefault + `,` + keys + `}`))
		if err != nil {
			return
		}
		annotations := map[string]string{npwg.AnnotationVersion: version, npwg.AnnotationSelector: namespaces, npwg.AnnotationResource: "r"}
		pod := facts.Pod{PodRef: facts.PodRef{Namespace: "ns", Name: "p"}, Annotations: map[string]string{npwg.AnnotationNetworks: networks, npwg.AnnotationDefaultNetwork: own}}
		answer := facts.Answer{Pod: pod}
		for _, ref := range Wanted(c.Question(pod.PodRef), pod) {
			answer.Networks = append(answer.Networks, facts.Definition{Ref: ref, Config: &config, Annotations: annotations, Devices: []string{"d0", "d1"}})
		}
		p, err := Make(c, CallOf(pod.PodRef), answer, Files{Root: fstest.MapFS{}, ConfDir: "/"})
		if err != nil {
			if err := Explain(io.Discard, p, err, ""); err != nil {
				t.Errorf("Explain: %v", err)
			}
			return
		}
		checkPlan(t, p)
	})
}

// FuzzDefinition makes a plan of any configuration in a definition.
func FuzzDefinition(f *testing.F) {
	f.Add(bridge("a"))
	f.Add(`{"cniVersion": "0.4.0", "cniVersions": ["1.0.0", "2.0.0"], "disableCheck": "true", "plugins": [{"type": "x"}, {"type": "y", "args": {"cni": null}}]}`)
	f.Fuzz(func(t *testing.T, config string) {
		c, err := ParseConfig([]byte(`{` + inlineDefault + `}`))
		if err != nil {
			t.Fatal(err)
		}
		answer := facts.Answer{
			Pod:      facts.Pod{PodRef: facts.PodRef{Namespace: "shop", Name: "web"}, Annotations: map[string]string{npwg.AnnotationNetworks: `[{"name": "a", "cni-args": {"k": 1}}]`}},
			Networks: []facts.Definition{def("a", config)},
		}
		if p, err := Make(c, CallOf(answer.Pod.PodRef), answer, Files{Root: fstest.MapFS{}, ConfDir: "/"}); err == nil {
			checkPlan(t, p)
		}
	})
}

// FuzzFiles looks a network up among any files.
func FuzzFiles(f *testing.F) {
	f.Add("a.conflist", `{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "x"}]}`, "b.conf", `{"name": "a", "type": "y"}`)
	f.Add("a.conflist", `{"cniVersion": "1.0.0", "name": "a"}`, "a/10.conf", `{"type": "y"}`)
	f.Fuzz(func(t *testing.T, name1, text1, name2, text2 string) {
		files := Files{Root: fstest.MapFS{"conf/" + name1: {Data: []byte(text1)}, "conf/" + name2: {Data: []byte(text2)}}, ConfDir: "/conf"}
		raw, err := files.Lookup("a")
		if err != nil {
			return
		}
		if confs, err := libcni.NetworkConfFromBytes(raw); err != nil || confs.Name != "a" || len(confs.Plugins) == 0 {
			t.Errorf("Lookup = %s; libcni: %+v, %v", raw, confs, err)
		}
	})
}

// FuzzParseConfig reads any configuration of the plugin.
func FuzzParseConfig(f *testing.F) {
	f.Add(`{"name": "tenure", "defaultNetwork": "a", "defaultNetworks": ["b@c"], "globalNamespaces": "x, y"}`)
	f.Add(`{"delegates": [{"type": "x", "name": "n"}], "namespaceIsolation": true, "logOptions": {}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConfig([]byte(text))
		if c == nil || c.StateDir == "" || c.StateDir[0] != '/' {
			t.Errorf("ParseConfig(%s) = %+v; want a directory of state in any case", text, c)
		}
		if err == nil && c.Default.Inline == nil && c.Default.Path == "" && c.Default.Name == "" {
			t.Errorf("ParseConfig(%s) = %+v; want a default network", text, c)
		}
	})
}

// FuzzPlainConf: what is read of a plugin's configuration without the CNI library's
// type is what that type has.
func FuzzPlainConf(f *testing.F) {
	for _, text := range []string{
		`{"cniVersion":"1.0.0","name":"n","type":"bridge","capabilities":{"ips":true,"mac":false},"ipam":{"type":"tenure","pool":"p"},"vlan":7}`,
		`{"type":"a","Type":"b"}`, `{"type":"a","ipam":{"Type":"b"}}`, `{"type":"a","ipam":null}`, `{"type":"a","capabilities":{"ips":1}}`,
		`{"type":"a","dns":{"domain":5}}`, `{"type":5}`, `{"type":null}`, `{"type":"a","ipam":{"type":7}}`, `{}`,
		`{"type":"a","capabilities":{"x":true},"capabilities":{}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		members, err := plainjson.Object([]byte(text))
		if err != nil || members == nil {
			return
		}
		got, ok := plainConf(members)
		if !ok || repeats([]byte(text), members) {
			return
		}
		var want types.PluginConf
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%s is read; the library says %v", text, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-library +plain):\n%s", text, diff)
		}
	})
}

// TestPlainConf: configurations as most are need no more.
func TestPlainConf(t *testing.T) {
	for text, plain := range map[string]bool{
		`{"cniVersion":"1.0.0","type":"macvlan","capabilities":{"ips":true},"ipam":{"type":"tenure","pool":"p"},"master":"eth1"}`: true,
		`{"type":"a","ipam":{}}`: true, `{"type":"a","dns":{}}`: false, `{"TYPE":"a"}`: false, `{"type":"a","capabilities":null}`: false,
	} {
		members, err := plainjson.Object([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := plainConf(members); ok != plain {
			t.Errorf("%s is plain: %v; want %v", text, ok, plain)
		}
	}
}
