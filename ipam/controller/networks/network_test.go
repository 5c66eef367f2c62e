package networks

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	tests := []struct {
		name, config string
		network      string
		owner        Owner
		pools        string
		fault        string
	}{
		{name: "named pool", config: `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":{"type":"tenure","pool":"p"}}`,
			network: "lan", owner: Tenure, pools: "p"},
		{name: "the configuration's name, not the object's", config: `{"name":"other","type":"bridge","ipam":{"type":"tenure","pool":"p"}}`,
			network: "other", owner: Tenure, pools: "p"},
		{name: "without a name", config: `{"type":"bridge","ipam":{"type":"tenure","pool":"p"}}`, network: "def", owner: Tenure, pools: "p"},
		{name: "plugin list", config: `{"name":"l","cniVersion":"1.0.0","plugins":[{"type":"bridge","ipam":{"type":"tenure","pool":"p"}},{"type":"tuning"}]}`,
			network: "l", owner: Tenure, pools: "p"},
		{name: "inline", config: `{"name":"l","type":"bridge","ipam":{"type":"tenure","range":"10.0.0.0/24"}}`,
			network: "l", owner: Tenure, pools: "range-10-0-0-0-24"},
		{name: "a label names the pool", config: `{"name":"l","type":"macvlan","ipam":{"type":"tenure","pools":{"byNamespace":"x"}}}`,
			network: "l", owner: Tenure, pools: "by label x of the namespace"},
		{name: "another IPAM", config: `{"name":"l","type":"bridge","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`, network: "l"},
		{name: "no IPAM", config: `{"name":"l","type":"ovn-k8s-cni-overlay","allowPersistentIPs":true}`, network: "l"},
		{name: "local mode", config: `{"name":"l","type":"bridge","ipam":{"type":"tenure","mode":"local","subnet":"10.0.0.0/24"}}`, network: "l"},
		{name: "faulty and ours", config: `{"name":"l","type":"bridge","ipam":{"type":"tenure","pool":"p","pol":1}}`,
			network: "l", owner: Tenure, fault: "ipam.pol"},
		{name: "faulty and nobody's", config: `{"name":`, network: "def"},
		{name: "on the nodes' disks", config: ``, network: "def"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := Read("ns", "def", time.Time{}, tt.config)
			if n.Name != tt.network || n.Owner != tt.owner {
				t.Errorf("network %q, owner %d; want %q, %d", n.Name, n.Owner, tt.network, tt.owner)
			}
			if got := strings.TrimPrefix(strings.TrimPrefix(n.pools(), "pools "), "pool "); got != tt.pools {
				t.Errorf("pools %q; want %q", got, tt.pools)
			}
			if !strings.Contains(n.Fault, tt.fault) || (n.Fault == "") != (tt.fault == "") {
				t.Errorf("fault %q; want one about %q", n.Fault, tt.fault)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	def := func(namespace, name string, day time.Time, ipam string) Network {
		return Read(namespace, name, day, fmt.Sprintf(`{"name":"lan","type":"bridge","ipam":%s}`, ipam))
	}
	const pool, other, foreign = `{"type":"tenure","pool":"p"}`, `{"type":"tenure","pool":"q"}`, `{"type":"host-local","subnet":"10.0.0.0/24"}`
	const byX, byY = `{"type":"tenure","pools":{"byNamespace":"x"}}`, `{"type":"tenure","pools":{"byNamespace":"y"}}`
	tests := []struct {
		name    string
		named   []Network
		verdict Verdict
		decides string
		message string
	}{
		{name: "nobody has the name", verdict: Unknown},
		{name: "in the claim's namespace", named: []Network{def("ns", "a", day(1), pool)}, verdict: Known, decides: "ns/a"},
		{name: "in another namespace", named: []Network{def("infra", "a", day(1), pool)}, verdict: Known, decides: "infra/a"},
		{name: "the claim's namespace comes first", named: []Network{def("infra", "a", day(1), other), def("ns", "b", day(2), pool)},
			verdict: Known, decides: "ns/b"},
		{name: "one is another IPAM's", named: []Network{def("ns", "a", day(1), pool), def("ns", "b", day(2), foreign)}, verdict: Unknown},
		{name: "another IPAM's elsewhere", named: []Network{def("infra", "a", day(1), foreign), def("ns", "b", day(2), pool)}, verdict: Known, decides: "ns/b"},
		{name: "only another IPAM's in the claim's namespace", named: []Network{def("infra", "a", day(1), pool), def("ns", "b", day(2), foreign)}, verdict: Unknown},
		{name: "the oldest decides", named: []Network{def("x", "a", day(2), pool), def("y", "b", day(1), pool)}, verdict: Known, decides: "y/b"},
		{name: "different pools", named: []Network{def("x", "a", day(2), pool), def("y", "b", day(1), other)}, verdict: Ambiguous,
			message: `network "lan" is defined by y/b with pool q, and by x/a with pool p`},
		{name: "different labels", named: []Network{def("x", "a", day(2), byX), def("y", "b", day(1), byY)}, verdict: Ambiguous,
			message: `network "lan" is defined by y/b with pool by label y of the namespace, and by x/a with pool by label x of the namespace`},
		{name: "one label", named: []Network{def("x", "a", day(2), byX), def("y", "b", day(1), byX)}, verdict: Known, decides: "y/b"},
		{name: "what the controller has made comes before other namespaces'", named: []Network{def("evil", "a", day(1), other), def("tenure-system", "b", day(2), pool), def("evil", "c", day(1), foreign)},
			verdict: Known, decides: "tenure-system/b"},
		{name: "one of two is faulty", named: []Network{def("x", "a", day(1), `{"type":"tenure"}`), def("y", "b", day(2), pool)}, verdict: Known, decides: "y/b"},
		{name: "all are faulty", named: []Network{def("x", "a", day(1), `{"type":"tenure"}`)}, verdict: Faulty, message: "network attachment definition x/a: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Resolve(tt.named, "ns")
			decides := ""
			if got.Verdict == Known {
				decides = got.Network.String()
			}
			if got.Undefined != (len(tt.named) == 0) {
				t.Errorf("undefined: %v", got.Undefined)
			}
			if got.Verdict != tt.verdict || decides != tt.decides {
				t.Errorf("%v, decided by %q; want %v, %q", got.Verdict, decides, tt.verdict, tt.decides)
			}
			if !strings.HasPrefix(got.Message, tt.message) {
				t.Errorf("message %q; want %q", got.Message, tt.message)
			}
		})
	}
}

// TestOfNamespace: a network that goes by labels names no pool itself, and is of the pool that the
// labels of a namespace name, or has a fault.
func TestOfNamespace(t *testing.T) {
	n := Read("ns", "def", time.Time{}, `{"name":"l","type":"macvlan","ipam":{"type":"tenure","pools":["shared",{"byNamespace":"x"}]}}`)
	if got := fmt.Sprint(n.Pools(), n.NamedPools(), n.ByNamespace()); got != "[shared] [shared] true" {
		t.Errorf("it names %s", got)
	}
	in := n.OfNamespace("team", map[string]string{"x": "p"})
	if got := fmt.Sprint(in.Pools(), in.ByNamespace(), in.Fault); got != "[p shared] false" {
		t.Errorf("in a namespace: %s", got)
	}
	if in = n.OfNamespace("team", nil); !strings.Contains(in.Fault, "kubectl label namespace team x=POOL") || len(in.Sources) > 0 {
		t.Errorf("in a namespace without the label: %v, fault %q", in.Pools(), in.Fault)
	}
	if got := fmt.Sprint(n.Pools(), n.ByNamespace()); got != "[shared] true" {
		t.Errorf("it has become %s", got)
	}
}
