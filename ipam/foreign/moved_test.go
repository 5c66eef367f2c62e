package foreign

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// implicitly is made as [Among] takes it, an hour old.
func implicitly(t *testing.T, d Definition) *Pool {
	t.Helper()
	p := made(t, d)
	p.Implicit, p.Named, p.Made, p.Edited = true, p.domain(), now.Add(-time.Hour), now.Add(-time.Hour)
	return &p
}

// begins is such a pool that was just made, and is about to be opened.
func begins(t *testing.T, d Definition) *Pool {
	t.Helper()
	p := implicitly(t, d)
	p.Fresh, p.Begins, p.Made = true, true, now
	return p
}

// of is a lease of 10.0.0.0/28 of another pool, which node n1 holds.
func of(p *Pool) protocol.Lease {
	l := lease(protocol.Holder{Node: "n1"})
	l.Pool = p.Name
	return l
}

// TestDefinitionMoves (I1): a definition of Tenure's gets other keys while its pods run, and with
// them another pool of the same addresses. That one is not opened while there are leases of the
// first: the definition's pods have these addresses on the same network.
func TestDefinitionMoves(t *testing.T) {
	const (
		plain = `{"type":"tenure","range":"10.0.0.0/24"}`
		blue  = `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`
		red   = `{"type":"tenure","range":"10.0.0.0/24","network_name":"red"}`
		alone = `{"type":"tenure","range":"10.0.0.0/24","enable_overlapping_ranges":false}`
	)
	for _, tt := range []struct{ name, was, is string }{
		{"it gets a network_name", plain, blue},
		{"it loses its network_name", blue, plain},
		{"another network_name", red, blue},
		{"a pool of its range alone", plain, alone},
		{"host-local's keys", plain, `{"type":"tenure","subnet":"10.0.0.0/24"}`},
	} {
		was, is := definition("net", tt.was), definition("net", tt.is)
		old, p := implicitly(t, was), begins(t, is)
		old.Opens = true
		facts := Facts{
			Definitions: []Definition{is}, Former: []Definition{was},
			Leases: map[protocol.PoolName][]protocol.Lease{old.Name: {of(old)}},
		}
		Among([]*Pool{old, p}, facts.Definitions)
		_, _, f := weighed(*p, facts)
		if f.Stage != StageOthers || len(f.Lingering) != 1 {
			t.Fatalf("%s: stage %d, beside %+v; want that it waits", tt.name, f.Stage, f.Lingering)
		}
		b := f.Lingering[0]
		if b.Pool != string(old.Name) || !b.First || !b.Ends || !strings.Contains(b.Lease, "10.0.0.0/28") {
			t.Errorf("%s: it waits for %+v; want the lease of pool %s", tt.name, b, old.Name)
		}
		p.ShareWith = []string{string(old.Name)}
		if _, _, f := weighed(*p, facts); f.Stage != StageClear {
			t.Errorf("%s, and shares nothing: stage %d, %q", tt.name, f.Stage, f.Why)
		}
		p.ShareWith, facts.Leases = nil, nil
		if _, _, f := weighed(*p, facts); f.Stage != StageClear {
			t.Errorf("%s, and nothing is leased: stage %d, %q", tt.name, f.Stage, f.Why)
		}
	}
}

