package grants

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var (
	ada  = protocol.Grantee{Kind: protocol.GranteeClaim, UID: "u-ada", Namespace: "ns", Name: "ada"}
	bert = protocol.Grantee{Kind: protocol.GranteeClaim, UID: "u-bert", Namespace: "ns", Name: "bert"}
)

func grant(addr string, to protocol.Grantee) protocol.Grant {
	return protocol.Grant{Addr: netip.MustParseAddr(addr), To: to}
}

// freeing is a grant with a mark of its own.
func freeing(g protocol.Grant) protocol.Grant { return marked(g, "5") }

func marked(g protocol.Grant, mark protocol.Revision) protocol.Grant {
	g.Freeing, g.Mark = true, mark
	return g
}

// cmpValues compares values of netip, whose fields are hidden.
var cmpValues = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func TestRewrite(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/30")
	lease := func(grants ...protocol.Grant) protocol.Lease {
		return protocol.Lease{
			Meta: protocol.Meta{Name: "lan.0a000000.30", UID: "l1", Revision: "7"}, Protocol: protocol.Version,
			Pool: "lan", PoolUID: "p1", Block: block, Holder: protocol.Holder{Cluster: true}, Grants: grants,
		}
	}
	ofNode := lease()
	ofNode.Holder = protocol.Holder{Node: "n1"}
	ceding := ofNode.Clone()
	ceding.Ceded = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	later := lease(freeing(grant("10.0.0.1", ada)))
	later.Protocol++
	toAda, toBert := grant("10.0.0.1", ada), grant("10.0.0.1", bert)
	kept := grant("10.0.0.1", protocol.Grantee{Kind: protocol.GranteePod, UID: "p", Namespace: "ns", Name: "p", Node: "n1"})
	fromAll := grant("10.0.0.1", kept.To.ToSeveral())
	toPod := func(node protocol.NodeName) edit {
		return edit{verb: add, grant: toAda, on: "l1", pod: protocol.Grantee{Kind: protocol.GranteePod, UID: "p", Node: node}}
	}
	planned := func(v Verb, g protocol.Grant) edit { return edit{verb: v, grant: g, on: "l1"} }

	tests := []struct {
		name    string
		lease   protocol.Lease
		edits   []edit
		want    []protocol.Grant
		done    []bool
		changed bool
	}{
		{"add", lease(), []edit{planned(add, toAda)}, []protocol.Grant{toAda}, []bool{true}, true},
		{"two adds of one address: the first wins", lease(), []edit{planned(add, toAda), planned(add, toBert)},
			[]protocol.Grant{toAda}, []bool{true, false}, true},
		{"add again", lease(toAda), []edit{planned(add, toAda)}, []protocol.Grant{toAda}, []bool{true}, false},
		{"add what is being freed", lease(freeing(toAda)), []edit{planned(add, toAda)}, []protocol.Grant{freeing(toAda)}, []bool{false}, false},
		{"add another's", lease(toBert), []edit{planned(add, toAda)}, []protocol.Grant{toBert}, []bool{false}, false},
		{"add what is kept for the grantee's pod", lease(kept), []edit{toPod("n1")}, []protocol.Grant{toAda}, []bool{true}, true},
		{"add what is kept for its pod, by the word of another node than the pod's", lease(kept), []edit{toPod("n2")}, []protocol.Grant{kept}, []bool{false}, false},
		{
			"add what is kept from all in the name of a pod, for a pod that has such a name", lease(fromAll),
			[]edit{{verb: add, grant: toAda, on: "l1", pod: protocol.Grantee{Kind: protocol.GranteePod, UID: fromAll.To.UID, Node: "n1"}}}, []protocol.Grant{fromAll}, []bool{false}, false,
		},
		{"add outside the block", lease(), []edit{planned(add, grant("10.0.0.4", ada))}, nil, []bool{false}, false},
		{"add to a node's lease", ofNode, []edit{planned(add, toAda)}, nil, []bool{false}, false},
		{"add what a node has not ceded", ceding, []edit{planned(add, grant("10.0.0.2", ada))}, nil, []bool{false}, false},
		{"add what a node has ceded", ceding, []edit{planned(add, toAda)}, []protocol.Grant{toAda}, []bool{true}, true},
		{"drop, marked or not", lease(toAda, freeing(grant("10.0.0.2", ada))),
			[]edit{planned(Drop, toAda), planned(Drop, grant("10.0.0.2", ada))}, nil, []bool{true, true}, true},
		{"drop keyed by UID", lease(toBert), []edit{planned(Drop, toAda)}, []protocol.Grant{toBert}, []bool{true}, false},
		{"add to a lease that took the name", lease(), []edit{{verb: add, grant: toAda, on: "l0"}}, nil, []bool{false}, false},
		{"mark", lease(toAda), []edit{planned(Mark, toAda)}, []protocol.Grant{marked(toAda, "7")}, []bool{true}, true},
		{"mark again", lease(freeing(toAda)), []edit{planned(Mark, toAda)}, []protocol.Grant{freeing(toAda)}, []bool{true}, false},
		{"mark what an older version has marked", lease(marked(toAda, "")), []edit{planned(Mark, toAda)}, []protocol.Grant{marked(toAda, "7")}, []bool{true}, true},
		{"mark what is gone", lease(), []edit{planned(Mark, toAda)}, nil, []bool{true}, false},
		{"mark keyed by UID, not by address", lease(toBert), []edit{planned(Mark, toAda)}, []protocol.Grant{toBert}, []bool{true}, false},
		{"unmark", lease(freeing(toAda)), []edit{planned(Unmark, toAda)}, []protocol.Grant{toAda}, []bool{true}, true},
		{"unmark what is gone", lease(), []edit{planned(Unmark, toAda)}, nil, []bool{false}, false},
		{"remove", lease(freeing(toAda)), []edit{planned(Clear, freeing(toAda))}, nil, []bool{true}, true},
		{"remove without mark", lease(toAda), []edit{planned(Clear, toAda)}, []protocol.Grant{toAda}, []bool{false}, false},
		{"remove without a mark to go by", lease(marked(toAda, "")), []edit{planned(Clear, marked(toAda, ""))}, []protocol.Grant{marked(toAda, "")}, []bool{false}, false},
		{"remove what has another mark by now (0008)", lease(marked(toAda, "6")), []edit{planned(Clear, freeing(toAda))}, []protocol.Grant{marked(toAda, "6")}, []bool{false}, false},
		{"remove another's", lease(freeing(toBert)), []edit{planned(Clear, freeing(toAda))}, []protocol.Grant{freeing(toBert)}, []bool{true}, false},
		{"a lease of a later version is left alone", later, []edit{planned(Clear, later.Grants[0])}, later.Grants, []bool{false}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.lease.Clone()
			next, done, changed := rewrite(tt.lease, tt.edits)
			if diff := cmp.Diff(tt.want, next.Grants, cmpValues); diff != "" {
				t.Errorf("grants (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.done, done); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
			if changed != tt.changed {
				t.Errorf("changed = %v; want %v", changed, tt.changed)
			}
			if diff := cmp.Diff(before, tt.lease, cmpValues); diff != "" {
				t.Errorf("the lease itself changes (-before +after):\n%s", diff)
			}
		})
	}
}

// TestPoolsOf: every pool of some grants is asked about, once.
func TestPoolsOf(t *testing.T) {
	grants := []Held{{Pool: "b"}, {Pool: "a"}, {Pool: "b"}}
	if got := poolsOf(grants); !slices.Equal(got, []protocol.PoolName{"b", "a"}) {
		t.Errorf("pools %q; want b and a", got)
	}
}
