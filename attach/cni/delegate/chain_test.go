package delegate

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
)

// lists are configuration lists as package plan makes them, and some that it does
// not.
var lists = []string{
	`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge","name":"other","cniVersion":"0.4.0","ipam":{"type":"x"}},{"type":"tuning","capabilities":{"mac":true,"ips":false,"bandwidth":true}}],"loadOnlyInlinedPlugins":true}`,
	`{"name":"n-1.x","disableCheck":"TRUE","disableGC":true,"plugins":[{"type":"a","capabilities":null,"runtimeConfig":{"mac":"old"},"prevResult":{"old":1}}]}`,
	`{"cniVersion":"0.4.0","name":"é","plugins":[{"type":"b\u0061c","é<":" \"x\" ","capabilities":{"ips":true}}]}`,
	`{"cniVersion":"0.4.0","name":"n","plugins":[]}`, `{"cniVersion":"0.4.0","name":"n","plugins":[1]}`, `{"cniVersion":"0.4.0","name":"n","plugins":{}}`,
	`{"name":7,"plugins":[{"type":"a"}]}`, `{"name":"n","cniVersion":[],"plugins":[{"type":"a"}]}`, `{"name":"n","plugins":[{"type":1}]}`,
	`{"name":"n","disableCheck":3,"plugins":[{"type":"a"}]}`, `{"name":"n","plugins":[{"type":"a","capabilities":[]}]}`, `{"name":"n","plugins":[{"type":""}]}`, `[]`, `null`, `{`, ``,
}