// TestOneOfTwoDefinitionsMoves (I1): one of two definitions of a pool gets a pool of its own. That
// one is not opened while a pod of this definition has an address by the first pool. Else both
// pools give their addresses side by side: they are two networks.
func TestOneOfTwoDefinitionsMoves(t *testing.T) {
	const blue = `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`
	read := func(name, network, ipam string) Definition {
		return ReadDefinition("ns", name, fmt.Sprintf(`{"name":%q,"type":"macvlan","ipam":%s}`, network, ipam), nil)
	}
	stays := read("stays", "net", `{"type":"tenure","range":"10.0.0.0/24"}`)
	moves, alone := read("moves", "net", blue), read("moves", "alone", blue)
	selects := func(names ...string) Pod {
		p := pod("p", "ns/"+names[0], "")
		for _, name := range names[1:] {
			p.Selected = append(p.Selected, "ns/"+name)
		}
		return p
	}
	shows := func(p Pod, name string) Pod {
		p.Shows = pod("p", "ns/"+name, "10.0.0.5").Shows
		return p
	}
	for _, tt := range []struct {
		name    string
		is      Definition // what moves
		pod     Pod
		network string // on which n1 has given the pod an address
		addr    string
		want    bool
	}{
		{"of its network", alone, selects("moves"), "alone", "10.0.0.5", true},
		{"of its network, without selecting it", alone, selects("else"), "alone", "10.0.0.5", true},
		{"of a network that the other one has, too", moves, selects("moves"), "net", "10.0.0.5", true},
		{"of the other one, whose network it has, too", moves, selects("stays"), "net", "10.0.0.5", false},
		{"of either, without selecting it", moves, selects("else"), "net", "10.0.0.5", false},
		{"of the other one beside it", alone, selects("stays", "moves"), "net", "10.0.0.5", false},
		{"of the network that it had", alone, shows(selects("moves"), "moves"), "net", "10.0.0.5", true},
		{"of the other network", alone, shows(selects("stays", "moves"), "stays"), "net", "10.0.0.5", false},
		{"of its network, by another block", alone, selects("moves"), "alone", "10.0.0.55", false},
	} {
		old, p := implicitly(t, stays), begins(t, tt.is)
		old.Opens = true
		given := sighting(tt.addr, "p", tt.network)
		given.IPAM = Type
		facts := Facts{
			Definitions: []Definition{stays, tt.is}, Pods: []Pod{tt.pod},
			Agents:  map[protocol.NodeName]bool{"n1": true},
			Reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{given}}},
			Leases:  map[protocol.PoolName][]protocol.Lease{old.Name: {of(old)}},
		}
		Among([]*Pool{old, p}, facts.Definitions)
		_, _, f := weighed(*p, facts)
		if len(f.Lingering) > 0 != tt.want || (f.Stage == StageOthers) != tt.want || !f.Asks["n1"] {
			t.Errorf("a pod has an address %s: stage %d, beside %+v, asks %v; want that it waits: %v",
				tt.name, f.Stage, f.Lingering, f.Asks, tt.want)
		}
		// The node may have given it by this pool, if it does not tell by which. It holds the
		// block of one number of both: that is where it looks first in each.
		p.Fresh, facts.Leases[p.Name] = false, []protocol.Lease{of(p)}
		for pool, want := range map[protocol.PoolName]bool{"": false, p.Name: false, old.Name: tt.want || tt.addr == "10.0.0.55"} {
			facts.Reports["n1"].Has[0].Pool = pool
			if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 != want {
				t.Errorf("%s, by the lease of pool %q: beside %+v", tt.name, pool, f.Lingering)
			}
		}
	}
}

// TestMovedToAPoolThatHasGiven (I1): a definition moves to a pool that people have told apart,
// and that was open before: it is started again, or excludes an address no more. Its node holds
// the same block of both, or has made the other pool's lease since the leases were read.
func TestMovedToAPoolThatHasGiven(t *testing.T) {
	for _, starts := range []bool{true, false} {
		for _, read := range []bool{true, false} {
			stays, moves := definition("stays", `{"type":"tenure","pool":"lan1"}`), definition("net", `{"type":"tenure","pool":"lan2"}`)
			old, p := implicitly(t, stays), begins(t, moves)
			old.Implicit, p.Implicit, p.Fresh = false, false, false
			old.Domain, old.Named, old.Unnamed, p.Domain, p.Named, p.Unnamed = "", "", true, "wire2", "wire2", false
			facts := movedFacts(old, p, stays, moves, "net", "net")
			facts.Reports["n1"].Has[0].Pool, facts.Leases[p.Name] = "lan1", []protocol.Lease{of(p)}
			if !starts {
				p.Begins, p.CheckAll, p.Opens, p.Withheld = false, false, true, setOf(t, "10.0.0.5")
				p.New = p.Withheld
			}
			if !read {
				facts.Leases["lan1"] = nil
			}
			_, _, f := weighed(*p, facts)
			if f.Stage != StageOthers || len(f.Lingering) != 1 || f.Lingering[0].Pool != "lan1" || f.Lingering[0].Moved != "ns/p on node n1, by definition ns/net" || f.Lingering[0].Lease == "" {
				t.Errorf("it starts again: %v, the lease was read: %v: stage %d, beside %+v; want that it waits for pod p", starts, read, f.Stage, f.Lingering)
			}
		}
	}
}

