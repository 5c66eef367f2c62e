package plan

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
)

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParseConfigDefaults(t *testing.T) {
	got := parsed(t, `{"cniVersion": "1.1.0", "name": "tenure", "type": "tenure-attach", "defaultNetwork": "cluster"}`)
	want := &Config{
		CNIVersion: "1.1.0", Name: "tenure", Default: Source{Key: "defaultNetwork", Name: "cluster"},
		Namespace: "kube-system", Isolated: true, SystemNamespaces: []string{"kube-system", "tenure-system"},
		ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", StateDir: "/var/lib/cni/tenure-attach", Socket: "/run/tenure/agent.sock",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseConfigOfTenure(t *testing.T) {
	got := parsed(t, `{"cniVersion": "1.1.0", "name": "tenure", "type": "tenure-attach", "capabilities": {"portMappings": true}, "runtimeConfig": {"dns": {}},
		"defaultNetwork": "infra/cluster", "defaultNamespace": "infra", "defaultNetworks": ["a@lan0", "/etc/b.conflist"], "isolation": "None", "globalNamespaces": ["g", "h"],
		"systemNamespaces": [], "specVersion": "1", "invalidAnnotation": "Fail", "ipsWithClaim": "Allow", "missingCapability": "CNIArgs", "statusIPs": "CIDR", "socket": "/run/s", "stateDir": "/var/s/",
		"confDir": "/c", "binDir": "/b", "readinessindicatorfile": "/r", "cni.dev/attachments": [], "prevResult": {}, "logFile": null}`)
	want := &Config{
		CNIVersion: "1.1.0", Name: "tenure", Runtime: got.Runtime, PrevResult: []byte("{}"), Default: Source{Key: "defaultNetwork", Namespace: "infra", Name: "cluster"},
		Extra:     []Source{{Key: "defaultNetworks[0]", Name: "a", IfName: "lan0"}, {Key: "defaultNetworks[1]", Path: "/etc/b.conflist"}},
		Namespace: "infra", GlobalNamespaces: []string{"g", "h"}, SystemNamespaces: []string{}, ConfDir: "/c", BinDir: "/b", StateDir: "/var/s", Socket: "/run/s", ReadinessFile: "/r",
		Version: npwg.V1, FailInvalid: true, AllowIPsWithClaim: true, ArgsWithoutCapability: true, StatusCIDRs: true,
	}
	if diff := cmp.Diff(want, got); diff != "" || string(got.Runtime["dns"]) != "{}" {
		t.Errorf("runtimeConfig %s; (-want +got):\n%s", got.Runtime, diff)
	}
}

// A configuration as Multus's own daemon set writes it, and one written by hand.
func TestParseConfigOfMultus(t *testing.T) {
	got := parsed(t, `{"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "tenure-attach", "logLevel": "verbose", "logToStderr": true,
		"kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig", "clusterNetwork": "/etc/cni/net.d/10-flannel.conflist", "defaultNetworks": ["storage"],
		"readinessindicatorfile": "/run/flannel/subnet.env", "capabilities": {"bandwidth": true}, "globalNamespaces": "a, b", "multusNamespace": "multus", "binDir": "/opt/cni/bin", "cniDir": "/var/lib/cni/multus"}`)
	if got.Isolated || got.Namespace != "multus" || got.ConfDir != multusConfDir || got.Default.Path != "/etc/cni/net.d/10-flannel.conflist" || got.ReadinessFile != "/run/flannel/subnet.env" {
		t.Errorf("configuration %+v; want Multus's defaults and what it says", got)
	}
	sameStrings(t, got.GlobalNamespaces, "a", "b")
	var ignored []string
	for _, text := range got.Ignored {
		name, why, _ := strings.Cut(text, ": ")
		if why == "" {
			t.Errorf("%s is ignored without a reason", name)
		}
		ignored = append(ignored, name)
	}
	sameStrings(t, ignored, "cniDir", "kubeconfig", "logLevel", "logToStderr")

	got = parsed(t, `{"name": "m", "type": "tenure-attach", "namespaceIsolation": true, "delegates": [{"type": "flannel", "name": "f"}, {"type": "x", "name": "x"}]}`)
	if !got.Isolated || !slices.Equal(got.GlobalNamespaces, []string{"default"}) || got.Default.Inline == nil || len(got.InlineExtra) != 1 {
		t.Errorf("configuration %+v; want isolation with Multus's global namespace, and two inline networks", got)
	}
}

func TestParseConfigFaults(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"not JSON", `{`, "configuration of tenure-attach: unexpected end"},
		{"no default network", `{"clusterNetwork": "", "delegates": []}`, "defaultNetwork: missing"},
		{"two default networks", `{"defaultNetwork": "a", "clusterNetwork": "b"}`, "defaultNetwork, clusterNetwork: all of them"},
		{"isolation twice", `{"defaultNetwork": "a", "isolation": "None", "namespaceIsolation": true}`, "isolation, namespaceIsolation: both say"},
		{"misspelt", `{"defaultNetwork": "a", "namespaceIsoltion": true}`, "namespaceIsoltion: not supported (true): no such key"},
		{"refused", `{"defaultNetwork": "a", "auxiliaryCNIChainName": "chain"}`, `auxiliaryCNIChainName: not supported ("chain"): name the chain in defaultNetworks`},
		{"number for a name", `{"defaultNetwork": 1}`, "defaultNetwork: 1 is not a name"},
		{"number for a path", `{"defaultNetwork": "a", "socket": 1}`, "socket: 1 is not a path"},
		{"relative path", `{"defaultNetwork": "a", "stateDir": "var"}`, `stateDir: "var" is no absolute path`},
		{"no such word", `{"defaultNetwork": "a", "isolation": "Off"}`, `isolation: "Off" is none of Namespace, None`},
		{"number for a word", `{"defaultNetwork": "a", "specVersion": 1}`, "specVersion: 1 is not a string"},
		{"bad namespace", `{"defaultNetwork": "A/b"}`, `"A" is no name of a namespace`},
		{"bad name", `{"defaultNetwork": "a/b/c"}`, `"b/c" is no name of a definition`},
		{"extra networks", `{"defaultNetwork": "a", "defaultNetworks": ["", "b@a/b"]}`, `[1]: "a/b" is no interface name`},
		{"extra networks, no list", `{"defaultNetwork": "a", "defaultNetworks": "b"}`, "defaultNetworks: \"b\" is not a list"},
		{"delegates, no list", `{"delegates": {}}`, "delegates: {} is not a list"},
		{"names", `{"defaultNetwork": "a", "systemNamespaces": {}}`, "systemNamespaces: {} is not a list of names"},
		{"runtimeConfig", `{"defaultNetwork": "a", "runtimeConfig": []}`, "runtimeConfig: [] is not an object"},
		{"isolation", `{"defaultNetwork": "a", "namespaceIsolation": "yes"}`, `namespaceIsolation: "yes" is not true or false`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseConfig([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseConfig: %v; want an error with %q", err, tt.want)
			}
			if c == nil || c.StateDir == "" {
				t.Errorf("ParseConfig returns %+v; want a directory for a DEL all the same", c)
			}
		})
	}
	t.Run("all are reported", func(t *testing.T) {
		_, err := ParseConfig([]byte(`{"socket": 1, "binDir": "x"}`))
		for _, want := range []string{"defaultNetwork", "socket", "binDir"} {
			if err == nil || !strings.Contains(err.Error(), want+": ") {
				t.Errorf("ParseConfig: %v; want %s in it", err, want)
			}
		}
	})
}

func TestQuestionOfSystemNamespace(t *testing.T) {
	c := parsed(t, `{"defaultNetwork": "a", "defaultNetworks": ["b"], "defaultNamespace": "infra"}`)
	got := c.Question(facts.PodRef{Namespace: "kube-system", Name: "dns"})
	want := facts.Question{Pod: facts.PodRef{Namespace: "kube-system", Name: "dns"}, Networks: []facts.Ref{{Namespace: "infra", Name: "a"}}, DefaultNamespace: "infra"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryKeyIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/attach.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("docs/reference/attach.md has no line for the key %s", name)
		}
	}
	for _, name := range []string{npwg.AnnotationVersion, npwg.AnnotationNamespaces, npwg.AnnotationSelector, ReasonInvalid, ReasonUnknownKey, ReasonArgs, ReasonClaim} {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/reference/attach.md says nothing of %s", name)
		}
	}
}
