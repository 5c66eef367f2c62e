package foreign

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestPendingAfterADefinitionHasLeft (I1): a definition of another IPAM's was written again, and
// does not give the pool's addresses any more. An ADD by what it was may be under way: pods that
// select it and were bound before are waited for, and the nodes are asked, as if it were gone.
func TestPendingAfterADefinitionHasLeft(t *testing.T) {
	const ago = time.Minute
	const ours, elsewhere = `{"type":"host-local","subnet":"10.0.0.0/24"}`, `{"type":"host-local","subnet":"192.168.7.0/24"}`
	const both = `{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"192.168.7.0/24"}]]}`
	for _, tt := range []struct {
		name  string
		was   []string // the last one is what it was in the end
		is    string
		since time.Duration
		bound time.Duration
		want  Stage
	}{
		{"it gives others", []string{ours}, elsewhere, ago, ago + time.Second, StagePods},
		{"it gives others, and is bound since", []string{ours}, elsewhere, ago, ago - skew - time.Second, StageClear},
		{"it gives others since long", []string{ours}, elsewhere, AddWithin + time.Second, AddWithin + time.Minute, StageClear},
		{"it gives a part", []string{both}, elsewhere, ago, ago + time.Second, StagePods},
		{"it is Tenure's, of a pool of others", []string{ours}, `{"type":"tenure","pool":"far"}`, ago, ago + time.Second, StagePods},
		{"it is Tenure's, of a pool of others that has yet to be made", []string{ours}, `{"type":"tenure","range":"192.168.7.0/24"}`, ago, ago + time.Second, StagePods},
		{"it is Tenure's, of a pool that people have told apart", []string{ours}, `{"type":"tenure","pool":"lan-a"}`, ago, ago + time.Second, StageClear},
		{"it gives none", []string{ours}, `{}`, ago, ago + time.Second, StagePods},
		{"it was written twice", []string{ours, elsewhere}, `{"type":"host-local","subnet":"192.168.8.0/24"}`, ago, ago + time.Second, StagePods},
		{"it was written twice, and gave some until then", []string{ours, both}, elsewhere, ago, ago - skew + time.Second/4, StagePods},
		{"it always gave others", []string{elsewhere}, `{"type":"host-local","subnet":"192.168.8.0/24"}`, ago, ago + time.Second, StageClear},
		{"it was Tenure's", []string{`{"type":"tenure","pool":"lan"}`}, elsewhere, ago, ago + time.Second, StageClear},
	} {
		pool := openings(lan(t))
		pool.Fresh, pool.Domain = true, "b"
		far := &Pool{Name: "far", Domain: "b", Whole: shapeOf(t, poolspec.RangeText{CIDR: "192.168.7.0/24"})}
		Among([]*Pool{&pool, another(t, "lan-a", "a", false), far}, nil)
		facts := Facts{Definitions: []Definition{switched, definition("x", tt.is)}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true}}
		facts.Definitions[1].Changed = now.Add(-tt.since)
		for i, was := range slices.Backward(tt.was) {
			d := definition("x", was)
			d.Changed = now.Add(-tt.since - time.Duration(len(tt.was)-1-i)*time.Second/2)
			facts.Former = append(facts.Former, d)
		}
		p := pod("p", "ns/x", "")
		p.Bound = now.Add(-tt.bound)
		facts.Pods = []Pod{p}
		if _, _, found := weighed(pool, facts); tt.want == StagePods && len(found.Asks) != 2 {
			t.Errorf("%s: nodes %v are asked; want both", tt.name, found.Asks)
		}
		facts.Agents = nil
		if _, _, found := weighed(pool, facts); found.Stage != tt.want {
			t.Errorf("%s: stage %d, %q; want %d", tt.name, found.Stage, found.Why, tt.want)
		}
	}
}

// TestDoneAfterADefinitionHasLeft: such a pod is waited for until its status shows what its node
// has seen. What it has got of the pool by what the definition was is kept for it.
func TestDoneAfterADefinitionHasLeft(t *testing.T) {
	was, is := definition("x", `{"type":"host-local","subnet":"10.0.0.0/24"}`), definition("x", `{"type":"host-local","subnet":"192.168.7.0/24"}`)
	was.Changed, is.Changed = now.Add(-time.Second), now.Add(-time.Second)
	for _, tt := range []struct {
		shows string
		seen  string // empty is nothing
		want  Stage
		keep  string
	}{
		{"", "", StagePods, "[]"},
		{"10.0.0.5", "", StagePods, "[10.0.0.5 p]"},
		{"", "10.0.0.5", StagePods, "[10.0.0.5 p]"},
		{"10.0.0.5", "10.0.0.5", StageClear, "[10.0.0.5 p]"},
		{"192.168.7.5", "", StageClear, "[]"},
	} {
		report := protocol.Report{Running: []protocol.UID{"p"}}
		if tt.seen != "" {
			report.Has = []protocol.Sighting{sighting(tt.seen, "p", "x")}
		}
		pool := openings(lan(t))
		pool.Fresh = true
		keep, _, found := weighed(pool, Facts{
			Definitions: []Definition{switched, is}, Former: []Definition{was}, Pods: []Pod{pod("p", "ns/x", tt.shows)},
			Agents: map[protocol.NodeName]bool{"n1": true}, Reports: map[protocol.NodeName]protocol.Report{"n1": report},
		})
		if found.Stage != tt.want || fmt.Sprint(keep) != tt.keep {
			t.Errorf("it shows %q, and its node has seen %q: stage %d, %q, kept is %q; want %d and %s", tt.shows, tt.seen, found.Stage, found.Why, keep, tt.want, tt.keep)
		}
	}
}