// movedFacts are a pool old that the definition stays has, and its lease of 10.0.0.0/28 on n1; and
// p, which is about to be opened for the definition is, which was old's a moment ago. A pod of n1,
// which selects ns/selects, has 10.0.0.5 by Tenure on a network.
func movedFacts(old, p *Pool, stays, is Definition, selects, network string) Facts {
	old.Opens = true
	p.CheckAll, p.New, p.Since = true, p.Whole.Usable(), now.Add(-2*time.Second)
	given := sighting("10.0.0.5", "p", network)
	given.IPAM = Type
	facts := Facts{
		Definitions: []Definition{is, stays}, Pods: []Pod{pod("p", "ns/"+selects, "10.0.0.5")},
		Agents:  map[protocol.NodeName]bool{"n1": true},
		Reports: map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{given}, Running: []protocol.UID{"p"}}},
		Leases:  map[protocol.PoolName][]protocol.Lease{old.Name: {of(old)}},
	}
	Among([]*Pool{old, p}, facts.Definitions)
	return facts
}

// The ranges of a definition of Tenure's, without a name and with one.
const (
	plainRange = `{"type":"tenure","range":"10.0.0.0/24"}`
	blueRange  = `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`
)

// TestDefinitionMovesToAToldPool (I1): people have said that two networks are two. A definition
// that moves from the one to the other takes its running pods along: they are of the other network.
func TestDefinitionMovesToAToldPool(t *testing.T) {
	for _, how := range []string{"domains", "shareWith of a person's pool", "shareWith of an implicit pool"} {
		stays, moves := definition("stays", `{"type":"tenure","pool":"lan1"}`), definition("net", `{"type":"tenure","pool":"lan2"}`)
		if how != "domains" {
			stays = definition("stays", plainRange)
		}
		if how == "shareWith of an implicit pool" {
			moves = definition("net", blueRange)
		}
		old, p := implicitly(t, stays), begins(t, moves)
		switch how {
		case "domains":
			old.Implicit, p.Implicit = false, false
			old.Domain, old.Named, old.Unnamed, p.Domain, p.Named, p.Unnamed = "", "", true, "wire2", "wire2", false
		case "shareWith of a person's pool":
			p.Implicit, p.Domain, p.Named, p.ShareWith = false, "", "", []string{string(old.Name)}
		default:
			old.ShareWith = []string{string(p.Name)}
		}
		facts := movedFacts(old, p, stays, moves, "net", "net")
		if _, _, f := weighed(*p, facts); f.Stage != StageOthers || len(f.Lingering) != 1 || f.Lingering[0].Moved != "ns/p on node n1, by definition ns/net" {
			t.Errorf("%s: stage %d, beside %+v; want that it waits for the definition's pods", how, f.Stage, f.Lingering)
		}
		given := facts.Reports["n1"].Has[0]
		given.Freed = true
		facts.Reports = map[protocol.NodeName]protocol.Report{"n1": {Has: []protocol.Sighting{given}, Running: []protocol.UID{"other"}}}
		facts.Pods = nil
		if _, _, f := weighed(*p, facts); f.Stage != StageClear {
			t.Errorf("%s, and its pods are gone: stage %d, %q", how, f.Stage, f.Why)
		}
	}
}

