package nodes_test

import (
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestIdleLeasesOfSmallBlocksGoBack (I4): blocks that have fewer addresses to give
// than their size, at the edge of a pool, or none but static-only ones.
func TestIdleLeasesOfSmallBlocksGoBack(t *testing.T) {
	openBlocks(t, "edge", 64, v1alpha1.Range{CIDR: "10.90.0.0/16", Start: "10.90.0.5", End: "10.90.0.14"})
	openBlocks(t, "by-name", 64, v1alpha1.Range{CIDR: "10.91.0.0/16", StaticOnly: []string{"10.91.7.0/26"}})
	f := fleet.New(t, cp.Config())
	f.Change = func(c *daemon.Config) { c.Agent.Idle = time.Second }
	n := f.Start("small-blocks")
	asked := onPool("by-name", "c2", "net1")
	asked.Top = map[string]any{"runtimeConfig": map[string]any{"ips": []string{"10.91.7.7"}}}
	for _, i := range []fleet.Interface{onPool("edge", "c1", "net1"), asked} {
		mustAdd(t, n, i)
		mustDel(t, n, i)
	}
	eventually(t, 30*time.Second, noLeases(t, "edge"))
	eventually(t, 30*time.Second, noLeases(t, "by-name"))
}