func exampleCall() call {
	return callOf("c1", "/run/netns/x", plan.Step{
		IfName: "net1", Args: []plan.Arg{{Key: "IgnoreUnknown", Value: "1"}, {Key: "K8S_POD_NAME", Value: "a=b"}},
		Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`), "ips": json.RawMessage(`["10.0.0.5"]`)},
	})
}

// libraryCall is exampleCall as the CNI library has it.
func libraryCall() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: "c1", NetNS: "/run/netns/x", IfName: "net1", Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "a=b"}},
		CapabilityArgs: map[string]any{"mac": "02:00:00:00:00:01", "ips": []string{"10.0.0.5"}},
	}
}

// execution is what a plugin is given.
type execution struct {
	Plugin string
	Stdin  any
	Env    map[string]string
}

func executionOf(t *testing.T, name string, stdin []byte, environ []string) execution {
	t.Helper()
	x := execution{Plugin: name, Env: map[string]string{}}
	if err := json.Unmarshal(stdin, &x.Stdin); err != nil {
		t.Fatalf("%s is given %q: %v", name, stdin, err)
	}
	for _, pair := range environ {
		key, value, _ := strings.Cut(pair, "=")
		if _, twice := x.Env[key]; twice {
			t.Errorf("%s is given %s twice", name, key)
		}
		x.Env[key] = value
	}
	return x
}

// watcher stands for every plugin that the CNI library runs.
type watcher struct {
	version.PluginDecoder
	t      *testing.T
	answer string
	seen   []execution
}

func (w *watcher) FindInPath(name string, _ []string) (string, error) { return name, nil }

func (w *watcher) ExecPlugin(_ context.Context, name string, stdin []byte, environ []string) ([]byte, error) {
	w.seen = append(w.seen, executionOf(w.t, name, stdin, environ))
	return []byte(w.answer), nil
}

// TestPluginsAreGivenWhatTheCNILibraryGives compares the two for every list and
// result: standard input and environment of every plugin.
func TestPluginsAreGivenWhatTheCNILibraryGives(t *testing.T) {
	t.Setenv("CNI_COMMAND", "of this process")
	for _, text := range lists {
		list, err := parse(json.RawMessage(text))
		theirs, libErr := libcni.NetworkConfFromBytes([]byte(text))
		if (err == nil) != (libErr == nil) {
			t.Errorf("%s: %v; the library says %v", text, err, libErr)
		}
		if err != nil || libErr != nil || list.name == "é" { // the library's ADD refuses the name
			continue
		}
		if list.noCheck != theirs.DisableCheck || list.noGC != theirs.DisableGC || list.name != theirs.Name || list.version != theirs.CNIVersion {
			t.Errorf("%s: %+v; the library has %+v", text, list, theirs)
		}
		for _, answer := range results {
			compareAdd(t, list, theirs, answer)
		}
	}
}

func compareAdd(t *testing.T, list *chain, theirs *libcni.NetworkConfigList, answer string) {
	t.Helper()
	path := []string{"/opt/a", "/opt/b"}
	w := &watcher{t: t, answer: answer}
	cni := libcni.NewCNIConfigWithCacheDir(path, t.TempDir(), w)
	want, wantErr := cni.AddNetworkList(t.Context(), theirs, libraryCall())

	var seen []execution
	var prev json.RawMessage
	var err error
	c := exampleCall()
	for _, p := range list.plugins {
		more := append(c.runtimeConfig(p), previous(prev)...)
		seen = append(seen, executionOf(t, p.kind, list.config(p, more...), c.env("ADD", path)))
		result, resultErr := resultOf(list.version, []byte(answer))
		if err = resultErr; err == nil {
			prev, err = json.Marshal(result)
		}
		if err != nil {
			break
		}
	}
	if diff := cmp.Diff(w.seen, seen); diff != "" {
		t.Errorf("%s, answer %s: the library gives (-), this package (+):\n%s", list.text, answer, diff)
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%s, answer %s: %v; the library says %v", list.text, answer, err, wantErr)
	}
	if err != nil {
		return
	}
	if text, err := json.Marshal(want); err != nil || string(text) != string(prev) {
		t.Errorf("%s, answer %s: result %s; the library has %s, %v", list.text, answer, prev, text, err)
	}
}

// TestCacheReadsAsTheLibrarys: a line of the cache is what the CNI library keeps in a
// file, as the library itself reads it.
func TestCacheReadsAsTheLibrarys(t *testing.T) {
	r := &Runner{State: journal.Dir{Path: t.TempDir()}}
	list, err := parse(json.RawMessage(lists[0]))
	if err != nil {
		t.Fatal(err)
	}
	result := json.RawMessage(results[2])
	k := journal.Key{ContainerID: "c1", Network: "tenure", IfName: "eth0"}
	if err := r.keep(k, exampleCall().record(list, result)); err != nil {
		t.Fatal(err)
	}
	// The library's name for it.
	if err := os.Link(r.cacheFile(k), filepath.Join(r.cacheDir(), "n-c1-net1")); err != nil {
		t.Fatal(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir(nil, r.State.Path, nil)
	attachments, err := cni.GetCachedAttachments("c1")
	if err != nil || len(attachments) != 1 {
		t.Fatalf("the library finds %v, %v; want one attachment", attachments, err)
	}
	a, want := attachments[0], libraryCall()
	if a.Network != "n" || a.ContainerID != "c1" || a.IfName != "net1" || a.NetNS != want.NetNS || string(a.Config) != lists[0] || !slices.Equal(a.CniArgs, want.Args) {
		t.Errorf("the library reads %+v", a)
	}
	if got := slices.Sorted(maps.Keys(a.CapabilityArgs)); !slices.Equal(got, []string{"ips", "mac"}) {
		t.Errorf("the library reads the capability arguments %v", got)
	}
	theirs, err := libcni.NetworkConfFromBytes([]byte(lists[0]))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := cni.GetNetworkListCachedResult(theirs, libraryCall())
	if err != nil || kept == nil {
		t.Fatalf("the library reads the result %v, %v", kept, err)
	}
	ours, err := create.CreateFromBytes(result)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ours, kept, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("result kept (-), read by the library (+):\n%s", diff)
	}
	all, err := r.cachedOf("c1", "c1.")
	if err != nil || len(all) != 1 {
		t.Fatalf("found %v, %v; want one attachment", all, err)
	}
	if diff := cmp.Diff(exampleCall(), all[0].call("/run/netns/x"), cmp.AllowUnexported(call{})); diff != "" {
		t.Errorf("call kept (-), read (+):\n%s", diff)
	}
}

// TestCacheForgetsWhatIsGone, and nothing else.
func TestCacheForgetsWhatIsGone(t *testing.T) {
	r := &Runner{State: journal.Dir{Path: t.TempDir()}}
	k := journal.Key{ContainerID: "c1", Network: "tenure", IfName: "eth0"}
	for _, ifName := range []string{"eth0", "net1", "net2", "net1"} {
		if err := r.keep(k, cniresults.Record{ContainerID: "c1", NetworkName: "n", IfName: ifName}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ gone, left string }{{"net1", "eth0 net2"}, {"net1", "eth0 net2"}, {"eth0", "net2"}, {"net2", ""}, {"net2", ""}} {
		if err := forget(r.cacheFile(k), func(_, ifName string) bool { return ifName == tt.gone }); err != nil {
			t.Fatal(err)
		}
		all, err := r.cachedOf("c1", "c1.")
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, a := range all {
			left = append(left, a.IfName)
		}
		if got := strings.Join(left, " "); got != tt.left {
			t.Errorf("without %s there are %q; want %q", tt.gone, got, tt.left)
		}
	}
	if names, err := atomicfile.Names(r.cacheDir()); err != nil || len(names) > 0 {
		t.Errorf("files %v, %v; want none", names, err)
	}
}

// TestCacheOfAnInterface: what is undone without a journal is what its own files have,
// not what another configuration has attached to the same container, nor a file that was
// being written.
func TestCacheOfAnInterface(t *testing.T) {
	var said strings.Builder
	r := &Runner{State: journal.Dir{Path: t.TempDir()}, Stderr: &said}
	for _, k := range []journal.Key{{ContainerID: "c1", Network: "a", IfName: "eth0"}, {ContainerID: "c1", Network: "b", IfName: "eth1"}} {
		if err := r.keep(k, cniresults.Record{ContainerID: "c1", NetworkName: k.Network, IfName: k.IfName}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.cacheFile(k)+cniresults.SuffixTemp, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.cachedOf("c1", "c1.eth1.")
	if err != nil || len(all) != 1 || all[0].IfName != "eth1" || said.Len() > 0 {
		t.Errorf("of eth1: %v, %v, said %q; want its own attachment", all, err, said.String())
	}
	k := journal.Key{ContainerID: "c1", Network: "c", IfName: "eth1"}
	if err := os.WriteFile(r.cacheFile(k), []byte("no record"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := r.cachedOf("c1", "c1.eth1."); err != nil || len(all) != 1 || !strings.Contains(said.String(), r.cacheFile(k)) {
		t.Errorf("beside a file that does not read: %v, %v, said %q; want that it is said", all, err, said.String())
	}
}

// TestPreviousResultIsInTheListsVersion, as CNI has it since a list may have been
// changed between ADD and DEL.
func TestPreviousResultIsInTheListsVersion(t *testing.T) {
	for _, tt := range []struct{ result, version, want string }{
		{results[1], "0.4.0", `"cniVersion":"0.4.0"`},
		{results[1], "1.0.0", `"cniVersion":"1.0.0"`},
		{results[2], "0.4.0", `"cniVersion":"0.4.0"`},
	} {
		text, err := inVersion(json.RawMessage(tt.result), tt.version)
		if err != nil || !strings.Contains(string(text), tt.want) || !json.Valid(text) {
			t.Errorf("%s in %s: %s, %v", tt.result, tt.version, text, err)
		}
	}
	if text, err := inVersion(json.RawMessage("null"), "1.0.0"); err == nil {
		t.Errorf("null as a result: %s; want an error", text)
	}
}

// FuzzChain: no list and no answer makes this package panic or write something else
// than JSON.
func FuzzChain(f *testing.F) {
	for _, text := range lists {
		f.Add([]byte(text), []byte(results[0]))
	}
	for _, text := range results {
		f.Add([]byte(lists[0]), []byte(text))
	}
	f.Fuzz(func(t *testing.T, text, answer []byte) {
		list, err := parse(text)
		if err != nil {
			return
		}
		c := exampleCall()
		for _, p := range list.plugins {
			more := c.runtimeConfig(p)
			if result, err := resultOf(list.version, answer); err == nil {
				raw, err := json.Marshal(result)
				if err != nil {
					continue
				}
				more = append(more, member{"prevResult", raw})
				rec := c.record(list, raw)
				if line, err := rec.Line(); err != nil {
					t.Fatalf("cache: %s: %v", line, err)
				}
			}
			if stdin := list.config(p, more...); !json.Valid(stdin) {
				t.Fatalf("plugin %s is given %s", p.kind, stdin)
			}
		}
	})
}
