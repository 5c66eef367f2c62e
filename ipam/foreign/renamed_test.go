package foreign

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readNetwork returns a definition whose configuration has a name of its own.
func readNetwork(namespace, name, network, ipam string) Definition {
	return ReadDefinition(namespace, name, `{"name":"`+network+`","type":"macvlan","ipam":`+ipam+`}`, nil)
}

// TestNetworkRenamedAtTheSwitch (I1): a definition got another network name as it became Tenure's,
// longer ago than is remembered. What its pod's node has seen on the old network counts, since the
// pod shows it of that definition: else who has asked static for the address would get it.
func TestNetworkRenamedAtTheSwitch(t *testing.T) {
	for _, network := range []string{"net", "renamed"} {
		for may, want := range map[bool]string{true: "10.0.0.5 several/", false: "10.0.0.5 v"} {
			p := openings(lan(t))
			p.MayUse = func(namespace string) bool { return namespace != "other" || may }
			v, o := pod("v", "ns/net", "10.0.0.5"), pod("o", "other/static", "10.0.0.5")
			o.Namespace, o.Node = "other", "n2"
			asked := sighting("10.0.0.5", "o", "other-net")
			asked.IPAM, asked.Pod.Namespace = "static", "other"
			facts := Facts{
				Definitions: []Definition{readNetwork("ns", "net", network, `{"type":"tenure","pool":"lan"}`), readNetwork("other", "static", "other-net", `{"type":"static"}`)},
				Pods:        []Pod{v, o}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true},
				Reports: map[protocol.NodeName]protocol.Report{
					"n1": {Running: []protocol.UID{"v"}, Has: []protocol.Sighting{sighting("10.0.0.5", "v", "net")}},
					"n2": {Running: []protocol.UID{"o"}, Has: []protocol.Sighting{asked}},
				},
			}
			Among([]*Pool{&p}, facts.Definitions)
			keep, _, _ := weighed(p, facts)
			if len(keep) != 1 || !strings.HasPrefix(keep[0], want) {
				t.Errorf("network %s, the other may use the pool: %v: keeps %q; want %q", network, may, keep, want)
			}
		}
	}
}

// TestDefinitionGetsAnotherNetworkName (I1): one of two definitions of whereabouts' is edited to
// another network_name and range, longer ago than is remembered, and its pod runs on with what it
// had. By what the definition is now it can not have that: the other one's pool keeps it.
func TestDefinitionGetsAnotherNetworkName(t *testing.T) {
	for _, tt := range []struct {
		name, is string
		want     bool
	}{
		{"to another network", `{"type":"whereabouts","range":"10.1.0.0/24","network_name":"red"}`, true},
		{"to another network, and to Tenure", `{"type":"tenure","range":"10.1.0.0/24","network_name":"red"}`, true},
		{"to no name", `{"type":"whereabouts","range":"10.1.0.0/24"}`, true},
		{"it always was of another network", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"red"}`, false},
		{"it always was of another network, and Tenure does not read its ranges", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"red","x":1}`, false},
	} {
		is, other := definition("net", tt.is), definition("net2", `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`)
		p := begins(t, other)
		p.CheckAll, p.New, p.Since, p.Fenced = true, p.Whole.Usable(), now.Add(-AddWithin), true
		x := pod("p", "ns/net", "10.0.0.5")
		facts := Facts{
			Definitions: []Definition{is, other}, Pods: []Pod{x}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}, Has: []protocol.Sighting{
				{Addr: netip.MustParseAddr("10.0.0.5"), Pod: x.PodRef, Sandbox: "s", Network: "net", IPAM: TypeWhereabouts},
			}}},
		}
		Among([]*Pool{p}, facts.Definitions)
		for _, recorded := range []bool{false, true} {
			if recorded {
				object := "blue-10.0.0.0-24"
				if !tt.want {
					object = "red-10.0.0.0-24"
				}
				facts.Records = []Record{{Source: object, Object: object, Addr: netip.MustParseAddr("10.0.0.5"), PodNamespace: "ns", PodName: "p"}}
			}
			if keep, _, f := weighed(*p, facts); slices.Contains(keep, "10.0.0.5 p") != tt.want {
				t.Errorf("%s, recorded: %v: keeps %q, stage %d; want that it does: %v", tt.name, recorded, keep, f.Stage, tt.want)
			}
		}
	}
}

