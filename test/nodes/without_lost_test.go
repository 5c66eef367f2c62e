package nodes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// hostPod creates a real pod of n with a network namespace, for which a file stands
// in, and returns its interface net1 on a pool.
func hostPod(t *testing.T, n *fleet.Node, pool, name string) fleet.Interface {
	t.Helper()
	i := newPod(t, n.Name, name, "", onPool(pool, "sandbox-of-"+name, "net1"))
	dir := n.Config().NetnsDirs[0]
	must(t, os.MkdirAll(dir, 0o700))
	i.Netns = filepath.Join(dir, name)
	must(t, os.WriteFile(i.Netns, nil, 0o600))
	return i
}

// cacheResult writes what the CNI library keeps of an attachment on its node.
func cacheResult(t *testing.T, n *fleet.Node, i fleet.Interface, addrs []netip.Prefix) {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": i.Network, "plugins": []any{map[string]any{"type": "bridge", "ipam": i.IPAM}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": i.Sandbox, "config": config, "ifName": i.IfName, "networkName": i.Network, "netns": i.Netns,
		"cniArgs": [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", i.Namespace}, {"K8S_POD_NAME", i.Pod}, {"K8S_POD_UID", i.PodUID}},
		"result":  i.With(addrs).Top["prevResult"],
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := n.Config().ResultDirs[0]
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, i.Network+"-"+i.Sandbox+"-"+i.IfName), text, 0o600))
}

