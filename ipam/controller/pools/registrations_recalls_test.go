package pools

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRecallsOfAThief: who has an agent's credential writes recalls of other leases each time, and
// never beats: the controller does not remember all of them.
func TestRecallsOfAThief(t *testing.T) {
	var l registrations
	now := time.Now()
	for i := range 20 {
		reg := protocol.Registration{Meta: protocol.Meta{UID: "u", Revision: protocol.Revision(fmt.Sprint(i + 1))}, Node: "n", Store: "s", Term: 1}
		for k := range 2000 {
			reg.Recalls = append(reg.Recalls, protocol.Recall{ID: "r", Lease: fmt.Sprintf("%d.%d", i, k)})
		}
		l.observe(reg, now)
		now = now.Add(time.Hour)
	}
	if n := len(l.nodes["n"].recalls); n > recallsMax {
		t.Errorf("the recalls of %d leases are remembered; want %d at most", n, recallsMax)
	}
}
