package ready

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// keeper returns a Keeper of the node, as after a start of the agent.
func (n *node) keeper() *Keeper {
	n.t.Helper()
	k, err := New(n.cfg, &n.cluster, n.events.warn, n.events.turned, slog.New(slog.DiscardHandler))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := k.load(); err != nil {
		n.t.Fatal(err)
	}
	return k
}

// look has k look, and returns the types of the plugins in the file, in their order.
func (n *node) look(k *Keeper) (kinds []string) {
	n.t.Helper()
	k.look(n.t.Context())
	text, err := os.ReadFile(n.installed())
	if err != nil {
		return nil
	}
	all, ok := pluginsOf(text)
	if !ok {
		n.t.Fatalf("the file is no list: %s", text)
	}
	return kindsOf(all)
}

// wants looks, and fails the test unless the file has these plugins.
func (n *node) wants(k *Keeper, what string, kinds ...string) {
	n.t.Helper()
	if got := n.look(k); !slices.Equal(got, kinds) {
		n.t.Errorf("%s: the file has %q; want %q", what, got, kinds)
	}
}

// edit changes the list of plugins in the file as other programs do: they read all of it, and
// write it anew in a form of their own.
func (n *node) edit(change func(plugins []any) []any) {
	n.t.Helper()
	text, err := os.ReadFile(n.installed())
	if err != nil {
		n.t.Fatal(err)
	}
	var list map[string]any
	if err := json.Unmarshal(text, &list); err != nil {
		n.t.Fatal(err)
	}
	list["plugins"] = change(list["plugins"].([]any))
	if text, err = json.MarshalIndent(list, "", "\t"); err != nil {
		n.t.Fatal(err)
	}
	n.write(n.installed()+".tmp", string(text))
	if err := os.Rename(n.installed()+".tmp", n.installed()); err != nil {
		n.t.Fatal(err)
	}
}

// chain appends a plugin to the file.
func (n *node) chain(kind string) {
	n.t.Helper()
	n.edit(func(plugins []any) []any { return append(plugins, map[string]any{"type": kind, "log_level": "info"}) })
}

