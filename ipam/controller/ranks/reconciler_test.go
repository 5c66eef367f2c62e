package ranks

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestPlan: each seat that has no rank gets one that no other has, also not one whose
// rank the cache does not show yet; those that have one keep it.
func TestPlan(t *testing.T) {
	seat := func(node string, rank int, revision protocol.Revision) protocol.Seat {
		return protocol.Seat{
			Meta: protocol.Meta{UID: protocol.UID("uid-" + node), Revision: revision}, Node: protocol.NodeName(node), Store: "s", Rank: rank,
		}
	}
	ended := seat("ended", 0, "5")
	ended.Store = ""
	for _, tt := range []struct {
		name         string
		seats, given []protocol.Seat
		next, still  string
	}{
		{"no seats", nil, []protocol.Seat{seat("gone", 1, "5")}, "", ""},
		{"new ones", []protocol.Seat{seat("c", 0, "5"), seat("a", 0, "6"), seat("b", 0, "7")}, nil, "a 1, b 2, c 3, ", ""},
		{"between others", []protocol.Seat{seat("a", 3, "5"), seat("b", 0, "6"), seat("c", 1, "7"), seat("d", 0, "8")}, nil, "b 2, d 4, ", ""},
		{"the cache is behind", []protocol.Seat{seat("a", 0, "5"), seat("b", 0, "6")}, []protocol.Seat{seat("a", 1, "7")}, "b 2, ", "a 1, "},
		{"the cache has caught up", []protocol.Seat{seat("a", 1, "7"), seat("b", 0, "6")}, []protocol.Seat{seat("a", 1, "7")}, "b 2, ", ""},
		{"somebody has taken it off", []protocol.Seat{seat("a", 0, "8"), seat("b", 2, "6")}, []protocol.Seat{seat("a", 4, "7")}, "a 1, ", ""},
		{"nobody sits there", []protocol.Seat{ended, seat("z", 0, "6")}, nil, "z 1, ", ""},
		{"two have one", []protocol.Seat{seat("a", 1, "5"), seat("b", 1, "6")}, nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := map[protocol.UID]protocol.Seat{}
			for _, s := range tt.given {
				given[s.UID] = s
			}
			next, still := plan(tt.seats, given)
			if got := said(next); got != tt.next {
				t.Errorf("to be ranked: %q; want %q", got, tt.next)
			}
			var left []protocol.Seat
			for _, s := range still {
				left = append(left, s)
			}
			if got := said(left); got != tt.still {
				t.Errorf("still not in the cache: %q; want %q", got, tt.still)
			}
		})
	}
}

func said(seats []protocol.Seat) (text string) {
	slices.SortFunc(seats, func(x, y protocol.Seat) int { return x.Rank - y.Rank })
	for _, s := range seats {
		text += fmt.Sprint(s.Node, " ", s.Rank, ", ")
	}
	return text
}