// TestAsksAfterHostLocal: a definition of host-local's was written anew by hand, with none of its
// keys left. A pod that was deleted by force and still runs may have an address by it, and then
// only its node can tell.
func TestAsksAfterHostLocal(t *testing.T) {
	for was, want := range map[string]int{
		`{"type":"host-local","subnet":"10.0.0.0/24"}`:    2,
		`{"type":"host-local","subnet":"192.168.7.0/24"}`: 0,
		`{"type":"tenure","subnet":"10.0.0.0/24"}`:        0,
	} {
		former := definition("net", was)
		former.Changed = now.Add(-time.Second)
		_, _, found := weighed(openings(lan(t)), Facts{
			Definitions: []Definition{switched}, Former: []Definition{former}, Agents: map[protocol.NodeName]bool{"n1": true, "n2": true},
		})
		if len(found.Asks) != want || (found.Stage == StageReports) != (want > 0) {
			t.Errorf("it was %s: nodes %v are asked, stage %d; want %d nodes", was, found.Asks, found.Stage, want)
		}
	}
}

// TestSwitchWaitsAsBefore: what a definition was that is switched where it stands adds nothing to
// what the pool waits for, however late the watch has told of it.
func TestSwitchWaitsAsBefore(t *testing.T) {
	was := definition("net", `{"type":"host-local","subnet":"10.0.0.0/24"}`)
	for _, since := range []time.Duration{time.Second, AddWithin - time.Second, AddWithin + time.Second} {
		for _, late := range []time.Duration{0, 30 * time.Second} { // after it was written
			for _, bound := range []time.Duration{time.Hour, since - skew - time.Second, since - late} {
				is := switched
				is.Changed, was.Changed = now.Add(-since), now.Add(late-since)
				pool := openings(lan(t))
				pool.Since = now.Add(-time.Hour)
				p := pod("p", "ns/net", "")
				p.Bound = now.Add(-bound)
				facts := Facts{Definitions: []Definition{is}, Pods: []Pod{p}}
				_, _, before := weighed(pool, facts)
				facts.Former = []Definition{was}
				if _, _, found := weighed(pool, facts); found.Stage != before.Stage || found.Why != before.Why {
					t.Errorf("switched %v ago, bound %v ago: stage %d, %q; want as without what it was, %d, %q", since, bound, found.Stage, found.Why, before.Stage, before.Why)
				}
			}
		}
	}
}

// TestSeenOnAFormerNetwork (I1): a definition of host-local's was written anew by hand under
// another network name, or deleted. What a node has seen on its former network is kept, also of a
// pod that was deleted by force; and the pool waits while files of that network cannot be read.
// What the definition gives as it is now is not the pool's.
func TestSeenOnAFormerNetwork(t *testing.T) {
	const hostLocal, apart = `{"type":"host-local","subnet":"10.0.0.0/24"}`, `{"type":"tenure","pool":"lan-a"}`
	const gives = `{"name":"depot","type":"macvlan","ipam":` + hostLocal + `}`
	for _, tt := range []struct {
		name string
		was  string // the name of what was of network depot, by host-local
		is   string // what definition x is now
		want bool
	}{
		{"it is Tenure's, of another network", "net", "", true},
		{"it is gone", "gone", "", true},
		{"it is gone, and another has its network's name", "gone", `{"name":"depot","type":"macvlan","ipam":` + apart + `}`, true},
		{"it gives others", "x", `{"name":"depot","type":"macvlan","ipam":{"type":"host-local","subnet":"192.168.7.0/24"}}`, true},
		{"it is of a pool that people have told apart, of another network", "x", `{"name":"x","type":"macvlan","ipam":` + apart + `}`, false},
		{"it is of a pool that people have told apart", "x", `{"name":"depot","type":"macvlan","ipam":` + apart + `}`, false},
		{"it never was", "", "", false},
	} {
		unseen := protocol.Report{Running: []protocol.UID{"p"}, Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "depot"}, Why: "no right"}}}
		for _, pods := range [][]Pod{nil, {pod("p", "ns/"+tt.was, "")}} {
			pool := openings(lan(t))
			pool.Fresh, pool.Domain = true, "b"
			Among([]*Pool{&pool, another(t, "lan-a", "a", false)}, nil)
			facts := Facts{Definitions: []Definition{switched}, Pods: pods, Agents: map[protocol.NodeName]bool{"n1": true}, Reports: seenBy("n1", sighting("10.0.0.5", "p", "depot"))}
			if tt.is != "" {
				facts.Definitions = append(facts.Definitions, ReadDefinition("ns", "x", tt.is, nil))
			}
			if tt.was != "" {
				former := ReadDefinition("ns", tt.was, gives, nil)
				former.Changed = now.Add(-time.Second)
				facts.Former = []Definition{former, former}
			}
			if keep, _, _ := weighed(pool, facts); (fmt.Sprint(keep) == "[10.0.0.5 p]") != tt.want || len(keep) > 1 {
				t.Errorf("%s, known are %d pods: kept is %q; want it kept: %v", tt.name, len(pods), keep, tt.want)
			}
			facts.Pods, facts.Reports = nil, map[protocol.NodeName]protocol.Report{"n1": unseen}
			if _, _, found := weighed(pool, facts); (found.Stage == StageReports) != tt.want {
				t.Errorf("%s, and files cannot be read: stage %d, %q; want it to wait: %v", tt.name, found.Stage, found.Why, tt.want)
			}
		}
	}
}