// said fails the test unless what was said of the node since the last call is one Event that has
// all of these words; without words, unless nothing was said.
func (n *node) said(what string, words ...string) {
	n.t.Helper()
	all := n.events.say()
	if len(words) == 0 && len(all) == 0 {
		return
	}
	if len(all) != 1 || len(words) == 0 {
		n.t.Errorf("%s: said was %q; want one Event with %q", what, all, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(all[0], word) {
			n.t.Errorf("%s: said was %q; want %q in it", what, all[0], word)
		}
	}
}

// calicoOf returns the node's configuration, whose default network is Calico's file.
func calicoOf(t *testing.T) *node {
	n := newNode(t, `"clusterNetwork":"k8s-pod-network"`)
	n.cluster.known.Store(true)
	n.write(n.calico(), calico)
	return n
}

func (n *node) calico() string { return filepath.Join(n.confDir, "10-calico.conflist") }

// TestAppendedPluginsAreKept: what a service mesh has chained into the file stays there, whatever
// is written to the file; what it takes out again is gone.
func TestAppendedPluginsAreKept(t *testing.T) {
	n := calicoOf(t)
	k := n.keeper()
	n.wants(k, "at first", "tenure-attach")
	n.chain("istio-cni")
	before, err := os.Stat(n.installed())
	if err != nil {
		t.Fatal(err)
	}
	n.wants(k, "appended", "tenure-attach", "istio-cni")
	if now, err := os.Stat(n.installed()); err != nil || !os.SameFile(before, now) {
		t.Errorf("the file was written anew, %v; what is right is left as it is", err)
	}
	own := strings.Replace(n.list(`"clusterNetwork":"k8s-pod-network"`), `}]}`, `},{"type":"tuning"}]}`, 1)
	n.write(n.cfg.Source, own)
	n.wants(k, "the configuration has one more", "tenure-attach", "tuning", "istio-cni")
	n.chain("linkerd-cni")
	n.wants(k, "a second program", "tenure-attach", "tuning", "istio-cni", "linkerd-cni")
	n.write(n.cfg.Source, n.list(`"clusterNetwork":"k8s-pod-network"`))
	n.wants(n.keeper(), "the agent starts anew, and the configuration has one less", "tenure-attach", "istio-cni", "linkerd-cni")
	text, err := os.ReadFile(n.installed())
	if err != nil || !strings.Contains(string(text), `"log_level": "info"`) || !strings.Contains(string(text), `"clusterNetwork": "k8s-pod-network"`) {
		t.Errorf("the file is %s, %v", text, err)
	}
	n.edit(func(plugins []any) []any {
		return slices.DeleteFunc(plugins, func(p any) bool { return p.(map[string]any)["type"] == "istio-cni" })
	})
	n.wants(k, "taken out", "tenure-attach", "linkerd-cni")
	n.said("nothing is wrong")
}

// TestAppendedPluginsAreKeptWhileTheFileIsAway, since the default network is, and another agent
// puts it back.
func TestAppendedPluginsAreKeptWhileTheFileIsAway(t *testing.T) {
	n := calicoOf(t)
	k := n.keeper()
	n.look(k)
	n.chain("istio-cni") // and no look in between
	n.remove(n.calico())
	n.look(k)
	n.wants(k, "the default network is away")
	n.wants(n.keeper(), "also after a restart")
	n.write(n.calico(), calico)
	n.wants(n.keeper(), "it is back", "tenure-attach", "istio-cni")
	n.said("nothing is wrong")
}

// TestNoPluginRunsTwice: one that the default network's own chain has is not kept, whether that
// is in a file or in a definition.
func TestNoPluginRunsTwice(t *testing.T) {
	const meshed = `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"calico"},{"type":"istio-cni"}]}`
	n := calicoOf(t)
	n.write(n.calico(), meshed)
	k := n.keeper()
	n.look(k)
	n.chain("istio-cni")
	n.chain("linkerd-cni")
	n.wants(k, "in a file", "tenure-attach", "linkerd-cni")
	n.said("in a file", ReasonRefused, n.installed(), `"istio-cni"`, "run twice")
	n.chain("istio-cni")
	n.wants(k, "again", "tenure-attach", "linkerd-cni")
	n.said("again, within minutes")

	n.remove(n.calico())
	n.cluster.exists.Store(true)
	n.cluster.config.Store(new(strings.Replace(meshed, "istio-cni", "linkerd-cni", 1)))
	n.chain("istio-cni")
	n.wants(k, "in a definition", "tenure-attach", "istio-cni")
	n.said("in a definition", ReasonRefused, `"linkerd-cni"`)
}

// TestPluginsOfOthersAhead: who stands ahead of tenure-attach, or is tenure-attach, has no place.
func TestPluginsOfOthersAhead(t *testing.T) {
	n := calicoOf(t)
	k := n.keeper()
	n.look(k)
	n.edit(func(plugins []any) []any { return append([]any{map[string]any{"type": "istio-cni"}}, plugins...) })
	n.wants(k, "ahead", "tenure-attach")
	n.said("ahead", ReasonRefused, `"istio-cni"`, "append it")
	n.chain("tenure-attach")
	n.wants(k, "a second one", "tenure-attach")
	n.said("a second one", ReasonRefused, "a second time")
}

// TestAnotherProgramTakesTheFile: it is put back, and the node's Events say what was done to it.
func TestAnotherProgramTakesTheFile(t *testing.T) {
	for name, tt := range map[string]struct {
		take  func(n *node)
		words []string
	}{
		"Cilium": {func(n *node) {
			if err := os.Rename(n.installed(), n.installed()+".cilium_bak"); err != nil {
				n.t.Fatal(err)
			}
		}, []string{"renamed it to 00-tenure.conflist.cilium_bak", "cni.exclusive=false", "two programs fight"}},
		"another name": {func(n *node) {
			if err := os.Rename(n.installed(), filepath.Join(n.cfg.Dir, "disabled")); err != nil {
				n.t.Fatal(err)
			}
		}, []string{"renamed it to disabled", "find out which program"}},
		"removed":     {func(n *node) { n.remove(n.installed()) }, []string{"removed it"}},
		"overwritten": {func(n *node) { n.write(n.installed(), calico) }, []string{"overwritten it", "without tenure-attach"}},
		"emptied":     {func(n *node) { n.write(n.installed(), "{}") }, []string{"overwritten it"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := calicoOf(t)
			k := n.keeper()
			n.look(k)
			n.chain("istio-cni")
			n.wants(k, "undisturbed", "tenure-attach", "istio-cni")
			if said := k.Rival(); said != "" {
				t.Errorf("the rival is %q; want none", said)
			}
			tt.take(n)
			n.wants(k, "put back", "tenure-attach", "istio-cni")
			n.said("put back", append(tt.words, ReasonTaken, n.installed())...)
			if said := k.Rival(); !strings.Contains(said, tt.words[0]) {
				t.Errorf("the rival is %q; want %q", said, tt.words[0])
			}
			tt.take(n)
			k = n.keeper() // the agent did not run meanwhile
			n.wants(k, "put back by another agent", "tenure-attach", "istio-cni")
			n.said("put back by another agent", append(tt.words[1:len(tt.words):len(tt.words)], ReasonTaken)...)
			families, err := k.metrics.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "tenure_attach_configuration_lost_total" && f.GetMetric()[0].GetCounter().GetValue() == 1 {
					return
				}
			}
			t.Errorf("the metrics are %v; want one loss", families)
		})
	}
}

