package scale_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordination "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// sizes says how large the objects of a pool are on average, as the API server sends
// them: what a cluster of many of them keeps and watches follows from that.
func sizes(t *testing.T, pool string) string {
	t.Helper()
	var leases v1alpha1.IPLeaseList
	if err := kc.List(t.Context(), &leases, client.MatchingFields{"spec.pool": pool}); err != nil {
		t.Fatal(err)
	}
	var bytes, said, ofNodes int
	for i := range leases.Items {
		if leases.Items[i].Spec.Holder.Kind == v1alpha1.HolderNode {
			ofNodes++
			bytes += size(t, &leases.Items[i])
			said += len(leases.Items[i].Status.Allocations)
		}
	}
	var regs coordination.LeaseList
	if err := kc.List(t.Context(), &regs, client.InNamespace(api.RegistrationNamespace), client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	var p v1alpha1.IPPool
	if err := kc.Get(t.Context(), client.ObjectKey{Name: pool}, &p); err != nil {
		t.Fatal(err)
	}
	if ofNodes == 0 || len(regs.Items) == 0 {
		t.Fatalf("pool %s has %d leases of nodes, and there are %d registrations; want some", pool, ofNodes, len(regs.Items))
	}
	return fmt.Sprintf("bytes: %d for a lease that tells of %.1f addresses, %d for a registration, %d for the pool",
		bytes/ofNodes, float64(said)/float64(ofNodes), size(t, &regs.Items[0]), size(t, &p))
}

// size returns how many bytes o has as JSON, as API server and etcd keep it.
func size(t *testing.T, o any) int {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// What an agent lists once an hour, and when it starts: its own leases, which the API
// server looks for among those of all nodes. It is the one call whose price grows with
// the cluster. TENURE_SCALE_LEASES says how many leases there are.
func TestListOfOneNode(t *testing.T) {
	const lists, ofNode = 50, 2
	text := cmp.Or(os.Getenv("TENURE_SCALE_LEASES"), "300")
	n, err := strconv.Atoi(text)
	if err != nil || n < ofNode || n > 1<<16 {
		t.Fatalf("TENURE_SCALE_LEASES is %q, must be a number from %d to %d", text, ofNode, 1<<16)
	}
	debug.FreeOSMemory()
	memory := residentMB(t)
	t.Cleanup(func() { // the API server may not get through all of them in the time that one call has
		fleet.Eventually(t, 10*time.Minute, func() error {
			return kc.DeleteAllOf(context.Background(), &v1alpha1.IPLease{}, client.MatchingFields{"spec.pool": "many"})
		})
	})
	var made atomic.Int64
	var g errgroup.Group
	g.SetLimit(writers)
	for i := range n {
		g.Go(func() error {
			block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 250, byte(i >> 8), byte(i)}), 32)
			_, out, err := api.CreateLease(t.Context(), protocol.Lease{
				Meta: protocol.Meta{Name: protocol.LeaseName("many", block)}, Protocol: protocol.Version, Pool: "many", PoolUID: "none", Block: block,
				Holder: protocol.Holder{Node: protocol.NodeName(fmt.Sprintf("many-%d", i/ofNode))}, Store: "none", Term: 1, Writes: 1,
			})
			if out != protocol.Done {
				return fmt.Errorf("create the %d. lease: %v %w", made.Load()+1, out, err)
			}
			made.Add(1)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	t.Logf("%d leases: the controller and this test have %d MB, and had %d MB before", n, residentMB(t), memory)
	before, began := fleet.Spent(t, cp), time.Now()
	for i := range lists {
		node := protocol.NodeName(fmt.Sprintf("many-%d", i%(n/ofNode)))
		leases, _, err := api.NodeLeases(t.Context(), node)
		if err != nil || len(leases) != ofNode {
			t.Fatalf("%d leases of node %s, %v; want %d", len(leases), node, err, ofNode)
		}
	}
	took, cores := time.Since(began)/lists, fleet.Spent(t, cp).Minus(before).OnCores()/lists
	t.Logf("of %d leases, a list of one node's %d takes %v, and %v on the cores", n, ofNode, took.Round(10*time.Microsecond), cores.Round(10*time.Microsecond))
}
