package nodes_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

func TestOnePod(t *testing.T) {
	openPool(t, "one-address", cidr("10.1.0.0/20"))
	n := newFleet(t).Start("one-address")
	addrs := mustAdd(t, n, onPool("one-address", "c1", "net1"))
	if len(addrs) != 1 || !netip.MustParsePrefix("10.1.0.0/20").Contains(addrs[0].Addr()) || addrs[0].Bits() != 20 {
		t.Errorf("got %v; want one address of 10.1.0.0/20", addrs)
	}
}

func TestTwoInterfaces(t *testing.T) {
	openPool(t, "two-interfaces", cidr("10.2.0.0/24"))
	n := newFleet(t).Start("two-interfaces")
	if a, b := mustAdd(t, n, onPool("two-interfaces", "c1", "net1")), mustAdd(t, n, onPool("two-interfaces", "c1", "net2")); a[0] == b[0] {
		t.Errorf("both interfaces got %v", a)
	}
}

func TestDualStack(t *testing.T) {
	openPool(t, "dual", cidr("fd00:1::/64"), cidr("10.3.0.0/24"))
	n := newFleet(t).Start("dual")
	addrs := mustAdd(t, n, onPool("dual", "c1", "net1"))
	if len(addrs) != 2 || !addrs[0].Addr().Is4() || !addrs[1].Addr().Is6() {
		t.Errorf("got %v; want IPv4, then IPv6", addrs)
	}
}

// TestRepeatedAdd (C10).
func TestRepeatedAdd(t *testing.T) {
	openPool(t, "c10", cidr("10.4.0.0/24"))
	f := newFleet(t)
	n := f.Start("c10")
	i := onPool("c10", "c1", "net1")
	first := mustAdd(t, n, i)
	if again := mustAdd(t, n, i); !slices.Equal(first, again) {
		t.Errorf("got %v, then %v", first, again)
	}
	n.Stop()
	n = f.Start("c10")
	if again := mustAdd(t, n, i); !slices.Equal(first, again) {
		t.Errorf("got %v, after a restart %v", first, again)
	}
}

func TestTinyPool(t *testing.T) {
	openPool(t, "two-addresses", cidr("10.5.0.0/30")) // two addresses
	n := newFleet(t, waits(time.Second)).Start("two-addresses")
	first, second, third := onPool("two-addresses", "c1", "net1"), onPool("two-addresses", "c2", "net1"), onPool("two-addresses", "c3", "net1")
	mustAdd(t, n, first)
	mustAdd(t, n, second)
	n.Refused(t, third, "pool two-addresses is exhausted")
	mustDel(t, n, first)
	mustAdd(t, n, third)
}

func TestManyNodesShareAPool(t *testing.T) {
	const nodes, each = 8, 20
	openPool(t, "many", cidr("10.6.0.0/22"))
	f := newFleet(t)
	var wg sync.WaitGroup
	for i := range nodes {
		n := f.Start(fmt.Sprintf("many-%d", i))
		wg.Go(func() {
			for j := range each {
				if _, err := n.Insist(onPool("many", fmt.Sprintf("%s-%d", n.Name, j), "net1")); err != nil {
					t.Errorf("ADD %d on %s: %v", j, n.Name, err)
				}
			}
		})
	}
	wg.Wait()
	if got := f.Observer.Held(); got != nodes*each {
		t.Errorf("%d addresses are held; want %d", got, nodes*each)
	}
}

func TestAPIAway(t *testing.T) {
	openPool(t, "api-away", cidr("10.16.0.0/16"))
	f := newFleet(t, idle(time.Second))
	n := f.Start("api-away")
	mustAdd(t, n, onPool("api-away", "c0", "net1"))
	must(t, cp.PauseAPIServer())
	for i := 1; i < 40; i++ { // within the block
		mustAdd(t, n, onPool("api-away", fmt.Sprintf("c%d", i), "net1"))
	}
	for i := range 40 {
		mustDel(t, n, onPool("api-away", fmt.Sprintf("c%d", i), "net1"))
	}
	// An agent that restarts serves what it holds, in the same boot.
	n.Stop()
	n = f.Start("api-away")
	mustAdd(t, n, onPool("api-away", "c100", "net1"))
	mustDel(t, n, onPool("api-away", "c100", "net1"))
	must(t, cp.ResumeAPIServer())
	eventually(t, 30*time.Second, noLeases(t, "api-away"))
}