// TestHalfOfTheRuntimesFile: who edits it in place is waited for, for one look.
func TestHalfOfTheRuntimesFile(t *testing.T) {
	n := calicoOf(t)
	k := n.keeper()
	n.look(k)
	for i, want := range []string{`{"plugins":[`, n.list(`"clusterNetwork":"k8s-pod-network"`)} {
		n.write(n.installed(), `{"plugins":[`)
		for range i + 1 {
			k.look(t.Context())
		}
		if text, err := os.ReadFile(n.installed()); err != nil || string(text) != want {
			t.Errorf("after %d looks the file is %s, %v; want %s", i+1, text, err, want)
		}
		k.look(t.Context())
	}
}

// TestSingleConfiguration: nothing can be appended to one, and a change of it is nobody else's.
func TestSingleConfiguration(t *testing.T) {
	n := calicoOf(t)
	n.cfg.Name = "00-tenure.conf"
	k := n.keeper()
	for _, socket := range []string{"/run/a", "/run/b"} {
		text := strings.ReplaceAll(`{"cniVersion":"1.1.0","name":"tenure","type":"tenure-attach","confDir":"DIR","clusterNetwork":"k8s-pod-network","socket":"`+socket+`"}`, "DIR", n.confDir)
		n.write(n.cfg.Source, text)
		k.look(t.Context())
		if got, err := os.ReadFile(n.installed()); err != nil || string(got) != text {
			t.Errorf("the file is %s, %v; want %s", got, err, text)
		}
	}
	n.said("nothing is wrong")
	n.write(n.installed(), `{"type":"bridge"}`)
	k.look(t.Context())
	n.said("overwritten", ReasonTaken, "overwritten it")
}

// TestWhatIsToldIsToldOnce: an Event of a node that is not known yet is told later.
func TestWhatIsToldIsToldOnce(t *testing.T) {
	n := calicoOf(t)
	k := n.keeper()
	known, told := false, 0
	k.warn = func(string, string) bool {
		if known {
			told++
		}
		return known
	}
	n.look(k)
	for i := range 6 {
		known = i > 1
		n.remove(n.installed())
		n.look(k)
	}
	if told != 1 {
		t.Errorf("told %d times; want once", told)
	}
}

func TestEither(t *testing.T) {
	for _, tt := range [][3]string{{"a", "a", "a"}, {"a b", "b c", "a b c"}, {"a", "a a", "a a"}, {"a a b", "a", "a a b"}, {"", "x", "x"}} {
		if got := strings.Join(either(strings.Fields(tt[0]), strings.Fields(tt[1])), " "); got != tt[2] {
			t.Errorf("of %q and %q: %q; want %q", tt[0], tt[1], got, tt[2])
		}
	}
}

// TestAnotherProgramsFile: a file that the Keeper has never written, and that is another program's,
// stays as it is, whether the default network is ready or not.
func TestAnotherProgramsFile(t *testing.T) {
	for name, there := range map[string]string{"a list": calico, "a single configuration": `{"type":"bridge"}`, "no configuration": "x"} {
		t.Run(name, func(t *testing.T) {
			n := calicoOf(t)
			n.write(n.installed(), there)
			k := n.keeper()
			stays := func(when string) {
				t.Helper()
				for range 3 {
					k.look(t.Context())
				}
				if text, err := os.ReadFile(n.installed()); err != nil || string(text) != there {
					t.Errorf("%s the file is %s, %v; want it left as it is", when, text, err)
				}
			}
			stays("at first")
			n.said("at first", ReasonTaken, n.installed(), "another program", "--cni-conf-name")
			if said := k.Rival(); !strings.Contains(said, "another program") {
				t.Errorf("the rival is %q; want the other program", said)
			}
			n.remove(n.calico())
			stays("when the default network is not ready")
			n.write(n.calico(), calico)
			n.remove(n.installed())
			n.wants(k, "when it is gone", "tenure-attach")
			n.cfg.Name = "05-other.conflist" // the agent is told another name
			n.write(n.installed(), there)
			k = n.keeper()
			stays("under another name")
			n.remove(filepath.Join(n.cfg.Dir, "00-tenure.conflist"))
			n.remove(n.installed())
			n.wants(k, "under another name, when it is gone", "tenure-attach")
		})
	}
}