// TestDefinitionIsMadeAnewForAnotherPool (I1): a definition is deleted, and made again under
// another name and for another pool. That one waits for the pods of the first, but not for those
// of a namespace that has no definition of it.
func TestDefinitionIsMadeAnewForAnotherPool(t *testing.T) {
	for namespace, want := range map[string]bool{"ns": true, "other": false} {
		stays := definition("stays", plainRange)
		moves := ReadDefinition(namespace, "again", `{"type":"macvlan","ipam":`+blueRange+`}`, nil)
		old, p := implicitly(t, stays), begins(t, moves)
		facts := movedFacts(old, p, stays, moves, "gone", "gone")
		if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 != want {
			t.Errorf("made again in %s: stage %d, beside %+v; want that it waits: %v", namespace, f.Stage, f.Lingering, want)
		}
	}
}

// TestStatusOfAnotherNamespace: who writes into the status of a pod that it shows an address by
// another namespace's definition holds up no pool of that.
func TestStatusOfAnotherNamespace(t *testing.T) {
	stays := definition("stays", plainRange)
	moves := ReadDefinition("victim", "net", `{"type":"macvlan","ipam":`+blueRange+`}`, nil)
	old, p := implicitly(t, stays), begins(t, moves)
	facts := movedFacts(old, p, stays, moves, "stays", "stays")
	facts.Pods[0].Shows = pod("p", "victim/net", "10.0.0.5").Shows
	if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 {
		t.Errorf("it waits for %+v; want that it does not", f.Lingering)
	}
}

// TestSelectionOfAnotherNamespace: nor does who has a running pod select another namespace's
// definition, whether or not the pool is open to all namespaces.
func TestSelectionOfAnotherNamespace(t *testing.T) {
	for _, stays := range []Definition{
		ReadDefinition("infra", "stays", `{"type":"macvlan","ipam":`+plainRange+`}`, nil),
		ReadDefinition("evil", "net", `{"type":"macvlan","ipam":`+plainRange+`}`, nil),
	} {
		moves := ReadDefinition("victim", "net", `{"type":"macvlan","ipam":`+blueRange+`}`, nil)
		old, p := implicitly(t, stays), begins(t, moves)
		facts := movedFacts(old, p, stays, moves, "x", stays.Network)
		facts.Pods[0].Namespace, facts.Pods[0].Selected, facts.Pods[0].Shows = "evil", []string{"victim/net"}, nil
		facts.Reports["n1"].Has[0].Pod.Namespace = "evil"
		for _, may := range []func(string) bool{nil, func(namespace string) bool { return namespace == "victim" }} {
			p.MayUse = may
			if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 {
				t.Errorf("beside %s it waits for %+v; want that it does not", stays, f.Lingering)
			}
		}
	}
}

// TestAskedByAnOldText (I1): an ADD that came to Tenure a moment ago may have come by what the
// definition was. It may come again, and get an address by that.
func TestAskedByAnOldText(t *testing.T) {
	for ago, want := range map[time.Duration]Stage{3 * time.Second: StagePods, retriedWithin + time.Second: StageClear} {
		stays, moves, was := definition("stays", plainRange), definition("net", blueRange), definition("net", plainRange)
		moves.Changed, was.Changed = now.Add(-ago), now.Add(-ago)
		old, p := implicitly(t, stays), begins(t, moves)
		facts := movedFacts(old, p, stays, moves, "net", "net")
		facts.Pods, facts.Former = []Pod{pod("p", "ns/net", "")}, []Definition{was}
		facts.Reports = map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"other"}, Asked: map[string][]protocol.UID{"net": {"p"}}}}
		if _, _, f := weighed(*p, facts); f.Stage != want {
			t.Errorf("%v after the edit: stage %d, %q; want %d", ago, f.Stage, f.Why, want)
		}
	}
}

