package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// setLeasing opens or closes a pool as the controller would.
func setLeasing(t *testing.T, pool string, open bool) {
	t.Helper()
	setStatus(t, pool, func(p *v1alpha1.IPPool) {
		p.Status.Leasing = v1alpha1.LeasingClosed
		if open {
			p.Status.Leasing, p.Status.Opening = v1alpha1.LeasingOpen, protocol.EpochAfter(time.Now(), p.Status.Opening)
		}
	})
}

// saysBack returns nil when a node's registration says that it has put back what it holds.
func saysBack(node string) func() error {
	return func() error {
		reg, out, err := api.ReadRegistration(context.Background(), protocol.NodeName(node))
		if out != protocol.Done {
			return fmt.Errorf("registration of %s: %v, %w", node, out, err)
		}
		if r, ok := protocol.ParseRestoration(reg.Restored); !ok || !r.Back {
			return fmt.Errorf("the registration of %s says %q", node, reg.Restored)
		}
		return nil
	}
}

// beaten waits for the next heartbeat of a node.
func beaten(t *testing.T, node string) {
	t.Helper()
	was, out, err := api.ReadRegistration(t.Context(), protocol.NodeName(node))
	if out != protocol.Done {
		t.Fatal(out, err)
	}
	eventually(t, 30*time.Second, func() error {
		is, _, err := api.ReadRegistration(t.Context(), protocol.NodeName(node))
		if err == nil && !is.Beat.After(was.Beat) {
			err = errors.New("no heartbeat")
		}
		return err
	})
}

// TestRestoredAPI puts the API server back to an earlier state behind running
// agents: blocks leased since are put back by those who hold them, and nobody
// leases anything before the pool is opened again.
func TestRestoredAPI(t *testing.T) {
	openPool(t, "restored", cidr("10.33.0.0/22")) // blocks of four
	setLeasing(t, "restored", true)
	f := newFleet(t, func(c *daemon.Config) {
		c.Agent.Fence, c.Agent.Idle, c.Agent.Wait = 40*time.Second, time.Second, time.Second // a heartbeat every 10 s
	})
	a, b := f.Start("restored-a"), f.Start("restored-b")
	on := func(name string) fleet.Interface { return onPool("restored", name, "net1") }
	mustAdd(t, a, on("a0"))
	mustAdd(t, b, on("b0"))
	snapshot, err := cp.SnapshotEtcd()
	if err != nil {
		t.Fatal(err)
	}
	var since []netip.Prefix
	for i := range 12 { // three more blocks each
		since = append(since, mustAdd(t, a, on(fmt.Sprintf("a1-%d", i)))...)
		mustAdd(t, b, on(fmt.Sprintf("b1-%d", i)))
	}
	beaten(t, "restored-a")
	beaten(t, "restored-b")
	before := leasesOf(t, "restored")
	must(t, cp.RestoreEtcd(t.Context(), snapshot))
	// Nobody has noticed yet. A block that is lost is leased by another node, which
	// learns by the answer that it must not rely on it.
	block, _ := since[len(since)-1].Addr().Prefix(30)
	b.Refused(t, static("restored", "taken", block.Addr().Next().String()), "gone back to an earlier state")
	named := static("restored", "static", "10.33.3.77")
	eventually(t, 30*time.Second, saysBack("restored-a"))
	eventually(t, 30*time.Second, saysBack("restored-b"))
	now := leasesOf(t, "restored")
	created := 0
	for name, was := range before {
		is, ok := now[name]
		if !ok || is.Store != was.Store {
			t.Errorf("lease %s has not been put back: %+v", name, is)
		}
		if is.UID != was.UID {
			created++
		}
	}
	if created == 0 {
		t.Error("the restore lost no lease: this test shows nothing")
	}
	a.Refused(t, named, "waits until the nodes have put back what they hold")
	for i := range since { // a known owner is answered, also where the lease was lost
		if again := mustAdd(t, a, on(fmt.Sprintf("a1-%d", i))); !slices.Equal(again, since[i:i+1]) {
			t.Errorf("a known owner gets %v; want %v", again, since[i])
		}
	}
	setLeasing(t, "restored", false)
	setLeasing(t, "restored", true)
	eventually(t, 30*time.Second, func() error {
		for _, node := range []string{"restored-a", "restored-b"} {
			reg, _, err := api.ReadRegistration(t.Context(), protocol.NodeName(node))
			if err != nil || reg.Restored != "" {
				return errors.Join(err, fmt.Errorf("the registration of %s says %q", node, reg.Restored))
			}
		}
		return nil
	})
	mustAdd(t, a, named)
	for i := range 12 {
		mustAdd(t, a, on(fmt.Sprintf("a2-%d", i)))
		mustAdd(t, b, on(fmt.Sprintf("b2-%d", i)))
	}
	if !strings.Contains(a.Log(), "gone back to an earlier state") {
		t.Error("the agent does not say that the API server has gone back")
	}
}

// TestLeaseOfWhoHadItBefore restores a state in which another node had a block, with
// revisions that go on and before any heartbeat: its holder does not lose it, and has it
// again when the other has given it back.
func TestLeaseOfWhoHadItBefore(t *testing.T) {
	proof.Only(t)
	openPool(t, "inherited", cidr("10.34.0.0/24")) // blocks of one
	setLeasing(t, "inherited", true)
	f := newFleet(t, func(c *daemon.Config) { c.Agent.Idle, c.Agent.Wait = time.Second, time.Second })
	before, now := f.Start("inherited-a"), f.Start("inherited-b")
	on := func(name string) fleet.Interface { return static("inherited", name, "10.34.0.7") }
	mustAdd(t, before, on("a"))
	snapshot, err := cp.SnapshotEtcd()
	if err != nil {
		t.Fatal(err)
	}
	mustDel(t, before, on("a"))
	addrs := retried(t, 30*time.Second, now, on("b"))
	before.Stop()
	now.Stop()
	high, err := cp.EtcdRevision(t.Context())
	if err == nil {
		err = cp.RestoreEtcd(t.Context(), snapshot)
	}
	if err == nil {
		err = cp.RaiseEtcdRevision(t.Context(), high)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Start("inherited-b")
	f.Start("inherited-a")
	eventually(t, 30*time.Second, func() error {
		for _, l := range leasesOf(t, "inherited") {
			if l.Block.Contains(addrs[0].Addr()) && l.Holder.Node == "inherited-b" {
				return nil
			}
		}
		return fmt.Errorf("inherited-b has no lease of %v: %v", addrs[0], leasesOf(t, "inherited"))
	})
	eventually(t, 30*time.Second, saysBack("inherited-b"))
	setLeasing(t, "inherited", false)
	setLeasing(t, "inherited", true)
	eventually(t, 30*time.Second, func() error { return now.CheckAdd(on("b").With(addrs)) })
}