// TestRecordNamesItsNetwork (I1): a definition of whereabouts' is edited to another network_name of
// the same range, and its pod runs on with what it had. Whereabouts' IPPool says of which network
// that is.
func TestRecordNamesItsNetwork(t *testing.T) {
	was := definition("net", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`)
	for _, ipam := range []string{TypeWhereabouts, Type} {
		for _, lately := range []bool{true, false} {
			is, other := definition("net", `{"type":"`+ipam+`","range":"10.0.0.0/24","network_name":"red"}`), definition("net2", `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`)
			p := begins(t, other)
			p.CheckAll, p.New, p.Since, p.Fenced = true, p.Whole.Usable(), now.Add(-AddWithin), true
			x, starts := pod("p", "ns/net", "10.0.0.5"), pod("starts", "ns/net", "")
			facts := Facts{
				Definitions: []Definition{is, other}, Pods: []Pod{x, starts}, Agents: map[protocol.NodeName]bool{"n1": true},
				Records: []Record{{Source: "blue", Object: "blue-10.0.0.0-24", Addr: netip.MustParseAddr("10.0.0.5"), PodNamespace: "ns", PodName: "p"}},
				Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"p"}}},
			}
			want := StageClear
			if was.Changed = now.Add(-time.Minute); lately {
				facts.Former, want = []Definition{was}, StagePods // an ADD by the old text may be under way
			}
			Among([]*Pool{p}, facts.Definitions)
			if keep, _, f := weighed(*p, facts); !slices.Equal(keep, []string{"10.0.0.5 p"}) || f.Stage != want {
				t.Errorf("now of %s, edited lately: %v: keeps %q, stage %d, %q; want that it keeps the address, and stage %d", ipam, lately, keep, f.Stage, f.Why, want)
			}
		}
	}
}

// TestNamesakesHideNothing (I1): a shared definition moves from one pool to another, and its
// network gets another name. Definitions of a third namespace that have the old one, of the new
// pool and of any other IPAM, tell nothing of its pods, whether or not that namespace may use
// the pool.
func TestNamesakesHideNothing(t *testing.T) {
	stays := readNetwork("infra", "stays", "stays", `{"type":"tenure","pool":"lan1"}`)
	own, others := readNetwork("third", "a", "lan", `{"type":"tenure","pool":"lan2"}`), readNetwork("third", "b", "lan", `{"type":"dhcp"}`)
	for _, tt := range []struct {
		name, network string // what the definition's network is called by now
		namesakes     []Definition
		gone          bool // the pod's object is gone, and its sandbox runs on
	}{
		{name: "none", network: "lan-2"},
		{name: "one of the pool", network: "lan-2", namesakes: []Definition{own}},
		{name: "one of another IPAM", network: "lan-2", namesakes: []Definition{others}},
		{name: "both", network: "lan-2", namesakes: []Definition{own, others}},
		{name: "one of another IPAM, and the pod's object is gone", network: "lan", namesakes: []Definition{others}, gone: true},
	} {
		for _, may := range []bool{true, false} {
			moved := readNetwork("infra", "lan", tt.network, `{"type":"tenure","pool":"lan2"}`)
			old, p := implicitly(t, stays), begins(t, moved)
			old.Implicit, p.Implicit = false, false
			old.Domain, old.Named, old.Unnamed, p.Domain, p.Named, p.Unnamed = "", "", true, "wire2", "wire2", false
			facts := movedFacts(old, p, stays, moved, "x", "lan")
			facts.Definitions = append(facts.Definitions, tt.namesakes...)
			Among([]*Pool{old, p}, facts.Definitions)
			p.MayUse = func(namespace string) bool { return namespace != "third" || may }
			x := &facts.Pods[0]
			x.Namespace, x.Selected, x.Shows = "team", []string{"infra/lan"}, pod("p", "infra/lan", "10.0.0.5").Shows
			facts.Reports["n1"].Has[0].Pod.Namespace = "team"
			if tt.gone {
				facts.Pods = nil
			}
			if _, _, f := weighed(*p, facts); len(f.Lingering) == 0 || f.Stage != StageOthers {
				t.Errorf("%s, may use the pool: %v: stage %d; want that it waits for the pod", tt.name, may, f.Stage)
			}
		}
	}
}

// TestLetDefinitionThatCannotBeRead: the files of a definition that a person lets hold nothing up,
// whichever IPAM it names.
func TestLetDefinitionThatCannotBeRead(t *testing.T) {
	for _, ipam := range []string{`{"type":"tenure","pool":"lan","dataDir":"/srv/x"}`, `{"type":"whereabouts","range":"10.0.0.0/24","dataDir":"/srv/x"}`} {
		let := readNetwork("third", "net", "third-net", ipam)
		p := openings(lan(t))
		old := pod("old", "ns/net", "10.0.0.5")
		facts := Facts{
			Definitions: []Definition{switched, let}, Pods: []Pod{old}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"old"}, Has: []protocol.Sighting{sighting("10.0.0.5", "old", "net")},
				Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "third-net", DataDir: "/srv/x"}, Why: "cannot be read"}}}},
		}
		Among([]*Pool{&p}, facts.Definitions)
		if _, _, f := weighed(p, facts); f.Stage != StageReports {
			t.Errorf("%s: stage %d; want that it waits", ipam, f.Stage)
		}
		p.ShareWith = []string{"third/net"}
		if _, _, f := weighed(p, facts); f.Stage != StageClear {
			t.Errorf("%s, in spec.shareWith: stage %d, %q", ipam, f.Stage, f.Why)
		}
	}
}