// TestOwnerHasTheLastWord: who may edit definitions of a namespace, and not use the pool, holds it
// up neither by a definition that is written again and again, nor by one that moves to it.
func TestOwnerHasTheLastWord(t *testing.T) {
	may := func(namespace string) bool { return namespace == "ns" }
	for _, text := range []string{`{"type":"tenure","pool":"lan"}`, `{"type":"tenure","pools":[{"byNamespace":"net"}]}`} {
		edited := ReadDefinition("evil", "net", `{"name":"evilnet","type":"macvlan","ipam":`+text+`}`, nil)
		own := switched
		edited.Changed, own.Changed = now.Add(-9*time.Minute), now.Add(-24*time.Hour)
		p := openings(lan(t))
		p.Since, p.MayUse, p.ShareWith = now.Add(-24*time.Hour), may, []string{"evil/net"}
		x := pod("x", "evil/net", "")
		x.Namespace, x.Selected = "evil", append(x.Selected, "evil/missing")
		facts := Facts{
			Definitions: []Definition{edited, own}, Pods: []Pod{x}, Agents: map[protocol.NodeName]bool{"n1": true},
			Reports: map[protocol.NodeName]protocol.Report{"n1": {Running: []protocol.UID{"x", "other"}}},
		}
		Among([]*Pool{&p}, facts.Definitions)
		if _, _, f := weighed(p, facts); f.Stage != StageClear {
			t.Errorf("%s, written again: stage %d, %q", text, f.Stage, f.Why)
		}
	}
	for _, let := range [][]string{{"evil/net"}, nil} {
		stays, own := definition("stays", plainRange), definition("own", `{"type":"tenure","pool":"lan2"}`)
		moves := ReadDefinition("evil", "net", `{"name":"net","type":"macvlan","ipam":{"type":"tenure","pool":"lan2"}}`, nil)
		old, p := implicitly(t, stays), begins(t, own)
		p.Implicit, p.Domain, p.Named, p.ShareWith = false, "", "", append(let, string(old.Name))
		if let == nil {
			p.MayUse = may
		}
		facts := movedFacts(old, p, stays, moves, "x", "net")
		facts.Definitions = append(facts.Definitions, own)
		facts.Pods[0].Namespace, facts.Pods[0].Selected, facts.Pods[0].Shows = "evil", []string{"evil/net"}, nil
		facts.Reports["n1"].Has[0].Pod.Namespace = "evil"
		Among([]*Pool{old, p}, facts.Definitions)
		if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 {
			t.Errorf("moved, and let %v: it waits for %+v", let, f.Lingering)
		}
	}
}

// TestNotMoved: two pools that are told apart open side by side. What a device of a ResourceClaim
// has is on a network that no definition has, such as one of the pool's name; so is what a pod has
// by a definition of the other pool whose configuration got another name. But the nodes are asked.
func TestNotMoved(t *testing.T) {
	for network, selects := range map[string]string{"fabric": "", "stays": "ns/stays", "lan1": "ns/own"} {
		stays := ReadDefinition("ns", "stays", `{"name":"renamed","type":"macvlan","ipam":{"type":"tenure","pool":"lan1"}}`, nil)
		own := definition("own", `{"type":"tenure","pool":"lan2"}`)
		old, p := implicitly(t, stays), begins(t, own)
		old.Implicit, p.Implicit = false, false
		old.Domain, old.Named, p.Domain, p.Named = "one", "one", "two", "two"
		facts := movedFacts(old, p, stays, own, "stays", network)
		facts.Pods[0].Selected, facts.Pods[0].Shows = []string{selects}, nil
		if selects == "" {
			facts.Pods = nil
		}
		if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 || !f.Asks["n1"] {
			t.Errorf("a pod that selects %q: it asks %v and waits for %+v", selects, f.Asks, f.Lingering)
		}
	}
}

