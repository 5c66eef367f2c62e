package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestPlanRanks: each registration that has no rank gets one that no other has, also not one whose
// rank the cache does not show yet; those that have one keep it.
func TestPlanRanks(t *testing.T) {
	reg := func(node string, rank int, revision protocol.Revision) protocol.Registration {
		return protocol.Registration{
			Meta: protocol.Meta{UID: protocol.UID("uid-" + node), Revision: revision}, Node: protocol.NodeName(node), Store: "s", Rank: rank,
		}
	}
	ended := reg("ended", 0, "5")
	ended.Store = ""
	for _, tt := range []struct {
		name        string
		regs, given []protocol.Registration
		next, still string
	}{
		{"no registrations", nil, []protocol.Registration{reg("gone", 1, "5")}, "", ""},
		{"new ones", []protocol.Registration{reg("c", 0, "5"), reg("a", 0, "6"), reg("b", 0, "7")}, nil, "a 1, b 2, c 3, ", ""},
		{"between others", []protocol.Registration{reg("a", 3, "5"), reg("b", 0, "6"), reg("c", 1, "7"), reg("d", 0, "8")}, nil, "b 2, d 4, ", ""},
		{"the cache is behind", []protocol.Registration{reg("a", 0, "5"), reg("b", 0, "6")}, []protocol.Registration{reg("a", 1, "7")}, "b 2, ", "a 1, "},
		{"the cache has caught up", []protocol.Registration{reg("a", 1, "7"), reg("b", 0, "6")}, []protocol.Registration{reg("a", 1, "7")}, "b 2, ", ""},
		{"somebody has taken it off", []protocol.Registration{reg("a", 0, "8"), reg("b", 2, "6")}, []protocol.Registration{reg("a", 4, "7")}, "a 1, ", ""},
		{"no agent is registered", []protocol.Registration{ended, reg("z", 0, "6")}, nil, "z 1, ", ""},
		{"two have one", []protocol.Registration{reg("a", 1, "5"), reg("b", 1, "6")}, nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := map[protocol.UID]protocol.Registration{}
			for _, s := range tt.given {
				given[s.UID] = s
			}
			next, still := planRanks(tt.regs, given)
			if got := said(next); got != tt.next {
				t.Errorf("to be ranked: %q; want %q", got, tt.next)
			}
			var left []protocol.Registration
			for _, s := range still {
				left = append(left, s)
			}
			if got := said(left); got != tt.still {
				t.Errorf("still not in the cache: %q; want %q", got, tt.still)
			}
		})
	}
}

func said(regs []protocol.Registration) (text string) {
	slices.SortFunc(regs, func(x, y protocol.Registration) int { return x.Rank - y.Rank })
	for _, s := range regs {
		text += fmt.Sprint(s.Node, " ", s.Rank, ", ")
	}
	return text
}
