package missed

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// host is a node with a Finder.
type host struct {
	t       *testing.T
	dir     string
	pods    []Pod
	rival   string
	gone    []string // paths of network namespaces
	told    []string
	finder  *Finder
	runtime string // the runtime's directory of results
	ours    string // tenure-attach's
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{t: t, dir: dir, runtime: filepath.Join(dir, "results"), ours: filepath.Join(dir, "tenure-attach", "results")}
	h.restart()
	return h
}

// restart has another agent begin.
func (h *host) restart() {
	h.finder = New(Config{ResultDirs: []string{h.runtime, h.ours}, MetaDirs: []string{h.ours}, Every: time.Second}, Node{
		Pods:  func() []Pod { return h.pods },
		Gone:  func(netns string) bool { return slices.Contains(h.gone, netns) },
		Rival: func() string { return h.rival },
		Warn: func(p protocol.PodRef, reason, message string) {
			h.told = append(h.told, fmt.Sprintf("%s %s %s: %s", reason, p, p.UID, message))
		},
	}, slog.New(slog.DiscardHandler))
}

// config is a list of a network with these plugins.
func config(kinds ...string) []byte {
	list := map[string]any{"cniVersion": "1.0.0", "name": "net"}
	var plugins []any
	for _, kind := range kinds {
		plugins = append(plugins, map[string]any{"type": kind})
	}
	list["plugins"] = plugins
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // of strings alone
	}
	return text
}

// made puts the result of a sandbox into a directory. The pod is namespace/name/UID.
func (h *host) made(dir, id, network, pod, addr string, config []byte) {
	h.t.Helper()
	names := strings.Split(pod, "/")
	r := cniresults.Record{
		ContainerID: id, NetworkName: network, IfName: "eth0", NetNS: "/run/netns/" + id, Config: config,
		CNIArgs: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", names[0]}, {"K8S_POD_NAME", names[1]}, {"K8S_POD_UID", names[2]}},
		Result:  fmt.Appendf(nil, `{"cniVersion":"1.0.0","ips":[{"address":%q,"interface":0}]}`, addr),
	}
	h.write(filepath.Join(dir, network+"-"+id+"-eth0"), h.line(r))
	r.IfName, r.NetworkName, r.Config = "lo", "cni-loopback", config[:0]
	h.write(filepath.Join(h.runtime, "cni-loopback-"+id+"-lo"), h.line(r))
}

func (h *host) line(r cniresults.Record) []byte {
	h.t.Helper()
	line, err := r.Line()
	if err != nil {
		h.t.Fatal(err)
	}
	return line
}

func (h *host) write(path string, text []byte) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// looks looks once, and fails the test unless so many pods were missed, and these were told: each
// text has to be in what was said, in this order.
func (h *host) looks(what string, missed int, told ...string) {
	h.t.Helper()
	h.told = nil
	if err := h.finder.look(h.t.Context(), time.Now()); err != nil {
		h.t.Fatal(err)
	}
	if got := h.finder.missed.Load(); got != int64(missed) {
		h.t.Errorf("%s: the metric says %d; want %d", what, got, missed)
	}
	if len(h.told) != len(told) {
		h.t.Errorf("%s: told was %q; want %q", what, h.told, told)
		return
	}
	for i, text := range told {
		if !strings.Contains(h.told[i], text) {
			h.t.Errorf("%s: told was %q; want %q in it", what, h.told[i], text)
		}
	}
}

// selecting is a pod that selects a network.
func selecting(name, uid string) Pod {
	return Pod{PodRef: protocol.PodRef{Namespace: "shop", Name: name, UID: protocol.UID(uid)}, Annotations: map[string]string{npwg.AnnotationNetworks: "lan"}}
}

// TestMissedPodIsTold: once, what it lacks and why; and no more when it is gone.
func TestMissedPodIsTold(t *testing.T) {
	h := newHost(t)
	h.rival = "/etc/cni/net.d/00-tenure.conflist: another program has renamed it"
	h.pods = []Pod{selecting("web", "u1")}
	h.looks("nothing was made", 0)
	h.made(h.runtime, "c1", "cbr0", "shop/web/u1", "10.1.0.2/24", config("flannel", "portmap"))
	h.looks("made by the default network", 1, "NetworksNotAttached shop/web u1: ")
	for _, text := range []string{"(shop/lan)", "by network cbr0, without tenure-attach", h.rival, "delete the pod"} {
		if !strings.Contains(h.told[0], text) {
			t.Errorf("told was %q; want %q in it", h.told[0], text)
		}
	}
	h.looks("again", 1)
	h.restart()
	h.rival = ""
	h.looks("by another agent", 1, "while the runtime took another configuration")
	h.pods[0].Leaving = true
	h.looks("it is being deleted", 0)
	h.pods = nil
	h.looks("it is gone", 0)
}