// TestMadeAnewBesideOthers (I1): a definition is deleted, and made again under another name, while
// another namespace has one of the old name, or while pods of other namespaces select it. The pool
// waits for its pods; where no agent lives, their status counts, as of a definition that is there.
func TestMadeAnewBesideOthers(t *testing.T) {
	for _, tt := range []struct {
		stays, was string
		dead       bool
	}{{"team2/lan", "ns/lan", false}, {"team2/else", "infra/lan", false}, {"team2/else", "ns/lan", true}} {
		read := func(name, ipam string) Definition {
			namespace, name, _ := strings.Cut(name, "/")
			return ReadDefinition(namespace, name, `{"type":"macvlan","ipam":`+ipam+`}`, nil)
		}
		stays, was, is := read(tt.stays, plainRange), read(tt.was, plainRange), read(tt.was+"-blue", blueRange)
		was.Changed = now.Add(-5 * time.Second)
		old, p := implicitly(t, stays), begins(t, is)
		facts := movedFacts(old, p, stays, is, "x", "lan")
		facts.Pods[0].Selected, facts.Pods[0].Shows[0].Definition = []string{tt.was}, tt.was
		facts.Former = []Definition{was}
		if tt.dead {
			facts.Agents, facts.Reports = map[protocol.NodeName]bool{"n1": false}, nil
		}
		keep, _, f := weighed(*p, facts)
		if len(f.Lingering) > 0 == tt.dead || len(keep) > 0 != tt.dead {
			t.Errorf("%+v: stage %d, keeps %v, beside %+v", tt, f.Stage, keep, f.Lingering)
		}
	}
}

// TestMovedBesideNamesakes (I1): another definition has the network's name, and the pod does not
// show what it has. A pod that is gone, and still runs, has it by one of its namespace all the
// same; and another namespace's, which does not give addresses of the old pool, says nothing.
func TestMovedBesideNamesakes(t *testing.T) {
	moves := readNetwork("shared", "net", "conf", `{"type":"tenure","pool":"lan2"}`)
	for name, tt := range map[string]struct {
		namespace string
		beside    Definition
		selects   string // "" for one that is gone
	}{
		"gone":              {"shared", readNetwork("shared", "stays", "conf", `{"type":"tenure","pool":"lan1"}`), ""},
		"gone, elsewhere":   {"team", readNetwork("team", "stays", "conf", `{"type":"tenure","pool":"lan1"}`), ""},
		"a stranger's":      {"team", readNetwork("evil", "x", "conf", `{"type":"static"}`), "shared/net"},
		"without right":     {"team", readNetwork("evil", "x", "conf", `{"type":"tenure","pool":"lan1"}`), "shared/net"},
		"a default network": {"team", readNetwork("infra", "x", "conf", `{"type":"tenure","pool":"lan1"}`), "shared/other"},
	} {
		stays := readNetwork("shared", "other", "other", `{"type":"tenure","pool":"lan1"}`)
		old, p := implicitly(t, stays), begins(t, moves)
		old.Implicit, p.Implicit = false, false
		old.Domain, old.Named, old.Unnamed, p.Domain, p.Named, p.Unnamed = "", "", true, "wire2", "wire2", false
		old.MayUse = func(namespace string) bool { return namespace != "evil" }
		facts := movedFacts(old, p, stays, moves, "net", "conf")
		facts.Definitions = append(facts.Definitions, tt.beside)
		has := &facts.Reports["n1"].Has[0]
		has.Pool, has.Pod.Namespace = "lan1", tt.namespace
		x := &facts.Pods[0]
		x.Namespace, x.Selected, x.Shows = tt.namespace, []string{tt.selects}, nil
		if tt.selects == "" {
			facts.Pods = nil
		}
		Among([]*Pool{old, p}, facts.Definitions)
		if _, _, f := weighed(*p, facts); len(f.Lingering) != 1 || f.Lingering[0].Moved == "" {
			t.Errorf("%s: stage %d, beside %+v; want that it waits for the pod", name, f.Stage, f.Lingering)
		}
	}
}

