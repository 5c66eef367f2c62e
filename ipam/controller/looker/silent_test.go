package looker

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestBlockOfASilentNode (I1): what an edit has added lies in a block of n2, whose agent is away
// for a while, and a pod of n1 has an address of it by host-local. That one stays withheld, and
// is asked for until it is kept: n2 would give it when it is back.
func TestBlockOfASilentNode(t *testing.T) {
	addr := netip.MustParseAddr("10.0.1.2")
	c := newCluster()
	pool := lan()
	pool.Status.FencedSince = new(metav1.NewTime(c.now.Add(-time.Minute)))
	c.pools, c.pods = []v1alpha1.IPPool{pool}, []*corev1.Pod{showing("p", addr.String())}
	c.regs = append(c.regs, protocol.Registration{Meta: protocol.Meta{Name: "n2"}, Node: "n2", Store: "s"})
	c.Beats = func(n protocol.NodeName) bool { return n == "n1" }
	c.leases = append(c.leases, protocol.Lease{Meta: protocol.Meta{Name: "of-n2"}, Pool: "lan", PoolUID: "p1", Holder: protocol.Holder{Node: "n2"}, Block: netip.MustParsePrefix("10.0.1.0/28")})
	c.answer = func(q protocol.Query) protocol.Report {
		return protocol.Report{ID: q.ID, Running: []protocol.UID{"p"}, Has: []protocol.Sighting{{Addr: addr, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "p"}, Sandbox: "s", Network: "net", IPAM: "host-local"}}}
	}
	c.gives = func(grants.Ask) grants.Answer {
		return grants.Answer{Problem: grants.Problem{Reason: grants.Silent, Message: "n2 does not answer", Lease: "of-n2"}}
	}
	for range 2 {
		v := c.look(t)
		if _, asked := c.asks[addr]; !v.Clear() || !v.Blocked.Contains(addr) || v.Blocked.Contains(addr.Next()) || !asked {
			t.Fatalf("stage %d, blocked %v, asked for: %v; want that the address alone is withheld", v.Stage, v.Blocked, asked)
		}
		c.pools[0].Status.Withheld = []string{addr.String() + "-" + addr.String()} // what package pools makes of that
		c.now = c.now.Add(idleEvery)
	}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	if v := c.look(t); !v.Clear() || v.Blocked != nil && v.Blocked.Contains(addr) || len(v.Conflicts) > 0 {
		t.Errorf("it is kept: stage %d, blocked %v, conflicts %v", v.Stage, v.Blocked, v.Conflicts)
	}
}

// TestKeptWhereNobodyTells: what no pod is said to have any more stays kept while a node could tell
// of it that has no agent, or one that does not live. The verdict names that node.
func TestKeptWhereNobodyTells(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.2")
	for _, tt := range []struct {
		name   string
		change func(*cluster)
		node   protocol.NodeName
	}{
		{"no agent", func(c *cluster) { c.regs = nil }, "n1"},
		{"dead agent", func(c *cluster) { c.Beats = func(protocol.NodeName) bool { return false } }, "n1"},
		{"of several, where another node is off", func(c *cluster) {
			c.kept[0].Grant.To = c.kept[0].Grant.To.ToSeveral()
			c.regs = append(c.regs, protocol.Registration{Meta: protocol.Meta{Name: "n2"}, Node: "n2", Store: "s"})
			c.Beats = func(n protocol.NodeName) bool { return n == "n1" }
			c.answer = func(q protocol.Query) protocol.Report {
				return protocol.Report{ID: q.ID, Running: []protocol.UID{"x"}}
			}
		}, "n2"},
	} {
		c := newCluster()
		pool := lan()
		pool.Status.Withheld = nil
		c.pools, c.kept = []v1alpha1.IPPool{pool}, []grants.Held{keptFor("gone", addr.String())}
		tt.change(c)
		for range 3 {
			c.look(t)
			c.now = c.now.Add(endEvery)
		}
		if v := c.Of("lan"); slices.Contains(c.freed, addr) || !slices.Equal(v.NoAgent, []protocol.NodeName{tt.node}) || len(v.Held) > 0 {
			t.Errorf("%s: freed %v, nodes %v, %v; want that node %s is named", tt.name, c.freed, v.NoAgent, v.Held, tt.node)
		}
	}
}

// TestSilentByTheCacheAlone: a node whose agent has beaten since the cache heard of it is asked.
// Who deletes a pod by force then does not answer for it.
func TestSilentByTheCacheAlone(t *testing.T) {
	for live, asks := range map[protocol.Revision]bool{"": false, "9": true} {
		c := newCluster()
		c.pools, c.pods, c.live = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}, live
		c.Beats = func(protocol.NodeName) bool { return false }
		v := c.look(t)
		if asked, waits := len(c.asked) > 0, v.Stage == foreign.StageReports; asked != asks || waits != asks {
			t.Errorf("with revision %q live: n1 is asked: %v, and its answer waited for: %v; want %v", live, asked, waits, asks)
		}
	}
}