func copyStore(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoreLost loses a node's store in three ways while pods run: what they
// have is given to nobody, and what can be found of it works as before; when they
// are gone, all comes back.
func TestStoreLost(t *testing.T) {
	for i, tt := range []struct {
		name string
		lose func(t *testing.T, path, older string)
	}{
		{"deleted", func(t *testing.T, path, _ string) {
			must(t, os.Remove(path))
		}},
		{"older", func(t *testing.T, path, older string) { copyStore(t, older, path) }},
		{"corrupted", func(t *testing.T, path, _ string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(make([]byte, 16<<10), 0); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := "lost-" + tt.name
			openPool(t, pool, cidr(fmt.Sprintf("10.30.%d.0/22", 4*i))) // blocks of four
			f := newFleet(t)
			f.Change = func(c *daemon.Config) { c.Agent.Idle, c.Agent.SweepEvery = time.Second, time.Second }
			n := f.Start("node-" + pool)
			older := filepath.Join(t.TempDir(), "older")

			var pods []fleet.Interface
			var had [][]netip.Prefix
			for j := range 6 {
				if j == 3 {
					n.Stop()
					copyStore(t, n.Config().Store, older)
					n = f.Start(n.Name)
				}
				p := hostPod(t, n, pool, fmt.Sprintf("%s-%d", pool, j))
				pods = append(pods, p)
				had = append(had, mustAdd(t, n, p))
			}
			cacheResult(t, n, pods[0], had[0])
			cacheResult(t, n, pods[4], had[4])
			old := leasesOf(t, pool)
			n.Stop()
			tt.lose(t, n.Config().Store, older)
			n = f.Start(n.Name)

			// The observer knows all old addresses: none may be given to another.
			var fresh []fleet.Interface
			for j := range 12 {
				p := hostPod(t, n, pool, fmt.Sprintf("%s-new-%d", pool, j))
				fresh = append(fresh, p)
				mustAdd(t, n, p)
			}
			for _, j := range []int{0, 4} {
				if err := n.CheckAdd(pods[j].With(had[j])); err != nil {
					t.Errorf("CHECK of pod %d, which had %v: %v", j, had[j], err)
				}
			}
			if err := n.CheckAdd(pods[1].With(had[1])); err == nil {
				t.Errorf("CHECK of pod 1 succeeds, though nothing tells that it has %v", had[1])
			}
			for _, j := range []int{0, 4} {
				if again := mustAdd(t, n, pods[j]); !slices.Equal(again, had[j]) {
					t.Errorf("a repeated ADD of pod %d gets %v; want %v", j, again, had[j])
				}
			}
			for _, p := range append(pods[1:], fresh...) { // one pod stays
				endPod(t, n, p)
			}
			for name := range old {
				if _, ok := leasesOf(t, pool)[name]; !ok {
					t.Errorf("%s was given back while a pod of its time runs", name)
				}
			}
			endPod(t, n, pods[0])
			eventually(t, 30*time.Second, noLeases(t, pool))
			aside, err := filepath.Glob(n.Config().Store + ".2*")
			if want := map[bool]int{true: 0, false: 1}[tt.name == "deleted"]; err != nil || len(aside) != want {
				t.Errorf("%v are set aside, %v; want %d", aside, err, want)
			}
		})
	}
}

// TestStoreLostKeepsFixedAddress: a pod that asks for an address by name has it again in a new
// sandbox, though other pods of the lost store's time keep its block frozen: the CNI library knows
// that it is the pod's.
func TestStoreLostKeepsFixedAddress(t *testing.T) {
	openPool(t, "fixed", cidr("10.199.0.0/24"))
	f := newFleet(t)
	n := f.Start("node-fixed")
	other := hostPod(t, n, "fixed", "fixed-other")
	had := mustAdd(t, n, other)
	p := naming(hostPod(t, n, "fixed", "fixed-web"), had[0].Addr().Next().String())
	fixed := mustAdd(t, n, p)
	cacheResult(t, n, p, fixed)
	n.Stop()
	must(t, os.Remove(n.Config().Store))
	n = f.Start(n.Name)
	if err := os.Rename(p.Netns, p.Netns+"-again"); err != nil { // the old sandbox is gone
		t.Fatal(err)
	}
	p.Sandbox, p.Netns = "another-sandbox", p.Netns+"-again"
	if again := mustAdd(t, n, p); !slices.Equal(again, fixed) {
		t.Errorf("in its new sandbox it has %v; want %v", again, fixed)
	}
}

// TestLostStoreOfAnEarlierBoot: what a store of an earlier boot held is given back
// at once.
func TestLostStoreOfAnEarlierBoot(t *testing.T) {
	openPool(t, "earlier-boot", cidr("10.31.0.0/24"))
	f := newFleet(t)
	n := f.Start("earlier-boot")
	mustAdd(t, n, onPool("earlier-boot", "c1", "net1"))
	n.Stop()
	must(t, os.Remove(n.Config().Store))
	n.Config().Agent.Boot = "the-next-boot"
	f.Start("earlier-boot")
	eventually(t, 30*time.Second, noLeases(t, "earlier-boot"))
}

// TestTwoMachines: of two agents on two machines under one node name one
// serves; the other says who does, and touches nothing of its leases, also when it
// has its place.
func TestTwoMachines(t *testing.T) {
	proof.Only(t)
	openPool(t, "two-machines", cidr("10.32.0.0/22"))
	const fence = 32 * time.Second // its half is how long the first one's heartbeats may be held up on a busy machine
	change := func(c *daemon.Config) { c.Agent.Fence = fence }
	f := newFleet(t, change)
	first := f.Start("two-machines")
	mustAdd(t, first, onPool("two-machines", "c1", "net1"))
	old := leasesOf(t, "two-machines")

	g := newFleet(t, func(c *daemon.Config) { change(c); c.Agent.Machine = "another-machine" })
	g.Observer = f.Observer
	second := g.Launch("two-machines")
	// Longer than the second waits for one who is silent, but the first one beats.
	deadline := time.Now().Add(fence/2 + fence/4)
	said := false
	for time.Now().Before(deadline) {
		_, err := second.Add(onPool("two-machines", "c2", "net1"))
		if err == nil {
			t.Fatal("two machines serve one node at once")
		}
		said = said || strings.Contains(err.Error(), "held by another machine")
		time.Sleep(100 * time.Millisecond) // a poll of the outside world
	}
	if !said {
		t.Error("the second agent does not say who serves")
	}
	mustAdd(t, first, onPool("two-machines", "c3", "net1"))
	first.Stop()
	second.AwaitServing()
	for j := range 20 { // the observer would see an address of the first one's
		mustAdd(t, second, onPool("two-machines", fmt.Sprintf("d%d", j), "net1"))
	}
	for name, was := range old {
		if is := leasesOf(t, "two-machines")[name]; is.Store != was.Store || is.Writes != was.Writes {
			t.Errorf("%s was of store %s, turn %d, and is of %s, turn %d", name, was.Store, was.Writes, is.Store, is.Writes)
		}
	}
	eventually(t, 10*time.Second, func() error {
		if !strings.Contains(second.Log(), "another machine's store in this node's name are left alone") {
			return errors.New("the agent does not say that it leaves the other machine's leases alone")
		}
		return nil
	})
}

// TestStoreUnusable: an agent that cannot have a store says why and does not
// serve; it does when that is mended.
func TestStoreUnusable(t *testing.T) {
	controller(t, false)
	f := newFleet(t)
	n := f.Start("no-store")
	n.Stop()
	store := n.Config().Store
	n.Config().Store = filepath.Join(n.Config().Socket+".lock", "store.db") // beside a file, not in a directory
	ends(t, n, "make the store's directory")
	if _, err := n.Add(onPool("no-store", "c1", "net1")); err == nil {
		t.Error("something serves")
	}
	n.Config().Store = store
	f.Start("no-store")
}

// TestVanishedLeaseTaken: a lease that somebody deleted, and another node took,
// gives nothing any more on the node that had it, which says who uses it.
func TestVanishedLeaseTaken(t *testing.T) {
	openPool(t, "taken", cidr("10.36.0.0/22")) // blocks of four
	f := newFleet(t, func(c *daemon.Config) { c.Agent.PublishEvery = time.Second })
	a, b := f.Start("taken-a"), f.Start("taken-b")
	first := newPod(t, a.Name, "taken-first", "", onPool("taken", "c1", "net1"))
	block := mustAdd(t, a, first)[0].Addr()
	lease := leaseOf(t, "taken", block)
	a.Stop() // else it would put the lease back at once
	eventually(t, 30*time.Second, func() error {
		l, out, err := api.ReadLease(t.Context(), lease.Name)
		if out == protocol.Done {
			_, err = api.DeleteLease(t.Context(), l.Meta)
			return errors.Join(err, errors.New("it was there"))
		}
		if out != protocol.NotFound {
			return fmt.Errorf("%v: %w", out, err)
		}
		return nil
	})
	mustAdd(t, b, static("taken", "c2", block.Next().String()))
	a = f.Start("taken-a")
	// Until it has looked, it cannot know: nobody but a person deletes another's lease.
	eventually(t, 30*time.Second, func() error {
		for line := range strings.Lines(a.Log()) {
			if strings.Contains(line, lease.Name) && strings.Contains(line, "taken-first") {
				return nil
			}
		}
		return errors.New("the agent does not say which pod uses the lost lease")
	})
	for i := range 12 { // the observer sees to it that none is of that block
		got := mustAdd(t, a, onPool("taken", fmt.Sprintf("d%d", i), "net1"))[0].Addr()
		if lease.Block.Contains(got) {
			t.Errorf("%v is in the block that the other node has", got)
		}
	}
	if is := leasesOf(t, "taken")[lease.Name]; is.Holder.Node != "taken-b" {
		t.Errorf("lease %s is of %v; want that nobody takes it from taken-b", lease.Name, is.Holder)
	}
}