// TestWhoIsNotMissed: each of these pods has what it selects, or selects nothing.
func TestWhoIsNotMissed(t *testing.T) {
	for what, tt := range map[string]struct {
		pod  func(*Pod)
		made func(h *host)
	}{
		"by tenure-attach": {nil, func(h *host) {
			h.made(h.runtime, "c1", "tenure", "shop/web/u1", "10.1.0.2/24", config("tenure-attach", "istio-cni"))
		}},
		"by tenure-attach, which is at it": {nil, func(h *host) {
			h.made(h.ours, "c1", "cbr0", "shop/web/u1", "10.1.0.2/24", config("flannel"))
		}},
		"by tenure-attach, which keeps its results with the runtime's": {nil, func(h *host) {
			h.made(h.runtime, "c1", "cbr0", "shop/web/u1", "10.1.0.2/24", config("flannel"))
			h.made(h.runtime, "c1", "tenure", "shop/web/u1", "10.1.0.2/24", config("tenure-attach"))
		}},
		"by Multus": {nil, func(h *host) {
			h.made(h.runtime, "c1", "multus-cni-network", "shop/web/u1", "10.1.0.2/24", config("multus-shim"))
		}},
		"by a single configuration of Multus": {nil, func(h *host) {
			h.made(h.runtime, "c1", "multus-cni-network", "shop/web/u1", "10.1.0.2/24", []byte(`{"name":"m","type":"multus"}`))
		}},
		"by a meta-plugin that nobody knows, which has said so": {
			func(p *Pod) {
				p.Annotations[npwg.AnnotationStatus] = `[{"name":"cbr0","interface":"eth0","ips":["10.1.0.2"],"default":true},{"name":"shop/lan","interface":"net1"}]`
			},
			func(h *host) { h.made(h.runtime, "c1", "cbr0", "shop/web/u1", "10.1.0.2/24", config("danm")) },
		},
		"it selects nothing":    {func(p *Pod) { p.Annotations = nil }, nil},
		"its list is not valid": {func(p *Pod) { p.Annotations[npwg.AnnotationNetworks] = "[{" }, nil},
		"it lists the default only": {func(p *Pod) {
			p.Annotations = map[string]string{podnetwork.AnnotationNetworks: `[{"podNetworkName":"default"}]`}
		}, nil},
		"an earlier pod of its name": {nil, func(h *host) {
			h.made(h.runtime, "c1", "cbr0", "shop/web/u0", "10.1.0.2/24", config("flannel"))
		}},
		"the sandbox is gone": {nil, func(h *host) {
			h.made(h.runtime, "c1", "cbr0", "shop/web/u1", "10.1.0.2/24", config("flannel"))
			h.gone = []string{"/run/netns/c1"}
		}},
		"a host-network pod, of which there is no result": {nil, func(*host) {}},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t)
			p := selecting("web", "u1")
			if tt.pod != nil {
				tt.pod(&p)
			}
			h.pods = []Pod{p}
			if tt.made == nil {
				h.made(h.runtime, "c1", "cbr0", "shop/web/u1", "10.1.0.2/24", config("flannel"))
			} else {
				tt.made(h)
			}
			h.looks(what, 0)
		})
	}
}

func TestWhoIsMissedAsWell(t *testing.T) {
	flannel := config("flannel")
	for what, tt := range map[string]struct {
		pod  func(*Pod)
		uid  string
		want string
	}{
		"a static pod, by its own UID": {func(p *Pod) { p.UID, p.MirrorOf = "mirror", "u1" }, "u1", "shop/web mirror: "},
		"a runtime that gives no UID":  {nil, "", "shop/web u1: "},
		"a list of PodNetworks": {
			func(p *Pod) {
				p.Annotations = map[string]string{podnetwork.AnnotationNetworks: `[{"podNetworkName":"default"},{"podNetworkName":"lan"}]`}
			},
			"u1", "(PodNetwork lan)",
		},
		"another sandbox than the one of its status": {
			func(p *Pod) {
				p.Annotations[npwg.AnnotationStatus] = `[{"name":"cbr0","interface":"eth0","ips":["10.1.0.9"],"default":true},{"name":"shop/lan","interface":"net1","ips":["10.1.0.2"]}]`
			},
			"u1", "shop/web u1: ",
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t)
			p := selecting("web", "u1")
			if tt.pod != nil {
				tt.pod(&p)
			}
			h.pods = []Pod{p}
			h.made(h.runtime, "c1", "cbr0", "shop/web/"+tt.uid, "10.1.0.2/24", flannel)
			h.looks(what, 1, tt.want)
		})
	}
}

// TestNewSandbox: a pod that was attached gets a sandbox that is not, and one that is.
func TestNewSandbox(t *testing.T) {
	h := newHost(t)
	h.pods = []Pod{selecting("web", "u1")}
	h.made(h.runtime, "c1", "tenure", "shop/web/u1", "10.1.0.2/24", config("tenure-attach"))
	h.looks("attached", 0)
	h.gone = append(h.gone, "/run/netns/c1")
	h.made(h.runtime, "c2", "cbr0", "shop/web/u1", "10.1.0.3/24", config("flannel"))
	h.looks("missed", 1, "shop/web")
	if err := os.Remove(filepath.Join(h.runtime, "cbr0-c2-eth0")); err != nil { // as its DEL does
		t.Fatal(err)
	}
	h.made(h.runtime, "c3", "tenure", "shop/web/u1", "10.1.0.4/24", config("tenure-attach"))
	h.looks("attached again", 0)
	h.made(h.runtime, "c4", "cbr0", "shop/web/u1", "10.1.0.5/24", config("flannel"))
	h.looks("missed again", 1, "shop/web")
}

// TestHalfOfAResult: the library writes them in place; one that does not read is read again.
func TestHalfOfAResult(t *testing.T) {
	h := newHost(t)
	h.pods = []Pod{selecting("web", "u1")}
	path := filepath.Join(h.runtime, "cbr0-c1-eth0")
	h.made(h.runtime, "c1", "cbr0", "shop/web/u1", "10.1.0.2/24", config("flannel"))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h.write(path, whole[:20])
	h.looks("half", 0)
	h.write(path, whole)
	h.looks("whole", 1, "shop/web")
}