func TestJournalledDEL(t *testing.T) {
	openPool(t, "journal", cidr("10.7.0.0/24"))
	f := newFleet(t)
	n := f.Start("journal")
	i := onPool("journal", "c1", "net1")
	mustAdd(t, n, i)
	n.Stop()
	dir := n.Config().Agent.JournalDir
	n.Vanish(i) // by the DEL that the plugin notes
	if _, err := delqueue.Write(dir, delqueue.Entry{Network: i.Network, ContainerID: i.Sandbox, IfName: i.IfName}); err != nil {
		t.Fatal(err)
	}
	n = f.Start("journal")
	eventually(t, 10*time.Second, func() error {
		entries, damaged, err := delqueue.List(dir)
		if len(entries)+len(damaged) > 0 {
			return fmt.Errorf("the journal has %v, damaged %v", entries, damaged)
		}
		return err
	})
	if err := n.CheckAdd(i); err == nil {
		t.Error("CHECK of a deleted attachment succeeds")
	}
	n.Vanish(i)
	// An entry that is older than an ADD of its key is consumed by it.
	if _, err := delqueue.Write(dir, delqueue.Entry{Network: i.Network, ContainerID: i.Sandbox, IfName: i.IfName}); err != nil {
		t.Fatal(err)
	}
	mustAdd(t, n, i)
	if entries, _, err := delqueue.List(dir); err != nil || len(entries) > 0 {
		t.Errorf("after the ADD the journal has %v, %v; want nothing", entries, err)
	}
}

func TestNewSandbox(t *testing.T) {
	openPool(t, "again-sandbox", cidr("10.8.0.0/30"))
	n := newFleet(t, waits(time.Second)).Start("again-sandbox")
	old := newPod(t, "again-sandbox", "again-sandbox", "", onPool("again-sandbox", "old", "net1"))
	old.Netns = file(t, "netns-old")
	first := mustAdd(t, n, old)
	other := onPool("again-sandbox", "other", "net1")
	mustAdd(t, n, other) // the pool is full
	fresh := old
	fresh.Sandbox, fresh.Netns = "new", file(t, "netns-new")
	must(t, os.Remove(old.Netns))
	if got := mustAdd(t, n, fresh); !slices.Equal(got, first) {
		t.Errorf("the new sandbox got %v; want the old one's %v", got, first)
	}
	mustDel(t, n, old) // late: must free nothing
	if err := n.CheckAdd(onPool("again-sandbox", "new", "net1")); err == nil {
		t.Error("CHECK without prevResult succeeds")
	}
	n.Refused(t, onPool("again-sandbox", "third", "net1"), "exhausted")
}

func TestIdleLeasesGoBack(t *testing.T) {
	openPool(t, "idle", cidr("10.10.0.0/24"))
	n := newFleet(t, idle(time.Second)).Start("idle")
	for i := range 5 {
		mustAdd(t, n, onPool("idle", fmt.Sprintf("c%d", i), "net1"))
	}
	for i := range 5 {
		mustDel(t, n, onPool("idle", fmt.Sprintf("c%d", i), "net1"))
	}
	eventually(t, 30*time.Second, noLeases(t, "idle"))
}

func TestVanishedLease(t *testing.T) {
	openPool(t, "vanish", cidr("10.11.0.0/24"))
	f := newFleet(t)
	n := f.Start("vanish")
	addrs := mustAdd(t, n, onPool("vanish", "c1", "net1"))
	name := protocol.LeaseName("vanish", netip.PrefixFrom(addrs[0].Addr(), 32))
	l, ok := leasesOf(t, "vanish")[name]
	if !ok {
		t.Fatalf("no lease %s", name)
	}
	if out, err := api.DeleteLease(t.Context(), l.Meta); out != protocol.Done {
		t.Fatal(out, err)
	}
	n.Stop()
	f.Start("vanish")
	eventually(t, 30*time.Second, func() error {
		if _, ok := leasesOf(t, "vanish")[name]; !ok {
			return errors.New("the lease has not been created again")
		}
		return nil
	})
}

func TestStaticIPs(t *testing.T) {
	openPool(t, "static", cidr("10.12.0.0/24"))
	f := newFleet(t, waits(time.Second))
	a, b := f.Start("static-a"), f.Start("static-b")
	ask := func(sandbox, ip string) fleet.Interface { return static("static", sandbox, ip) }
	for _, tt := range []struct{ name, ip string }{{"in a block that nobody holds", "10.12.0.77"}, {"with its prefix length", "10.12.0.78/24"}} {
		t.Run(tt.name, func(t *testing.T) {
			got := mustAdd(t, a, ask("c-"+tt.ip[:10], tt.ip))
			if want := strings.TrimSuffix(tt.ip, "/24") + "/24"; len(got) != 1 || got[0].String() != want {
				t.Errorf("got %v; want %s", got, want)
			}
		})
	}
	b.Refused(t, ask("c2", "10.12.0.77"), "node static-a")
	a.Refused(t, ask("c3", "10.12.0.77"), "10.12.0.77")
	_, err := a.Insist(ask("c4", "10.12.1.1"))
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "10.12.1.1")
	_, err = a.Insist(ask("c5", "10.12.0.255"))
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "broadcast")
	_, err = a.Insist(ask("c6", "10.12.0.80/16"))
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "prefix length")
}