// TestStrangersPodIsNotMoved: a pod has a network of the other pool, and its owner takes its
// selection away. Its namespace may not use the pool, which opens: what another definition of the
// network's name may have given it is not taken for moved.
func TestStrangersPodIsNotMoved(t *testing.T) {
	moves := readNetwork("blue", "net", "conf", `{"type":"tenure","pool":"lan2"}`)
	for _, by := range []string{"red", "infra"} {
		for _, may := range []bool{false, true} {
			stays := readNetwork(by, "net", "conf", `{"type":"tenure","pool":"lan1"}`)
			old, p := implicitly(t, stays), begins(t, moves)
			old.Implicit, p.Implicit = false, false
			old.Domain, old.Named, old.Unnamed, p.Domain, p.Named, p.Unnamed = "", "", true, "wire2", "wire2", false
			p.MayUse = func(namespace string) bool { return may || namespace == "blue" }
			facts := movedFacts(old, p, stays, moves, "", "conf")
			facts.Pods, facts.Others = nil, map[protocol.UID]bool{"p": true}
			has := &facts.Reports["n1"].Has[0]
			has.Pool, has.Pod.Namespace = "lan1", "red"
			if _, _, f := weighed(*p, facts); len(f.Lingering) > 0 != may {
				t.Errorf("by %s, its namespace may use the pool: %v: stage %d, beside %+v", stays, may, f.Stage, f.Lingering)
			}
		}
	}
}

// TestAnotherIPAMsDefinitionHasNotMoved: a pool waits for a definition that is whereabouts' still.
// It does not name it as one that has moved: the owner would name it in spec.shareWith, and say by
// that that whereabouts gives none of the addresses.
func TestAnotherIPAMsDefinitionHasNotMoved(t *testing.T) {
	stays := readNetwork("red", "net", "conf", `{"type":"tenure","range":"10.0.0.0/24","network_name":"red"}`)
	theirs := readNetwork("blue", "net", "conf", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`)
	own := readNetwork("blue", "own", "own", `{"type":"tenure","range":"10.0.0.0/24","network_name":"blue"}`)
	old, p := implicitly(t, stays), begins(t, own)
	facts := movedFacts(old, p, stays, own, "", "conf")
	facts.Pods, facts.Definitions = nil, append(facts.Definitions, theirs)
	facts.Reports["n1"].Has[0].Pool = old.Name
	Among([]*Pool{old, p}, facts.Definitions)
	others, _ := p.Others(facts.Definitions)
	if _, _, f := weighed(*p, facts); len(others) != 1 || len(f.Lingering) > 0 {
		t.Errorf("stage %d, others %v, beside %+v; want that it waits for whereabouts alone", f.Stage, others, f.Lingering)
	}
}

// TestOneNumberOnTwoNetworksIsNotMoved: a pod has one number of two networks, by host-local of
// lan's and by Tenure of another VLAN's. Its status tells which is which.
func TestOneNumberOnTwoNetworksIsNotMoved(t *testing.T) {
	pool := openings(lan(t))
	pool.Fresh, pool.Begins = true, true
	other, l := sighting("10.0.0.5", "p", "a"), lease(protocol.Holder{Node: "n1"})
	other.IPAM, other.Pool, l.Pool = Type, "lan-a", "lan-a"
	facts := twoVLANs(t, &pool, Facts{
		Pods: []Pod{onTwo()}, Reports: seenBy("n1", other, sighting("10.0.0.5", "p", "net")),
		Leases: map[protocol.PoolName][]protocol.Lease{"lan-a": {l}},
	})
	if keep, _, f := weighed(pool, facts); fmt.Sprint(keep) != "[10.0.0.5 p]" || len(f.Lingering) > 0 {
		t.Errorf("it keeps %q, and waits for %+v; want what host-local gave", keep, f.Lingering)
	}
}
