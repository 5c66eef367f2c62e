package nodes_test

import (
	"fmt"
	"testing"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestNewTermServesWhatIsHeld: in a new term an ADD has a block of the node's said
// again instead of leasing another, and all are said again in a while.
func TestNewTermServesWhatIsHeld(t *testing.T) {
	openPool(t, "again", cidr("10.35.0.0/20")) // blocks of sixteen
	f := fleet.New(t, cp.Config())
	n := f.Start("again")
	for i := range 4 { // of a block of sixteen: what is left is reserve enough
		mustAdd(t, n, onPool("again", fmt.Sprintf("c%d", i), "net1"))
	}
	before := leasesOf(t, "again")
	n.Stop()
	n.Config().Agent.Boot = "the-next-boot"
	n = f.Start("again")
	for i := range 4 { // of a block of sixteen: what is left is reserve enough
		mustAdd(t, n, onPool("again", fmt.Sprintf("d%d", i), "net1"))
	}
	if after := leasesOf(t, "again"); len(after) != len(before) {
		t.Errorf("%d leases before, %d in the new term, where one had room", len(before), len(after))
	}
}