// ends fails unless an agent of a node's configuration ends at once, with an error that has these
// words.
func ends(t *testing.T, n *fleet.Node, words string) {
	t.Helper()
	d, err := daemon.New(*n.Config(), accounts.Agent, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("the agent ends with %v; want %q", err, words)
	}
}

func TestSecondAgentOnOneSocket(t *testing.T) {
	controller(t, false)
	n := newFleet(t).Start("twice")
	ends(t, n, "another tenured")
}

func TestUnknownPool(t *testing.T) {
	controller(t, false)
	n := newFleet(t, waits(500*time.Millisecond)).Start("unknown")
	n.Refused(t, onPool("no-such-pool", "c1", "net1"), "pool no-such-pool does not exist")
}

// TestBridgeTakesFirst: what a bridge takes for itself is answered as the gateway and given to
// nobody of its network, also before the controller has kept it; and to nobody else once it has.
func TestBridgeTakesFirst(t *testing.T) {
	openPool(t, "bridged", cidr("10.9.0.0/29"))
	n := newFleet(t).Start("bridged")
	behind := onPool("bridged", "c1", "net1")
	behind.Top = map[string]any{"isGateway": true}
	res, err := n.Insist(behind)
	if err != nil {
		t.Fatal(err)
	}
	router := netip.MustParseAddr("10.9.0.1")
	if len(res.IPs) != 1 || res.IPs[0].Gateway != router || res.IPs[0].Address.Addr() == router {
		t.Errorf("answered %+v; want the gateway %v, and another address", res.IPs, router)
	}
	setStatus(t, "bridged", func(p *v1alpha1.IPPool) { p.Status.Gateways = []string{router.String()} })
	wire := onPool("bridged", "c2", "net1")
	wire.Network, wire.Top = "wire", map[string]any{"type": "macvlan", "runtimeConfig": map[string]any{"ips": []string{router.String()}}}
	var refused *agentapi.Error
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := n.Add(wire)
		if errors.As(err, &refused) && strings.Contains(refused.Msg, "is a gateway") {
			return
		}
		if err == nil {
			mustDel(t, n, wire) // the agent had yet to hear of it
		}
		if time.Now().After(deadline) {
			t.Fatalf("ADD of the gateway: %v; want it refused", err)
		}
	}
}

// TestNewTermServesWhatIsHeld: in a new term an ADD has a block of the node's said
// again instead of leasing another, and all are said again in a while.
func TestNewTermServesWhatIsHeld(t *testing.T) {
	openPool(t, "again", cidr("10.35.0.0/20")) // blocks of sixteen
	f := newFleet(t)
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

// TestIdleLeasesOfSmallBlocksGoBack (I4): blocks that have fewer addresses to give
// than their size, at the edge of a pool, or none but static-only ones.
func TestIdleLeasesOfSmallBlocksGoBack(t *testing.T) {
	openBlocks(t, "edge", 64, v1alpha1.Range{CIDR: "10.90.0.0/16", Start: "10.90.0.5", End: "10.90.0.14"})
	openBlocks(t, "by-name", 64, v1alpha1.Range{CIDR: "10.91.0.0/16", StaticOnly: []string{"10.91.7.0/26"}})
	n := newFleet(t, idle(time.Second)).Start("small-blocks")
	asked := static("by-name", "c2", "10.91.7.7")
	for _, i := range []fleet.Interface{onPool("edge", "c1", "net1"), asked} {
		mustAdd(t, n, i)
		mustDel(t, n, i)
	}
	eventually(t, 30*time.Second, noLeases(t, "edge"))
	eventually(t, 30*time.Second, noLeases(t, "by-name"))
}

// What the delegating plugin ignores as a whole, the agent does too: the default
// network of such a pod gets its address (N20, A2).
func TestInvalidAnnotationIsIgnored(t *testing.T) {
	openPool(t, "n20", cidr("10.20.0.0/24"))
	n := newFleet(t).Start("n20")
	const invalid = `[{"name":"a","interface":"eth0","ips":[]},{"name":"b","interface":"lan0","ipam-claim-reference":"c"}]`
	pod := newPod(t, "n20", "n20", invalid, onPool("n20", "c1", "eth0"))
	if addrs := mustAdd(t, n, pod); len(addrs) != 1 {
		t.Errorf("got %v; want one address", addrs)
	}
	// A caller with other rules attaches the element all the same: not without the
	// claim's address.
	pod.IfName = "lan0"
	_, err := n.Insist(pod)
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "element 1: ips: [] is not a list of one address or more")
}
